"""Container engines on other hosts, over the system's ssh: connection, lock, image copy."""

from holdfast import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports.attach(__name__, __file__)
