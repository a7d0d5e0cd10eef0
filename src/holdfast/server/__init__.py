"""The gateway's own HTTPS API, as it runs in the cluster: mutual TLS only, so no cluster-admin is needed.

Names are loaded by whoever uses them: importing this package imports no web framework.
Not here: what puts the server into a cluster (`gateway/workloads`).
"""
