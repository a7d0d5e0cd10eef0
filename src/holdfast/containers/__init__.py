"""The container engine: its containers, images, networks and volumes, and errors in holdfast's terms."""

from holdfast import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports.attach(__name__, __file__)
