"""Templates and warm pools: routes, services and the watch of one pool."""

from holdfast import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports.attach(__name__, __file__)
