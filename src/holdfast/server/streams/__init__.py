"""Streams of a sandbox: events, logs, files, exec and port-forward."""

from holdfast import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports.attach(__name__, __file__)
