"""Resources that sandboxes and their node use, from the statistics of the kubelet."""

from holdfast import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports.attach(__name__, __file__)
