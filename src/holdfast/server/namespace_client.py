"""Kubernetes client of the server for one namespace: pages, logs, and WebSockets into pods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.api import API_VERSION, EXTENSIONS_API_VERSION
from holdfast.errors import ObjectConflictError, TemporaryError
from holdfast.kube import (
    ApiRequest,
    AsyncObjects,
    ObjectReference,
    Verb,
    aiohttp_session,
    open_session,
)
from holdfast.server.errors import PodResponseLostError
from holdfast.server.streams import RetryingExecStream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import aiohttp

_CONNECT_TIMEOUT = 15.0
_EXEC_PROTOCOL = "v5.channel.k8s.io"
PORT_FORWARD_PROTOCOL = "v4.channel.k8s.io"
_MAX_FRAME_BYTES = 8 * 1024 * 1024
_SWITCHING_PROTOCOLS = 101


class ObjectPage(msgspec.Struct, frozen=True):
    """One page of objects and the token of the next page."""

    items: list[dict[str, Any]]
    continue_token: str | None


class NamespaceClient:
    """Access to the objects and pods of one namespace."""

    def __init__(self, api_client: Any, namespace: str) -> None:
        # Every stream occupies a connection; the limits per client bound their number.
        api_client.rest_client.maxsize = 0
        self._client, self.namespace = api_client, namespace
        self.objects = AsyncObjects(api_client)
        self._session = open_session(api_client)

    async def close(self) -> None:
        await self._client.close()

    async def list_sandboxes(
        self, limit: int, continue_token: str | None, label_selector: str | None
    ) -> ObjectPage:
        """List one page of sandboxes."""
        reference = ObjectReference(API_VERSION, "Sandbox", None, self.namespace)
        return await self._list_page(reference, "sandboxes", limit, continue_token, label_selector)

    async def list_sandbox_claims(
        self, limit: int, continue_token: str | None, label_selector: str | None
    ) -> ObjectPage:
        """List one page of SandboxClaims."""
        reference = ObjectReference(EXTENSIONS_API_VERSION, "SandboxClaim", None, self.namespace)
        return await self._list_page(reference, "sandboxclaims", limit, continue_token, label_selector)

    async def _list_page(
        self,
        target: ObjectReference,
        plural: str,
        limit: int,
        continue_token: str | None,
        label_selector: str | None,
    ) -> ObjectPage:
        query = {"limit": str(limit), "continue": continue_token, "labelSelector": label_selector}
        path = f"/apis/{target.api_version}/namespaces/{self.namespace}/{plural}"
        request = ApiRequest(Verb.READ, path, plural, query=query)
        response = await self._session.request("list", target, request)
        return ObjectPage(
            list(response.get("items") or ()), (response.get("metadata") or {}).get("continue") or None
        )

    async def get_sandbox(self, name: str) -> dict[str, Any] | None:
        return await self.objects.get("Sandbox", name, namespace=self.namespace, api_version=API_VERSION)

    async def get_sandbox_claim(self, name: str) -> dict[str, Any] | None:
        return await self.objects.get(
            "SandboxClaim", name, namespace=self.namespace, api_version=EXTENSIONS_API_VERSION
        )

    async def get_pvc(self, name: str) -> dict[str, Any] | None:
        return await self.objects.get("PersistentVolumeClaim", name, namespace=self.namespace)

    async def get_pod(self, name: str) -> dict[str, Any] | None:
        return await self.objects.get("Pod", name, namespace=self.namespace)

    async def list_warm_pools(self) -> list[dict[str, Any]]:
        pools = await self.objects.list(
            "SandboxWarmPool", namespace=self.namespace, api_version=EXTENSIONS_API_VERSION
        )
        return pools.items

    async def dry_run_create(self, manifest: dict[str, Any], plural: str) -> None:
        """Validate an object with a server-side dry run, before objects that it depends on are created."""
        path = f"/apis/{manifest['apiVersion']}/namespaces/{self.namespace}/{plural}"
        query = {"dryRun": "All", "fieldValidation": "Strict"}
        request = ApiRequest(Verb.QUERY, path, plural, "POST", query, manifest)
        reference = ObjectReference(
            manifest["apiVersion"], manifest["kind"], manifest["metadata"]["name"], self.namespace
        )
        try:
            await self._session.request("validate", reference, request)
        except ObjectConflictError:
            return  # the caller compares the existing object

    async def stream_log(self, pod: str, query: dict[str, Any]) -> AsyncIterator[bytes]:
        """Stream a pod's log. Errors are raised before the first chunk."""
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}/log"
        request = ApiRequest(Verb.READ, path, "pods", query=query)
        reference = ObjectReference("v1", "Pod", pod, self.namespace)
        response = await self._session.call(
            Verb.READ,
            "read the log of",
            reference,
            lambda: self._session.attempt(request.method, lambda _: self._open_response(request)),
        )
        return _iter_log_chunks(response)

    async def open_exec_stream(self, pod: str, query: list[tuple[str, str]]) -> RetryingExecStream:
        """Open an exec stream into a pod; it is reopened while the kubelet does not know the pod yet."""

        async def open_socket() -> aiohttp.ClientWebSocketResponse[bool]:
            return await self.open_websocket(pod, "exec", query, _EXEC_PROTOCOL)

        return RetryingExecStream(open_socket, await open_socket())

    async def open_websocket(
        self, pod: str, subresource: str, query: list[tuple[str, str]], protocol: str
    ) -> aiohttp.ClientWebSocketResponse[bool]:
        """Open a WebSocket into a pod, without retries: a lost attempt may have started the command.

        Raises:
            TemporaryError: the connection failed or was rejected before anything started.
            PodResponseLostError: the command may have started.
        """
        import aiohttp

        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}/{subresource}"
        _, url, headers, *_ = await self._client.param_serialize(
            "GET", path, query_params=query, header_params={}, auth_settings=["BearerToken"]
        )
        # aiohttp itself would resend a GET whose connection was cut, and run the command twice.
        session = aiohttp_session(self._client.rest_client)
        try:
            return await session.ws_connect(  # type: ignore[no-any-return]
                url,
                headers=headers,
                protocols=(protocol,),
                max_msg_size=_MAX_FRAME_BYTES,
                timeout=aiohttp.ClientWSTimeout(ws_close=2.0),
            )
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            if _is_not_started(error):
                raise TemporaryError(f"pod {pod}: the cluster did not open the stream") from error
            raise PodResponseLostError(f"pod {pod}: the connection was lost while it was opened") from error

    async def _open_response(self, request: ApiRequest) -> Any:
        import aiohttp

        query = [(key, value) for key, value in request.query.items() if value is not None]
        serialized = await self._client.param_serialize(
            "GET", request.path, query_params=query, header_params={}, auth_settings=["BearerToken"]
        )
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT)
        response = await self._client.call_api(*serialized, _request_timeout=timeout)
        if response.status >= 300:  # noqa: PLR2004 (a success is 2xx)
            from kubernetes.aio.client.exceptions import ApiException

            body = (await response.read()).decode("utf-8", "replace")
            raise ApiException.from_response(http_resp=response, body=body, data=None)
        return response.response


def _is_not_started(error: Exception) -> bool:
    import aiohttp

    if isinstance(error, aiohttp.WSServerHandshakeError):
        return error.status != _SWITCHING_PROTOCOLS
    return isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)


async def _iter_log_chunks(response: Any) -> AsyncIterator[bytes]:
    try:
        async for chunk in response.content.iter_any():
            yield chunk
    finally:
        response.close()


async def connect_cluster(kubeconfig: Path | None, namespace: str) -> NamespaceClient:
    """Connect to the cluster of a kubeconfig, or to the cluster of this pod."""
    if kubeconfig is not None:
        from holdfast.kube import async_api_client

        return NamespaceClient(await async_api_client(kubeconfig), namespace)
    from holdfast.kube import in_cluster_async_client

    return NamespaceClient(await in_cluster_async_client(), namespace)
