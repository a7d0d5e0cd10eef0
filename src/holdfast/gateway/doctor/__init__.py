"""`holdfast doctor`: check everything that `up` relies on, report findings, apply safe fixes, pack a bundle.

The CLI prints the findings. Where a step of `up` repairs a finding, `--fix` runs `up`.
"""

from holdfast import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports.attach(__name__, __file__)
