"""Carries out what the sandbox floor decides: a cache of what is there, a queue of keys, one look at a time.

`run.py` puts it together. No decision is taken here.
"""
