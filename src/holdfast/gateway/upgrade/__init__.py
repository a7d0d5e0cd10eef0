"""Upgrades of a gateway's node image: datastore snapshot, steps, and automatic rollback."""

from holdfast import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports.attach(__name__, __file__)
