"""Gateways: the `Gateway` class, the plan of each command, and the steps by feature."""

from holdfast import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports.attach(__name__, __file__)
