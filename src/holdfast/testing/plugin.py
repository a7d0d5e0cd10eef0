"""The pytest plugin: fixtures that start what a test needs and stop just that."""

from holdfast.testing.crash_fixture import crash_matrix
from holdfast.testing.kube_fixtures import faulty_kube, kube_namespace, kube_server
from holdfast.testing.sandbox_fixtures import pytest_configure, sandbox, sandboxes

__all__ = [
    "crash_matrix",
    "faulty_kube",
    "kube_namespace",
    "kube_server",
    "pytest_configure",
    "sandbox",
    "sandboxes",
]
