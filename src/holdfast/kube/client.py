"""Builds clients of the official library, without inner retries, and renews their credentials after a 401.

Clients from a kubeconfig reload that file, where rotated tokens and certificates appear. The in-cluster
client reads the service account token, which the kubelet rotates, for each request.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
import weakref
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.errors import InvalidArgumentError
from holdfast.kube.certificate_files import CertificateFiles
from holdfast.kube.client_limits import apply_client_limits, is_async_client
from holdfast.retry import current_deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import kubernetes.aio.client as aio
    from kubernetes.client import ApiClient


def api_client(kubeconfig: str | os.PathLike[str], *, context: str | None = None) -> ApiClient:
    """Create a `kubernetes.client.ApiClient` from a kubeconfig file."""
    from kubernetes import client
    from kubernetes.config import kube_config

    path, certificates = _require_file(kubeconfig), CertificateFiles()
    official: Any = kube_config

    def load(configuration: Any) -> None:
        content = certificates.kubeconfig_with_files(path, context)
        if content is None:
            official.load_kube_config(str(path), context, configuration)
        else:
            official.KubeConfigLoader(
                content, context, config_base_path=str(path.parent.absolute())
            ).load_and_set(configuration)

    configuration = client.Configuration()
    with _translate_load_errors(path, certificates):
        load(configuration)
        configuration.retries = False
        created = client.ApiClient(configuration)
    apply_client_limits(created)
    weakref.finalize(created, certificates.close)
    reference = weakref.ref(created)

    def refresh() -> None:
        if (live := reference()) is not None:
            load(live.configuration)
            _reload_certificates(live)

    credentials_for(created, refresh)
    return created


async def async_api_client(
    kubeconfig: str | os.PathLike[str], *, context: str | None = None
) -> aio.ApiClient:
    """Create a `kubernetes.aio.client.ApiClient` from a kubeconfig file; close it with `await close()`."""
    from kubernetes.aio import client
    from kubernetes.aio.config import kube_config

    path, certificates = _require_file(kubeconfig), CertificateFiles()
    official: Any = kube_config

    async def load(configuration: Any) -> None:
        content = certificates.kubeconfig_with_files(path, context)
        if content is None:
            await official.load_kube_config(str(path), context, configuration)
        else:
            await official.KubeConfigLoader(
                content, context, config_base_path=str(path.parent.absolute())
            ).load_and_set(configuration)

    configuration = client.Configuration()
    with _translate_load_errors(path, certificates):
        await load(configuration)
        created = client.ApiClient(configuration)
    apply_client_limits(created)
    weakref.finalize(created, certificates.close)
    reference = weakref.ref(created)

    async def refresh() -> None:
        if (live := reference()) is not None:
            await load(live.configuration)
            _reload_ssl_context(live)

    credentials_for(created, refresh)
    return created


def _require_file(kubeconfig: str | os.PathLike[str]) -> Path:
    path = Path(kubeconfig).expanduser()
    if not path.is_file():
        raise InvalidArgumentError("kubeconfig", f"{path} does not exist or is not a file")
    return path


@contextmanager
def _translate_load_errors(path: Path, certificates: CertificateFiles) -> Iterator[None]:
    """Raise one error for everything that the official loader raises, without quoting the file."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - the loader raises errors of YAML, ssl, base64 and others
        certificates.close()
        message = str(error).split("\n", 1)[0][:200] if type(error).__name__ == "ConfigException" else ""
        reason = f": {message}" if message else f" ({type(error).__name__})"
        raise InvalidArgumentError("kubeconfig", f"{path} is not a valid kubeconfig{reason}") from None


def _reload_certificates(client: Any) -> None:
    """Use the certificates of the reloaded configuration for new connections."""
    configuration, manager = client.configuration, client.rest_client.pool_manager
    manager.connection_pool_kw["cert_file"] = configuration.cert_file
    manager.connection_pool_kw["key_file"] = configuration.key_file
    manager.connection_pool_kw["ca_certs"] = configuration.ssl_ca_cert
    manager.clear()


def _reload_ssl_context(client: Any) -> None:
    """The same for aiohttp, whose connections share one TLS context."""
    configuration, context = client.configuration, client.rest_client.ssl_context
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
    if configuration.ssl_ca_cert:
        context.load_verify_locations(cafile=configuration.ssl_ca_cert)
    _close_idle_connections(client.rest_client.pool_manager)


def _close_idle_connections(session: Any) -> None:
    """Close connections that use the old certificate; aiohttp has no public method for this."""
    for idle in getattr(session.connector, "_conns", {}).values():
        for protocol, *_ in idle:
            protocol.close()


SERVICE_ACCOUNT_DIR = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""The directory with the token, CA certificate and namespace of a pod's service account."""


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
        self.is_async = is_async
        self.refresh = refresh
        self.reset_locks()

    def reset_locks(self) -> None:
        self._lock = threading.Lock()
        self._async_lock = asyncio.Lock()

    def renew(self, rejected_generation: int) -> bool:
        """Refresh unless another thread has done so since; return whether a new request makes sense."""
        if self.refresh is None:
            return False
        deadline = current_deadline()
        if not self._lock.acquire(timeout=-1 if deadline is None else deadline.remaining()):
            return False
        try:
            if self.generation == rejected_generation:
                self.refresh()
                self.generation += 1
        finally:
            self._lock.release()
        return True

    async def arenew(self, rejected_generation: int) -> bool:
        """`renew` for asyncio; a plain refresh function runs in a thread."""
        if self.refresh is None:
            return False
        async with self._async_lock:
            if self.generation == rejected_generation:
                if inspect.iscoroutinefunction(self.refresh):
                    await self.refresh()
                elif inspect.isawaitable(result := await asyncio.to_thread(self.refresh)):
                    await result
                self.generation += 1
            return True


def credentials_for(api_client: Any, refresh: Callable[[], Any] | None = None) -> ClientCredentials:
    """The credentials of a client, shared by all its sessions; another `refresh` function replaces them."""
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
