"""The programs inside the sandbox image: the runtime HTTP server on port 8888, and a router in front of many.

They speak what the published `k8s-agent-sandbox` client expects. Copied into the image by itself, so that
nothing here imports another part of holdfast, or anything that is not in Python's standard library. Not here:
making sandboxes, and holdfast's own API (the server floor).
"""
