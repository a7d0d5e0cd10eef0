"""The crash matrix: kill a workflow at every step, and check that it converges."""

from holdfast import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports.attach(__name__, __file__)
