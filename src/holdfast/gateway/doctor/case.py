"""One gateway under examination: what several checks ask for is found out once, whoever asks first.

A fact that cannot be had raises `Unavailable` with the reason; the one check whose subject it is says what is
wrong, and all others are left out. Not here: judging.
"""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import urlencode

import msgspec

from holdfast.containers.commands import read_file, run_in
from holdfast.containers.containers import ContainerView, find_container
from holdfast.containers.labels import GATEWAY
from holdfast.containers.networks import NetworkView, VolumeView, find_network, find_volume
from holdfast.containers.translation import translated
from holdfast.errors import DamagedFileError, HoldfastError
from holdfast.gateway import kubeconfig
from holdfast.gateway.glances import ask_by
from holdfast.gateway.place import patience_of
from holdfast.gateway.settings import Resolved, Settings
from holdfast.gateway.work import Work
from holdfast.kube.reach import is_unreachable
from holdfast.retry import Policy, constant

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast.containers.engine import Engine
    from holdfast.gateway.doctor.findings import Finding
    from holdfast.gateway.kubeconfig import Credentials

T = TypeVar("T")

_PAGE = 100
_PATIENT = Policy(attempts=3, backoff=constant(0.2), retry_on=is_unreachable)
"""A busy machine may miss one answer; a server that is down is told as such within two glances."""


class Unavailable(Exception):  # noqa: N818 (no error: it says that a check has nothing to look at)
    """Something that a check would look at is not there, and another check says why."""


class Heard(NamedTuple):
    """An answer of the API server, with the local time just before and just after it."""

    body: bytes
    date: str
    before: float
    after: float


class Case:
    """One gateway, or none at all: then only the machine and the engine can be looked at."""

    def __init__(
        self, name: str | None, resolved: Resolved | None = None, known: tuple[Finding, ...] = ()
    ) -> None:
        self.name = name
        self.known = known
        self.resolved = resolved or Resolved(settings=Settings(), origins={})
        self._facts: dict[str, Future[Any]] = {}
        self._guard = threading.Lock()

    @property
    def subject(self) -> str:
        return self.name or "this machine"

    @property
    def work(self) -> Work:
        """The gateway for whoever needs one."""
        return self._once("work", self._work)

    @property
    def engine(self) -> Engine:
        """The engine that answers; the engine's own check says what is wrong with one that does not."""
        try:
            return self.connect()
        except Exception as error:
            raise Unavailable("the container engine cannot be used") from error

    def connect(self) -> Engine:
        """Reach the engine, or raise why it cannot be reached."""
        return self._once("engine", self._connect)

    @property
    def info(self) -> dict[str, Any]:
        """What the engine says of itself and its host, and when it was asked."""
        return self._once("info", self._info)

    @property
    def container(self) -> ContainerView | None:
        """The gateway's container if it is ours."""
        return self._ours("container", find_container)

    @property
    def predecessor(self) -> ContainerView | None:
        """The old container that an unfinished upgrade has put aside."""
        _ = self.engine
        return self._once("predecessor", self.work.predecessor)

    @property
    def was_here(self) -> bool:
        """Whether anything is remembered of the gateway, also where it cannot be read."""
        work = self.work
        return work.remembered is not None or os.path.lexists(work.files.metadata)

    @property
    def network(self) -> NetworkView | None:
        return self._ours("network", find_network)

    @property
    def volume(self) -> VolumeView | None:
        return self._ours("volume", find_volume)

    @property
    def running(self) -> ContainerView:
        """The container, when a command can be run in it."""
        container = self.container
        if container is None or container.state != "running":
            raise Unavailable("the container does not run")
        return container

    @property
    def is_reached(self) -> bool:
        """Whether the way to the gateway's ports is open; on this machine it always is."""
        return self._once("tunnel", self._is_reached)

    @property
    def inspected(self) -> dict[str, Any]:
        """The container in the engine's own words."""
        return self._once("inspected", self._inspect)

    @property
    def wanted_kubeconfig(self) -> bytes:
        """The kubeconfig that this machine should have, going by the node."""
        return self._once("kubeconfig", self._wanted_kubeconfig)

    @property
    def credentials(self) -> Credentials:
        """The way to the API by what the node says now, whatever is on this machine's disk."""
        return kubeconfig.credentials(self.wanted_kubeconfig)

    def run(self, *argv: str) -> str:
        """What a command in the node printed; nothing where it failed."""
        _ = self.running
        outcome = run_in(self.engine, self.work.object, argv)
        return outcome.output if outcome.exit_code == 0 else ""

    def hear(self, path: str, credentials: Credentials | None = None) -> Heard:
        """Ask the API server; raises its errors."""
        _ = self.running
        if not self.is_reached:
            raise Unavailable("the tunnel to the gateway is down")
        found = credentials or self.credentials
        patient = _PATIENT.with_(deadline=2 * self.work.settings.timeouts.glance)
        return patient.call(self._heard, found, path)

    def items(self, path: str, **query: str) -> list[dict[str, Any]]:
        """All objects of a list, in pages; only where the API answers."""
        try:
            self._once("readyz", lambda: self.hear("/readyz"))
        except HoldfastError as error:
            raise Unavailable("the API server does not answer") from error
        key = f"{path}?{urlencode(query)}"
        return self._once(key, lambda: self._items(path, query))

    def _items(self, path: str, query: Mapping[str, str]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        more = ""
        while True:
            page = {**query, "limit": str(_PAGE), **({"continue": more} if more else {})}
            answer = msgspec.json.decode(self.hear(f"{path}?{urlencode(page)}").body, type=dict[str, Any])
            found += answer.get("items") or []
            more = (answer.get("metadata") or {}).get("continue") or ""
            if not more:
                return found

    def _work(self) -> Work:
        if self.name is None:
            raise Unavailable("there is no gateway")
        work = Work(self.name, self.resolved)
        try:
            _ = work.remembered
        except DamagedFileError:
            work.remembered = None  # what is remembered is then what the engine shows
        return work

    def _connect(self) -> Engine:
        if self.name is not None:
            return self.work.engine
        from holdfast.containers.engine import connect

        settings = self.resolved.settings
        return connect(timeout=settings.timeouts.engine, patience=patience_of(settings))

    def _info(self) -> dict[str, Any]:
        engine = self.engine
        before = time.time()
        with translated("asking the engine about itself", engine.address):
            info: dict[str, Any] = engine.client.info()
        return {**info, "asked": before, "answered": time.time()}

    def _ours(self, kind: str, find: Callable[[Engine, str], T | None]) -> T | None:
        engine, work = self.engine, self.work
        found: Any = self._once(kind, lambda: find(engine, work.object))
        if found is not None and found.labels.get(GATEWAY) != work.name:
            raise Unavailable(f"the {kind} of that name is not ours")
        return found  # type: ignore[no-any-return]

    def _is_reached(self) -> bool:
        tunnel = self.work.place.tunnel
        spec = self.work.spec
        return tunnel is None or tunnel.is_open((spec.port, spec.gateway_port), spec.listen)

    def _inspect(self) -> dict[str, Any]:
        if self.container is None:
            raise Unavailable("there is no container")
        with translated(f"looking for container {self.work.object}", self.engine.address):
            found: dict[str, Any] = self.engine.client.inspect_container(self.work.object)
        return found

    def _wanted_kubeconfig(self) -> bytes:
        if self.container is None:
            raise Unavailable("there is no container")
        work = self.work
        found = read_file(self.engine, work.object, work.profile.kubeconfig_path)
        if found is None:
            raise Unavailable("the node has no kubeconfig yet")
        return kubeconfig.for_host(found, name=work.name, server=work.server)

    def _heard(self, found: Credentials, path: str) -> Heard:
        before = time.time()
        answer = ask_by(found, self.work, path)
        return Heard(answer.body, answer.date, before, time.time())

    def _once(self, key: str, make: Callable[[], T]) -> T:
        with self._guard:
            future = self._facts.get(key)
            first = future is None
            if future is None:
                future = self._facts[key] = Future()
        if first:
            try:
                future.set_result(make())
            except BaseException as error:  # noqa: BLE001 (whoever waits for it gets it)
                future.set_exception(error)
        return future.result()  # type: ignore[no-any-return]
