"""Secrets that users manage through the gateway and use in sandboxes. No response contains values."""

from holdfast import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports.attach(__name__, __file__)
