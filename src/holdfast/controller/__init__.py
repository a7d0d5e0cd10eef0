"""Carries out what the sandbox floor decides: a cache of what is there, a queue of keys, one look at a time.

No decision is taken here. Not here yet: the watches that feed it.
"""
