"""Who belongs to a gateway's cluster, and what becomes of pods and volumes of nodes that do not any more.

`membership` and `pinning` only think; `cluster` talks to the API server; `removal` and `repin` join them.
Not here: the steps (steps/nodes.py), and how a node gets its name (identity.py).
"""
