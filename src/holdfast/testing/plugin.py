"""The pytest plugin: a real API server, fault injection, the crash matrix and sandboxes as fixtures.

    def test_it_installs(sandbox):
        assert sandbox.exec("pip", "install", "six").exit_code == 0

    @pytest.mark.sandbox(image="python:3.13", memory="1Gi")
    def test_with_another_image(sandbox): ...

The gateway is the one that HOLDFAST_GATEWAY names, or the active one. Every pytest run loads this module:
heavy imports stay inside the fixtures.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.client import Sandbox, Sandboxes
    from holdfast.testing.apiserver import KubeServer
    from holdfast.testing.crash import CrashReport
    from holdfast.testing.faults import FaultProxy


@pytest.fixture
def crash_matrix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[..., CrashReport]]:
    """Run a workflow through every crash scenario: `crash_matrix(build, …)`.

    With `random=N` it is killed at N random moments instead. The cases use a memory file system if there is
    one: SIGKILL loses nothing that the kernel has, so nothing has to reach a disk.
    """
    memory = Path("/dev/shm")  # noqa: S108 (mkdtemp creates a private directory there)
    parent = memory if os.access(memory, os.W_OK) else tmp_path
    root = Path(tempfile.mkdtemp(prefix="holdfast-crash-", dir=parent))

    def run_matrix(build: Callable[[Path], Any], *, random: int = 0, **options: Any) -> CrashReport:
        from holdfast.testing.crash import CrashMatrix

        matrix = CrashMatrix(build, root, **options)
        report = matrix.run_random(random) if random else matrix.run()
        with capsys.disabled():
            print(f"\n{report}")  # noqa: T201 (users want to see the table)
        report.raise_for_failures()
        return report

    yield run_matrix
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="session")
def kube_server() -> Iterator[KubeServer]:
    """A real kube-apiserver and etcd for the whole session; connect with `kube_server.kubeconfig`."""
    from holdfast.testing.apiserver import KubeServer

    with KubeServer() as server:
        yield server


@pytest.fixture
def kube_namespace(kube_server: KubeServer) -> str:
    """The name of a new namespace."""
    return kube_server.create_namespace()


@pytest.fixture
def faulty_kube(kube_server: KubeServer) -> Iterator[FaultProxy]:
    """`kube_server` behind a fault proxy without rules: `with faulty_kube.faults(rule(…)): …`."""
    from holdfast.testing.faults import FaultProxy

    with FaultProxy(kube_server.kubeconfig) as proxy:
        yield proxy


_MAX_PREFIX_LENGTH = 40


@pytest.fixture(scope="session")
def sandboxes() -> Iterator[Sandboxes]:
    """The sandboxes of the gateway, for tests that need several: `with sandboxes.temporary() as one, …`."""
    from holdfast.gateway import Gateway, resolve_gateway_name

    with Gateway(resolve_gateway_name(None)).sandboxes() as sandboxes:
        yield sandboxes


@pytest.fixture
def sandbox(request: pytest.FixtureRequest, sandboxes: Sandboxes) -> Iterator[Sandbox]:
    """A new, ready sandbox; `@pytest.mark.sandbox(…)` sets its options."""
    marker = request.node.get_closest_marker("sandbox")
    options = dict(marker.kwargs) if marker is not None else {}
    with sandboxes.temporary(prefix=sandbox_prefix(request.node.name), **options) as sandbox:
        yield sandbox


def sandbox_prefix(test: str) -> str:
    """Return a name prefix that identifies the test of a sandbox that was left behind."""
    plain = re.sub(r"[^a-z0-9]+", "-", test.lower()).strip("-")
    return plain[:_MAX_PREFIX_LENGTH].rstrip("-") or "test"


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers", "sandbox(**options): options of the sandbox that the `sandbox` fixture creates"
    )
