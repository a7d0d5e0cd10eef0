"""A real kube-apiserver and etcd as child processes, and workloads that verify clients."""

from holdfast import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports.attach(__name__, __file__)
