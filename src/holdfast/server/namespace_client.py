"""Kubernetes client of the server for one namespace: pages, logs, and streams into pods."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec
from kubernetes.aio.client.exceptions import ApiException

from holdfast.api import API_VERSION, EXTENSIONS_API_VERSION
from holdfast.errors import ApiRequestRejectedError, ObjectConflictError, TemporaryError
from holdfast.kube import (
    ApiRequest,
    AsyncObjects,
    ObjectReference,
    Verb,
    aiohttp_session,
    async_api_client,
    in_cluster_async_client,
    open_session,
)
from holdfast.retry import Policy, exponential
from holdfast.server.errors import PodResponseLostError, not_found
from holdfast.server.streams import UpgradeRejectedError, open_exec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from holdfast.server.sandboxes import PodTarget
    from holdfast.server.streams import SpdyExecStream

_CONNECT_TIMEOUT = 15.0
_PORT_FORWARD_PROTOCOL = "v4.channel.k8s.io"
_MAX_FRAME_BYTES = 8 * 1024 * 1024
_SWITCHING_PROTOCOLS = 101
_UNAUTHORIZED = (401, 403)
_RESOURCES = {
    "Sandbox": (API_VERSION, "sandboxes"),
    "SandboxClaim": (EXTENSIONS_API_VERSION, "sandboxclaims"),
    "SandboxTemplate": (EXTENSIONS_API_VERSION, "sandboxtemplates"),
    "SandboxWarmPool": (EXTENSIONS_API_VERSION, "sandboxwarmpools"),
    "NetworkPolicy": ("networking.k8s.io/v1", "networkpolicies"),
}
"""API version and plural of the kinds that are not in the core group."""


class ObjectPage(msgspec.Struct, frozen=True):
    """One page of objects, the token of the next page, and the resource version of the list."""

    items: list[dict[str, Any]]
    continue_token: str | None
    resource_version: str


class _PodUnknownError(TemporaryError):
    """A kubelet that has just started does not know a running pod yet."""


# The kubelet reports that before it looks up the container, so no command has started.
_POD_UNKNOWN_MESSAGE = b"pod does not exist"
_REOPEN_POLICY = Policy(
    attempts=None, deadline=15.0, backoff=exponential(0.1, cap=1.0), retry_on=_PodUnknownError
)


class NamespaceClient:
    """Access to the objects and pods of one namespace.

    Args:
        api_client: Client of the cluster.
        namespace: The namespace.
        open_timeout: Seconds until a stream into a pod must be open.
    """

    def __init__(self, api_client: Any, namespace: str, *, open_timeout: float = 60.0) -> None:
        # Every stream occupies a connection; the limits per client bound their number.
        api_client.rest_client.maxsize = 0
        self._client, self.namespace, self._open_timeout = api_client, namespace, open_timeout
        self.objects = AsyncObjects(api_client)
        self._session = open_session(api_client)

    async def close(self) -> None:
        """Close all connections to the cluster."""
        await self._client.close()

    async def list_page(
        self, kind: str, limit: int, continue_token: str | None, label_selector: str | None
    ) -> ObjectPage:
        """List one page of the objects of a kind of the sandbox API."""
        api_version, plural = _RESOURCES[kind]
        query = {"limit": str(limit), "continue": continue_token, "labelSelector": label_selector}
        request = ApiRequest(Verb.READ, self._collection_path(kind), plural, query=query)
        reference = ObjectReference(api_version, kind, None, self.namespace)
        response = await self._session.request("list", reference, request)
        metadata = response.get("metadata") or {}
        return ObjectPage(
            list(response.get("items") or ()),
            metadata.get("continue") or None,
            str(metadata.get("resourceVersion") or ""),
        )

    async def list_events(self, object_name: str, limit: int) -> list[dict[str, Any]]:
        """List at most `limit` events of the objects with this name, of any kind."""
        query = {"limit": str(limit), "fieldSelector": f"involvedObject.name={object_name}"}
        path = f"/api/v1/namespaces/{self.namespace}/events"
        request = ApiRequest(Verb.READ, path, "events", query=query)
        reference = ObjectReference("v1", "Event", None, self.namespace)
        response = await self._session.request("list", reference, request)
        return list(response.get("items") or ())

    async def get(self, kind: str, name: str) -> dict[str, Any] | None:
        """Return an object, or None if it does not exist."""
        api_version, _ = _RESOURCES.get(kind, (None, ""))
        return await self.objects.get(kind, name, namespace=self.namespace, api_version=api_version)

    async def require(self, kind: str, name: str) -> dict[str, Any]:
        """Return an object.

        Raises:
            ApiError: 404 if it does not exist.
        """
        obj = await self.get(kind, name)
        if obj is None:
            raise not_found(kind, name)
        return obj

    async def delete(self, obj: Mapping[str, Any]) -> bool:
        """Delete an object that was read, and in the background what it owns; False if it was gone."""
        metadata = obj["metadata"]
        result = await self.objects.delete(
            obj["kind"],
            metadata["name"],
            namespace=self.namespace,
            api_version=obj["apiVersion"],
            # Another client may have deleted and created it again; that object must not be deleted.
            uid=metadata["uid"],
            propagation="Background",
        )
        return result.effect == "deleted"

    async def patch(self, obj: Mapping[str, Any], patch: dict[str, Any]) -> dict[str, Any] | None:
        """Merge-patch an object that was read; None if it no longer exists.

        Raises:
            ObjectConflictError: the object was deleted and created again, or has another resourceVersion
                than the patch.
        """
        metadata = obj["metadata"]
        return await self.objects.patch(
            obj["kind"],
            metadata["name"],
            patch,
            namespace=self.namespace,
            api_version=obj["apiVersion"],
            uid=metadata["uid"],
        )

    async def dry_run_create(self, manifest: dict[str, Any]) -> None:
        """Validate an object with a server-side dry run, before objects that it depends on are created."""
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        api_version, plural = _RESOURCES[kind]
        query = {"dryRun": "All", "fieldValidation": "Strict"}
        request = ApiRequest(Verb.QUERY, self._collection_path(kind), plural, "POST", query, manifest)
        reference = ObjectReference(api_version, kind, name, self.namespace)
        # The caller compares an existing object itself.
        with suppress(ObjectConflictError):
            await self._session.request("validate", reference, request)

    def _collection_path(self, kind: str) -> str:
        api_version, plural = _RESOURCES[kind]
        return f"/apis/{api_version}/namespaces/{self.namespace}/{plural}"

    async def stream_log(self, pod: str, query: list[tuple[str, str]]) -> AsyncIterator[bytes]:
        """Stream a pod's log. Errors are raised before the first chunk."""
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}/log"
        reference = ObjectReference("v1", "Pod", pod, self.namespace)
        method = ApiRequest(Verb.READ, path, "pods").method
        response = await self._session.call(
            Verb.READ,
            "read the log of",
            reference,
            lambda: self._session.attempt(method, lambda _: self._open_response(path, query)),
        )
        return _iter_log_chunks(response)

    async def open_exec_stream(
        self, target: PodTarget, argv: list[str], *, stdin: bool = False, tty: bool = False
    ) -> SpdyExecStream:
        """Run a command in a container; try again while the kubelet does not know the pod yet.

        Raises:
            TemporaryError: no command has started.
            ApiRequestRejectedError: the cluster does not accept the credentials, or forbids the stream.
            PodResponseLostError: the command may have started.
        """
        query = [("stdin", str(stdin).lower()), ("stdout", "true"), ("stderr", str(not tty).lower())]
        query += [("tty", str(tty).lower()), ("container", target.container)]
        query += [("command", word) for word in argv]
        return await _REOPEN_POLICY.acall(self._open_exec_once, target.pod, query, stdin, tty)

    async def _open_exec_once(
        self, pod: str, query: list[tuple[str, str]], stdin: bool, tty: bool
    ) -> SpdyExecStream:
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}/exec"
        _, url, headers, *_ = await self._serialize("POST", path, query)
        try:
            tls = self._client.rest_client.ssl_context
            return await open_exec(url, headers, tls, self._open_timeout, stdin=stdin, tty=tty)
        except UpgradeRejectedError as error:
            if _POD_UNKNOWN_MESSAGE in error.body:
                raise _PodUnknownError(f"pod {pod}: the kubelet does not know it yet") from error
            raise _open_error(pod, error) from error
        except (OSError, EOFError) as error:
            raise _open_error(pod, error) from error

    async def open_port_forward(self, target: PodTarget, port: int) -> aiohttp.ClientWebSocketResponse[bool]:
        """Open a connection to a port of a pod."""
        query = [("ports", str(port))]
        return await self._open_websocket(target.pod, "portforward", query, _PORT_FORWARD_PROTOCOL)

    async def _open_websocket(
        self, pod: str, subresource: str, query: list[tuple[str, str]], protocol: str
    ) -> aiohttp.ClientWebSocketResponse[bool]:
        """Open a WebSocket into a pod, without retries: a lost attempt may have started the command.

        Raises:
            TemporaryError: the connection failed or was rejected before anything started.
            ApiRequestRejectedError: the cluster does not accept the credentials, or forbids the stream.
            PodResponseLostError: the command may have started.
        """
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}/{subresource}"
        _, url, headers, *_ = await self._serialize("GET", path, query)
        # aiohttp itself would resend a GET whose connection was cut, and run the command twice.
        session = aiohttp_session(self._client.rest_client)
        try:
            async with asyncio.timeout(self._open_timeout):
                return await session.ws_connect(  # type: ignore[no-any-return]
                    url,
                    headers=headers,
                    protocols=(protocol,),
                    max_msg_size=_MAX_FRAME_BYTES,
                    timeout=aiohttp.ClientWSTimeout(ws_close=2.0),
                )
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _open_error(pod, error) from error

    async def _open_response(self, path: str, query: list[tuple[str, str]]) -> Any:
        serialized = await self._serialize("GET", path, query)
        # No total timeout: a followed log lasts as long as its container.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT)
        response = await self._client.call_api(*serialized, _request_timeout=timeout)
        if response.status >= 300:  # noqa: PLR2004 (a success is 2xx)
            body = (await response.read()).decode("utf-8", "replace")
            raise ApiException.from_response(http_resp=response, body=body, data=None)
        return response.response

    async def _serialize(self, method: str, path: str, query: list[tuple[str, str]]) -> Any:
        return await self._client.param_serialize(
            method, path, query_params=query, header_params={}, auth_settings=["BearerToken"]
        )


def _open_error(pod: str, error: Exception) -> Exception:
    """The error of a stream that could not be opened."""
    if (
        isinstance(error, aiohttp.WSServerHandshakeError | UpgradeRejectedError)
        and error.status in _UNAUTHORIZED
    ):
        return ApiRequestRejectedError(f"pod {pod}: the cluster rejected the stream with HTTP {error.status}")
    if _is_not_started(error):
        return TemporaryError(f"pod {pod}: the cluster did not open the stream ({error})")
    return PodResponseLostError(f"pod {pod}: the connection was lost while it was opened")


def _is_not_started(error: Exception) -> bool:
    # Without status 101, the API server has not opened the stream. A connection that was never established
    # has carried no request. After any other error, the command may be running.
    if isinstance(error, aiohttp.WSServerHandshakeError):
        return error.status != _SWITCHING_PROTOCOLS
    return isinstance(
        error,
        UpgradeRejectedError
        | aiohttp.ClientConnectorError
        | aiohttp.ConnectionTimeoutError
        | ConnectionRefusedError,
    )


async def _iter_log_chunks(response: Any) -> AsyncIterator[bytes]:
    try:
        async for chunk in response.content.iter_any():
            yield chunk
    finally:
        response.close()


async def connect_cluster(kubeconfig: Path | None, namespace: str) -> NamespaceClient:
    """Connect to the cluster of a kubeconfig, or to the cluster of this pod."""
    api_client = await (async_api_client(kubeconfig) if kubeconfig else in_cluster_async_client())
    return NamespaceClient(api_client, namespace)
