"""The pytest plugin: fixtures that start what a test needs and stop just that."""

from holdfast.testing.kube_fixtures import faulty_kube, kube_namespace, kube_server

__all__ = ["faulty_kube", "kube_namespace", "kube_server"]
