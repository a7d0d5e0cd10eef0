"""Remove stale nodes from a gateway's cluster, and migrate the PersistentVolumes that were pinned to them."""

from holdfast import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports.attach(__name__, __file__)
