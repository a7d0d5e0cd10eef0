"""Test kits: a real API server, fault injection and the crash matrix, with a pytest plugin."""

from holdfast import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports.attach(__name__, __file__)
