"""Stores of checkpoints: the interface, a store in memory, and one in an SQLite file."""

from holdfast import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports.attach(__name__, __file__)
