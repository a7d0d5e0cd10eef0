"""The node: its image, container, volume and network, and the wait until it is ready."""

from holdfast import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports.attach(__name__, __file__)
