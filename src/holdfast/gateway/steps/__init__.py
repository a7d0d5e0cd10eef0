"""One module per group of steps; a step looks before it acts and has one effect.

Not here: their order (plan.py) and how they are run (the engine floor).
"""
