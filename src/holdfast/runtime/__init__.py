"""The programs of the sandbox image: the runtime HTTP server on port 8888, and a router for many sandboxes.

They are compatible with the published `k8s-agent-sandbox` client. The package is copied into the image alone,
so it imports only the standard library and itself.
"""
