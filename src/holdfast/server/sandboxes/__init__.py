"""Sandboxes as resources of the API: routes, operations on the cluster, and views for clients."""

from holdfast import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports.attach(__name__, __file__)
