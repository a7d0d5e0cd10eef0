"""Sandbox logic without I/O: reconciliation of sandboxes, warm pools, templates and SandboxClaims."""

from holdfast import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports.attach(__name__, __file__)
