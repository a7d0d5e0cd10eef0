"""Fixtures with a real API server, and with faults in front of it; `plugin` offers them to pytest.

Each starts what a test needs and stops just that. Not here: anything that needs a container engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.testing.faults import FaultProxy
    from holdfast.testing.kube_server import KubeServer


@pytest.fixture(scope="session")
def kube_server() -> Iterator[KubeServer]:
    """A real kube-apiserver and etcd for the whole session: `kube_server.kubeconfig` leads there."""
    from holdfast.testing.kube_server import KubeServer

    with KubeServer() as server:
        yield server


@pytest.fixture
def kube_namespace(kube_server: KubeServer) -> str:
    """The name of a fresh namespace; it goes when the server goes."""
    return kube_server.create_namespace()


@pytest.fixture
def faulty_kube(kube_server: KubeServer) -> Iterator[FaultProxy]:
    """The same server behind a fault proxy without rules yet: `with faulty_kube.faults(rule(…)): …`."""
    from holdfast.testing.faults import FaultProxy

    with FaultProxy(kube_server.kubeconfig) as proxy:
        yield proxy
