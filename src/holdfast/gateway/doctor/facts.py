"""Facts about one gateway that several checks need; each is collected once, by the first check that asks.

A fact that cannot be collected raises `FactUnavailable` with the reason. One check reports the cause as a
finding; all others that need the fact are skipped.
"""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import urlencode

import msgspec

from holdfast import home
from holdfast.containers import (
    GATEWAY,
    ContainerView,
    NetworkView,
    VolumeView,
    find_container,
    find_network,
    find_volume,
    run_in_container,
    translate_errors,
)
from holdfast.errors import ApiUnreachableError, CorruptFileError, HoldfastError, TemporaryError
from holdfast.gateway.cluster import kubeconfig, kubernetes_get
from holdfast.gateway.connection import desired_kubeconfig
from holdfast.gateway.context import GatewayContext
from holdfast.gateway.doctor.findings import Finding, FixedBy, note, problem
from holdfast.gateway.hosts import LocalHost
from holdfast.gateway.registry import active_gateway, known_gateway_names, requested_gateway_name
from holdfast.gateway.settings import ResolvedSettings, Settings, resolve_settings
from holdfast.gateway.spec import check_name
from holdfast.retry import Policy, constant

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.containers import ContainerEngine
    from holdfast.gateway.cluster import KubeCredentials
    from holdfast.kube import HttpsResponse

T = TypeVar("T")

OBJECT_FINDERS: dict[str, Callable[[ContainerEngine, str], Any]] = {
    "container": find_container,
    "network": find_network,
    "volume": find_volume,
}
_PAGE_SIZE = 100
# A busy machine may drop a single request; a server that is down is reported after two timeouts.
_READ_RETRY = Policy(attempts=3, backoff=constant(0.2), retry_on=ApiUnreachableError)


class FactUnavailable(Exception):  # noqa: N818 (not an error of the product: it skips a check)
    """The object that a check inspects does not exist or cannot be read; another check reports why."""


class cached_fact(Generic[T]):  # noqa: N801 (used like functools.cached_property)
    """A property of `GatewayFacts` that is computed once, errors included; other threads wait for it."""

    def __init__(self, compute: Callable[[GatewayFacts], T]) -> None:
        self._compute = compute

    def __get__(self, facts: GatewayFacts, owner: type) -> T:
        return facts.compute_once(self._compute.__name__, lambda: self._compute(facts))


class GatewayFacts:
    """The facts of one gateway; without a name, only those of this machine and its container engine."""

    def __init__(
        self,
        name: str | None,
        resolved: ResolvedSettings | None = None,
        initial_findings: tuple[Finding, ...] = (),
    ) -> None:
        self.name = name
        self.initial_findings = initial_findings
        self.resolved = resolved or ResolvedSettings(settings=Settings(), origins={})
        self._cache: dict[str, Future[Any]] = {}

    @cached_fact
    def gateway(self) -> GatewayContext:
        """The gateway; corrupt metadata counts as no metadata."""
        if self.name is None:
            raise FactUnavailable("no gateway is selected")
        gateway = GatewayContext(self.name, self.resolved)
        try:
            _ = gateway.metadata
        except CorruptFileError:
            # Replaces the cached property, which would raise again for every check that reads the metadata.
            gateway.metadata = None
        return gateway

    @property
    def engine(self) -> ContainerEngine:
        """The connected container engine; its own check reports why it cannot be used."""
        try:
            return self.connected_engine
        except Exception as error:
            raise FactUnavailable("the container engine cannot be used") from error

    @cached_fact
    def connected_engine(self) -> ContainerEngine:
        """The container engine; raises the error of a failed connection."""
        if self.name is None:
            return LocalHost(self.resolved.settings).engine()
        return self.gateway.engine

    @cached_fact
    def engine_info(self) -> dict[str, Any]:
        """The engine's description of itself and its host."""
        with translate_errors("reading the container engine's info", self.engine.address):
            info: dict[str, Any] = self.engine.client.info()
        return info

    @property
    def container(self) -> ContainerView | None:
        return self._find_owned("container")  # type: ignore[no-any-return]

    @property
    def network(self) -> NetworkView | None:
        return self._find_owned("network")  # type: ignore[no-any-return]

    @property
    def volume(self) -> VolumeView | None:
        return self._find_owned("volume")  # type: ignore[no-any-return]

    @cached_fact
    def parked_container(self) -> ContainerView | None:
        """The old container of an unfinished upgrade."""
        _ = self.engine
        return self.gateway.parked_container()

    @property
    def running_container(self) -> ContainerView:
        """The container, if commands can run in it."""
        container = self.container
        if container is None or container.state != "running":
            raise FactUnavailable("the container does not run")
        return container

    @cached_fact
    def is_tunnel_open(self) -> bool:
        """Whether the gateway's ports can be reached; always true for a gateway on this machine."""
        tunnel, spec = self.gateway.host.tunnel, self.gateway.spec
        return tunnel is None or tunnel.is_open((spec.port, spec.gateway_port), spec.listen)

    @cached_fact
    def container_inspect(self) -> dict[str, Any]:
        """The container as the engine's inspect API returns it."""
        if self.container is None:
            raise FactUnavailable("the container does not exist")
        with translate_errors(f"inspecting container {self.gateway.object_name}", self.engine.address):
            inspected: dict[str, Any] = self.engine.client.inspect_container(self.gateway.object_name)
        return inspected

    @cached_fact
    def expected_kubeconfig(self) -> bytes:
        """The kubeconfig that this machine should have, made from the node's."""
        if self.container is None:
            raise FactUnavailable("the container does not exist")
        try:
            return desired_kubeconfig(self.gateway)
        except TemporaryError as error:
            raise FactUnavailable(error.message) from error

    @property
    def credentials(self) -> KubeCredentials:
        """The API credentials of the node's kubeconfig, not of the copy on this machine."""
        return kubeconfig.parse_credentials(self.expected_kubeconfig, self.gateway.name)

    @cached_fact
    def local_credentials(self) -> KubeCredentials | None:
        """The API credentials of this machine's kubeconfig; None if it is missing or damaged."""
        try:
            return kubeconfig.parse_credentials(self.gateway.files.kubeconfig.read_bytes(), self.gateway.name)
        except (OSError, CorruptFileError):
            return None

    def run_in_node(self, *argv: str) -> str:
        """Run a command in the node and return its output; empty if it failed."""
        _ = self.running_container
        result = run_in_container(self.engine, self.gateway.object_name, argv)
        return result.output if result.exit_code == 0 else ""

    def api_get(self, path: str, credentials: KubeCredentials | None = None) -> HttpsResponse:
        """Send a GET request to the API server.

        Raises:
            FactUnavailable: The container does not run or the tunnel is down.
            HoldfastError: The API server does not answer or rejects the request.
        """
        self.require_connection()
        return self.read_policy.call(kubernetes_get, self.gateway, path, credentials or self.credentials)

    @property
    def read_policy(self) -> Policy:
        """The retry policy of one request to an API of the gateway."""
        return _READ_RETRY.replace(deadline=2 * self.gateway.settings.timeouts.glance)

    def require_connection(self) -> None:
        """Raise `FactUnavailable` unless the container runs and the tunnel is open."""
        _ = self.running_container
        if not self.is_tunnel_open:
            raise FactUnavailable("the tunnel to the gateway is down")

    def list_objects(self, path: str) -> list[dict[str, Any]]:
        """List Kubernetes objects, page by page, if the API server answers."""
        # One request decides for all lists: while the API is down, each list would wait for its own timeouts.
        try:
            self.compute_once("readyz", lambda: self.api_get("/readyz"))
        except HoldfastError as error:
            raise FactUnavailable("the API server does not answer") from error
        return self.compute_once(path, lambda: self._list_pages(path))

    def find_object(self, kind: str) -> Any:
        """The container, network or volume with the gateway's name, also of another owner, or None."""
        return self.compute_once(kind, lambda: OBJECT_FINDERS[kind](self.engine, self.gateway.object_name))

    def is_foreign(self, view: Any) -> bool:
        """Whether an object exists, but does not have the gateway's label."""
        return view is not None and view.labels.get(GATEWAY) != self.name

    def compute_once(self, key: str, compute: Callable[[], T]) -> T:
        """Return the value under a key; the first caller computes it, concurrent callers wait for it."""
        # A fact may read other facts, but never itself: it would wait for its own result.
        future: Future[T] = Future()
        # `setdefault` is atomic: of several threads, only the one that stored its future computes the value.
        stored: Future[T] = self._cache.setdefault(key, future)
        if stored is future:
            try:
                future.set_result(compute())
            except BaseException as error:  # noqa: BLE001 (every waiting thread gets it)
                # Errors are kept as well: an engine that is down costs one timeout, not one for each check.
                future.set_exception(error)
        return stored.result()

    def _list_pages(self, path: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = []
        token = ""
        while True:
            query = urlencode({"limit": _PAGE_SIZE, "continue": token})
            page = msgspec.json.decode(self.api_get(f"{path}?{query}").body)
            items += page["items"] or ()
            token = page["metadata"].get("continue", "")
            if not token:
                return items

    def _find_owned(self, kind: str) -> Any:
        view = self.find_object(kind)
        if self.is_foreign(view):
            raise FactUnavailable(f"holdfast did not create the {kind} of that name")
        return view


def load_facts(requested: str | None) -> GatewayFacts:
    """Choose the gateway: the named one, else that of HOLDFAST_GATEWAY, the active one, or the only one.

    Settings or files that cannot be read become initial findings, and the checks run without them.

    Raises:
        UsageError: The requested name is not a valid gateway name.
    """
    findings: list[Finding] = []
    resolved = None
    try:
        resolved = resolve_settings()
    except HoldfastError as error:
        cause = f"{error.message}."
        findings.append(problem("settings-bad", "settings", cause, fixed_by="person", repair=error.hint))
    name = requested_gateway_name(requested) or _resolve_name(findings)
    return GatewayFacts(name, resolved, tuple(findings))


def _resolve_name(findings: list[Finding]) -> str | None:
    try:
        active = active_gateway()
        if active is not None:
            return check_name(active)
    except HoldfastError as error:
        path = str(home.config_dir() / "active")
        cause = f"The file that names the active gateway is not valid: {error}."
        recorded = known_gateway_names()
        fixed_by: FixedBy = "command" if len(recorded) == 1 else "person"
        if fixed_by == "command":
            repair = f"Run `holdfast use {recorded[0]}`: it rewrites the file."
        elif recorded:
            repair = f"Run `holdfast use NAME` with one of these names: {', '.join(recorded)}."
        else:
            repair = "Remove the file."
        findings.append(problem("active-damaged", path, cause, fixed_by=fixed_by, repair=repair))
    names = []
    for directory in sorted((home.config_dir() / "gateways").glob("*/")):  # with or without metadata
        with suppress(HoldfastError):
            names.append(check_name(directory.name))
    if len(names) == 1:
        return names[0]
    if names:
        cause = f"No gateway is named and none is active. Known gateways: {', '.join(names)}."
    else:
        cause = "No gateway exists yet; only the container engine and this machine were checked."
    repair = "Name one in the command." if names else "Run `holdfast up` to create one."
    findings.append(note("no-gateway", "this machine", cause, repair=repair))
    return None
