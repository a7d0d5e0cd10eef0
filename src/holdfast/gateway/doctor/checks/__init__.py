"""One module per group of checks; a check only looks, and yields what it finds.

Not here: how checks are run and what becomes of one that fails itself (examination.py).
"""
