"""One reconciler per kind: observe the cache, decide with `holdfast.sandbox`, execute, write the status."""

from holdfast import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports.attach(__name__, __file__)
