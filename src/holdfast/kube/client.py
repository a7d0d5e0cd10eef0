"""Builds clients of the official library, without inner retries, and renews their credentials after a 401.

Clients from a kubeconfig reload that file, where rotated tokens and certificates appear. The in-cluster
client reads the service account token, which the kubelet rotates, for each request.
"""

from __future__ import annotations

import inspect
import os
import threading
import weakref
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.errors import InvalidArgumentError
from holdfast.kube.certificate_files import CertificateFiles
from holdfast.kube.client_limits import apply_client_limits, is_async_client
from holdfast.retry import current_deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    import kubernetes.aio.client as aio
    from kubernetes.client import ApiClient

R = TypeVar("R")


def run_sync(coroutine: Coroutine[Any, Any, R]) -> R:
    """Run a coroutine of this package in this thread, through a sync client.

    The package is written once, as coroutines. With a sync client every call blocks, so the coroutine never
    suspends and its first step is its last. No event loop is involved: this works in any thread, inside a
    running event loop and after a fork, and the coroutine shares the context (deadlines) of the caller.
    """
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: R = end.value
        return result
    coroutine.close()
    raise AssertionError("a coroutine of a sync client was suspended")


def api_client(kubeconfig: str | os.PathLike[str], *, context: str | None = None) -> ApiClient:
    """Create a `kubernetes.client.ApiClient` from a kubeconfig file.

    Args:
        kubeconfig: The file; it is loaded again after a 401.
        context: A context of the file; by default its current one.

    Raises:
        InvalidArgumentError: The file does not exist or is not a valid kubeconfig.
    """
    from kubernetes import client
    from kubernetes.config import kube_config

    created: ApiClient = run_sync(_create_client(client, kube_config, kubeconfig, context))
    return created


async def async_api_client(
    kubeconfig: str | os.PathLike[str], *, context: str | None = None
) -> aio.ApiClient:
    """`api_client` for `kubernetes.aio.client.ApiClient`; close it with `await close()`."""
    from kubernetes.aio import client
    from kubernetes.aio.config import kube_config

    created: aio.ApiClient = await _create_client(client, kube_config, kubeconfig, context)
    return created


async def _create_client(
    library: Any, loader: Any, kubeconfig: str | os.PathLike[str], context: str | None
) -> Any:
    path, certificates = _require_file(kubeconfig), CertificateFiles()

    async def load(configuration: Any) -> None:
        content = certificates.kubeconfig_with_files(path, context)
        if content is None:
            loading = loader.load_kube_config(str(path), context, configuration)
        else:
            loading = loader.KubeConfigLoader(
                content, context, config_base_path=str(path.parent.absolute())
            ).load_and_set(configuration)
        if inspect.isawaitable(loading):
            await loading

    configuration = library.Configuration()
    with _translate_load_errors(path, certificates):
        await load(configuration)
        created = library.ApiClient(configuration)
    apply_client_limits(created)
    # The in-memory files must live as long as the client: urllib3 reads them for each new connection.
    weakref.finalize(created, certificates.close)
    # A weak reference: the registry of credentials keeps `refresh` and must not keep the client alive.
    reference = weakref.ref(created)

    async def refresh() -> None:
        if (live := reference()) is not None:
            with _translate_load_errors(path):
                await load(live.configuration)
                _reload_certificates(live)

    credentials_for(created, refresh)
    return created


def _require_file(kubeconfig: str | os.PathLike[str]) -> Path:
    path = Path(kubeconfig).expanduser()
    if not path.is_file():
        raise InvalidArgumentError("kubeconfig", f"{path} does not exist or is not a file")
    return path


@contextmanager
def _translate_load_errors(path: Path, certificates: CertificateFiles | None = None) -> Iterator[None]:
    """Raise one error for everything that the official loader raises, without quoting the file."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - the loader raises errors of YAML, ssl, base64 and others
        if certificates is not None:
            certificates.close()
        # YAML errors quote the file, which contains keys and tokens. `from None` hides them in tracebacks.
        message = str(error).split("\n", 1)[0][:200] if type(error).__name__ == "ConfigException" else ""
        reason = f": {message}" if message else f" ({type(error).__name__})"
        raise InvalidArgumentError("kubeconfig", f"{path} is not a valid kubeconfig{reason}") from None


def _reload_certificates(client: Any) -> None:
    """Use the certificates of the reloaded configuration for new connections."""
    configuration, manager = client.configuration, client.rest_client.pool_manager
    if not is_async_client(client):
        manager.connection_pool_kw["cert_file"] = configuration.cert_file
        manager.connection_pool_kw["key_file"] = configuration.key_file
        manager.connection_pool_kw["ca_certs"] = configuration.ssl_ca_cert
        # New requests get new pools. Requests in flight keep their connections, which are not used again.
        manager.clear()
        return
    # The connections of aiohttp share one TLS context.
    tls = client.rest_client.ssl_context
    if configuration.cert_file:
        tls.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
    if configuration.ssl_ca_cert:
        # Adds a CA: `ssl` cannot remove the previous one from a context.
        tls.load_verify_locations(cafile=configuration.ssl_ca_cert)
    # Idle connections use the old certificate; aiohttp has no public method to close them.
    for idle in getattr(manager.connector, "_conns", {}).values():
        for protocol, *_ in idle:
            protocol.close()


async def in_cluster_async_client() -> aio.ApiClient:
    """Create a client for the cluster in which this process runs; close it with `await close()`."""
    from kubernetes.aio import client, config

    configuration = client.Configuration()
    try:
        config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    except config.ConfigException as error:
        raise InvalidArgumentError(
            "kubeconfig", "is required: this process does not run in a cluster"
        ) from error
    created = client.ApiClient(configuration)
    apply_client_limits(created)
    return created


# Credentials -----------------------------------------------------------------------------------------------

_credentials_by_client: weakref.WeakKeyDictionary[Any, ClientCredentials] = weakref.WeakKeyDictionary()
_registry_lock = threading.Lock()


def _reset_after_fork() -> None:
    """Replace the locks in a forked child: a thread of the parent may have held them."""
    global _registry_lock  # noqa: PLW0603
    _registry_lock = threading.Lock()
    for credentials in list(_credentials_by_client.values()):
        credentials.reset_locks()


os.register_at_fork(after_in_child=_reset_after_fork)


class ClientCredentials:
    """The credentials of one client; renewed once for all threads or tasks that received a 401."""

    def __init__(self, refresh: Callable[[], Any] | None, *, is_async: bool = False) -> None:
        self.generation = 0
        self._is_async = is_async
        self.refresh = refresh
        self.reset_locks()

    def reset_locks(self) -> None:
        self._lock = threading.Lock()
        if self._is_async:
            import asyncio  # not at the top: with a sync client, a command would load it in vain

            # Binds to an event loop at its first contended wait, so it can be created in any thread.
            self._async_lock = asyncio.Lock()

    async def renew(self, rejected_generation: int) -> bool:
        """Refresh unless another caller has done so since; return whether a new request makes sense."""
        if self.refresh is None:
            return False
        # Another caller may hold the lock for as long as its refresh takes; this call has its own deadline.
        deadline = current_deadline()
        seconds = None if deadline is None else deadline.remaining()
        if self._is_async:
            from asyncio import timeout

            async with timeout(seconds), self._async_lock:
                await self._refresh_once(rejected_generation)
            return True
        if not self._lock.acquire(timeout=-1 if seconds is None else seconds):
            return False
        try:
            await self._refresh_once(rejected_generation)
        finally:
            self._lock.release()
        return True

    async def _refresh_once(self, rejected_generation: int) -> None:
        # Called with the lock held. Another generation means that a caller has refreshed since the request
        # was sent, so the 401 belongs to the old credentials.
        if self.refresh is None or self.generation != rejected_generation:
            return
        if self._is_async and not inspect.iscoroutinefunction(self.refresh):
            from asyncio import to_thread

            # A plain function may block the event loop.
            result = await to_thread(self.refresh)
        else:
            result = self.refresh()
        if inspect.isawaitable(result):
            await result
        # Only after success: if a refresh fails, the next caller tries again.
        self.generation += 1


def credentials_for(api_client: Any, refresh: Callable[[], Any] | None = None) -> ClientCredentials:
    """The credentials of a client, shared by all its sessions; another `refresh` function replaces them."""
    # Threads that open sessions at the same time must share one object, or each would refresh.
    with _registry_lock:
        credentials = _credentials_by_client.get(api_client)
        if credentials is None or refresh not in {None, credentials.refresh}:
            credentials = _credentials_by_client[api_client] = ClientCredentials(
                refresh or _configuration_hook(api_client), is_async=is_async_client(api_client)
            )
        return credentials


def _configuration_hook(api_client: Any) -> Callable[[], Any] | None:
    """The refresh hook of the client's configuration, which the client also calls before each request."""
    if getattr(api_client.configuration, "refresh_api_key_hook", None) is None:
        return None
    # A weak reference: the registry maps the client to this function, and must not keep the client alive.
    reference = weakref.ref(api_client)

    def refresh() -> Any:
        client = reference()
        return None if client is None else client.configuration.refresh_api_key_hook(client.configuration)

    return refresh
