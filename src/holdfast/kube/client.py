"""Builds clients of the official library from a kubeconfig: no retries inside, new credentials at hand.

A 401 makes them read their kubeconfig again, which is where rotated tokens and certificates turn up. Not
here: any request.
"""

from __future__ import annotations

import weakref
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.errors import ArgumentError
from holdfast.kube.certificates import Certificates
from holdfast.kube.credentials import credentials_of
from holdfast.kube.harden import harden

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    import kubernetes.aio.client as aio
    from kubernetes.client import ApiClient


def api_client(kubeconfig: str | os.PathLike[str], *, context: str | None = None) -> ApiClient:
    """A client in threads for the cluster of a kubeconfig file."""
    from kubernetes import client
    from kubernetes.config import kube_config

    path, certificates = _existing(kubeconfig), Certificates()
    official: Any = kube_config

    def load(configuration: Any) -> None:
        content = certificates.loadable(path, context)
        if content is None:
            official.load_kube_config(str(path), context, configuration)
        else:
            official.KubeConfigLoader(
                content, context, config_base_path=str(path.parent.absolute())
            ).load_and_set(configuration)

    configuration = client.Configuration()
    with _readable(path, certificates):
        load(configuration)
        configuration.retries = False
        made = client.ApiClient(configuration)
    harden(made)
    weakref.finalize(made, certificates.close)
    kept = weakref.ref(made)

    def refresh() -> None:
        living = kept()
        if living is not None:
            load(living.configuration)
            _renew_certificates(living)

    credentials_of(made, refresh)
    return made


async def async_api_client(
    kubeconfig: str | os.PathLike[str], *, context: str | None = None
) -> aio.ApiClient:
    """A client in tasks for the cluster of a kubeconfig file; close it with `await close()`."""
    from kubernetes.aio import client
    from kubernetes.aio.config import kube_config

    path, certificates = _existing(kubeconfig), Certificates()
    official: Any = kube_config

    async def load(configuration: Any) -> None:
        content = certificates.loadable(path, context)
        if content is None:
            await official.load_kube_config(str(path), context, configuration)
        else:
            await official.KubeConfigLoader(
                content, context, config_base_path=str(path.parent.absolute())
            ).load_and_set(configuration)

    configuration = client.Configuration()
    with _readable(path, certificates):
        await load(configuration)
        made = client.ApiClient(configuration)
    harden(made)
    weakref.finalize(made, certificates.close)
    kept = weakref.ref(made)

    async def refresh() -> None:
        living = kept()
        if living is not None:
            await load(living.configuration)
            _renew_context(living)

    credentials_of(made, refresh)
    return made


def _existing(kubeconfig: str | os.PathLike[str]) -> Path:
    path = Path(kubeconfig).expanduser()
    if not path.is_file():
        raise ArgumentError("kubeconfig", f"there is no file {path}")
    return path


@contextmanager
def _readable(path: Path, certificates: Certificates) -> Iterator[None]:
    """Whatever the official loader says of a file that it cannot use, said in one line; nothing is quoted."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - the loader raises what its parts raise
        certificates.close()
        said = str(error).split("\n", 1)[0][:200] if type(error).__name__ == "ConfigException" else ""
        why = f": {said}" if said else f" ({type(error).__name__})"
        raise ArgumentError("kubeconfig", f"{path} is no kubeconfig that can be used{why}") from None


def _renew_certificates(made: Any) -> None:
    """Let new connections use the client certificate that the configuration names now."""
    configuration, manager = made.configuration, made.rest_client.pool_manager
    manager.connection_pool_kw["cert_file"] = configuration.cert_file
    manager.connection_pool_kw["key_file"] = configuration.key_file
    manager.connection_pool_kw["ca_certs"] = configuration.ssl_ca_cert
    manager.clear()


def _renew_context(made: Any) -> None:
    """The same in tasks: the TLS context is shared by all connections, and new ones read it anew."""
    configuration, context = made.configuration, made.rest_client.ssl_context
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
    if configuration.ssl_ca_cert:
        context.load_verify_locations(cafile=configuration.ssl_ca_cert)
    _close_idle(made.rest_client.pool_manager)


def _close_idle(session: Any) -> None:
    """Let no request use a connection with the old certificate; aiohttp itself has no call for that."""
    for idle in getattr(session.connector, "_conns", {}).values():
        for protocol, *_ in idle:
            protocol.close()
