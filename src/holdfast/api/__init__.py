"""The sandbox API: CRDs, constants, and the REST models that API server and clients share."""

from holdfast import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports.attach(__name__, __file__)
