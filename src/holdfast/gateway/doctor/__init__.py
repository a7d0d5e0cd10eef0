"""What is wrong with a gateway, why, and what mends it: checks, findings, safe repairs, a bundle.

Looks at everything that `up` relies on and reports instead of failing. Not here: how findings are printed
(`cli`), and any repair of its own where `up` has a step for it.
"""
