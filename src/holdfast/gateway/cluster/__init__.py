"""The gateway's Kubernetes: credentials, certificates, workloads and health."""

from holdfast import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports.attach(__name__, __file__)
