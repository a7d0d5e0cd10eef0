"""What an upgrade is made of: which versions fit, what is put aside and copied, and which way it goes on.

Not here: its steps (`gateway/steps/upgrade.py`, `snapshot.py`) and their order (`gateway/plan.py`).
"""
