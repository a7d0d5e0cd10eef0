"""The checks of `doctor`, grouped by what they inspect; a check changes nothing and yields findings."""

from holdfast import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports.attach(__name__, __file__)
