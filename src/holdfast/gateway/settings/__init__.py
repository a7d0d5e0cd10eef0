"""Settings of a gateway: the model, its value types, and the resolution of flags, variables and files."""

from holdfast import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports.attach(__name__, __file__)
