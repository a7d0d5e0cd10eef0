"""The way to the API from the host: the kubeconfig is written, then used once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast import home
from holdfast.containers.commands import read_file
from holdfast.engine import Verdict, absent, done, partial
from holdfast.errors import TemporaryError
from holdfast.gateway import kubeconfig
from holdfast.gateway.glances import ask_by
from holdfast.gateway.remote import reopening
from holdfast.gateway.steps.base import GatewayStep
from holdfast.kube.reach import is_unreachable
from holdfast.retry import Policy, exponential

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.engine import Context
    from holdfast.gateway.work import Work


class WriteKubeconfig(GatewayStep):
    """A kubeconfig for the host, readable by its owner alone."""

    name = "write-kubeconfig"
    title = "Kubeconfig"
    needs: Sequence[str] = ("wait-node-registered",)

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        if work.place.tunnel:
            self.needs = (*self.needs, "open-tunnel")  # it decides the address

    def probe(self, ctx: Context) -> Verdict:
        del ctx
        path = self.work.files.kubeconfig
        if not path.exists():
            return absent("none yet")
        if path.stat().st_mode & 0o077:
            return partial("others could read it")
        if path.read_bytes() != self._wanted():
            return partial("the node has newer credentials or another address")
        return done(str(path))

    def run(self, ctx: Context) -> None:
        home.write_atomic(self.work.files.kubeconfig, self._wanted())
        ctx.note(str(self.work.files.kubeconfig))

    def _wanted(self) -> bytes:
        return _wanted(self.work)


def refresh_kubeconfig(work: Work) -> bool:
    """Fetch the credentials of a running node that has others than this machine; True when it had.

    A node renews its certificates by itself; this is how a host hears of it between two runs.
    """
    container = work.container()
    if container is None or container.state != "running" or not work.files.kubeconfig.exists():
        return False
    try:
        wanted = _wanted(work)
    except TemporaryError:
        return False
    if work.files.kubeconfig.read_bytes() == wanted:
        return False
    home.write_atomic(work.files.kubeconfig, wanted)
    return True


def _wanted(work: Work) -> bytes:
    path = work.profile.kubeconfig_path
    found = read_file(work.engine, work.object, path)
    if found is None:
        raise TemporaryError(f"the node has no kubeconfig at {path} yet")
    return kubeconfig.for_host(found, name=work.name, server=work.server)


class WaitApiReady(GatewayStep):
    """Only looks: the API server answers through the published port, to these credentials."""

    name = "wait-api-ready"
    title = "API from here"
    needs = ("write-kubeconfig",)
    repeat = "always"

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        self.policy = Policy(
            attempts=None,
            deadline=work.settings.timeouts.api,
            backoff=exponential(0.05, cap=1),
            retry_on=is_unreachable,
            on_retry=reopening(work),
        )

    def run(self, ctx: Context) -> None:
        found = kubeconfig.credentials(self.work.files.kubeconfig.read_bytes())
        ask_by(found, self.work, "/readyz")
        ctx.note(found.server)
