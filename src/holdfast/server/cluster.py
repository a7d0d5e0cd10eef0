"""The server's way to the cluster: one client, one namespace, pages, and connections into pods.

Not here: what a request means (service.py), and carrying bytes (bridge.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.errors import ObjectConflictError, TemporaryError
from holdfast.kube import AsyncObjects
from holdfast.kube.exchange import exchange, link
from holdfast.kube.manifest import Target
from holdfast.kube.request import AsyncWire, Request
from holdfast.kube.result import translated
from holdfast.kube.steps import adrive
from holdfast.kube.verbs import Verb
from holdfast.sandbox.api import API_VERSION, EXTENSIONS_API_VERSION
from holdfast.server.patient_stream import PatientStream
from holdfast.server.problems import AnswerLostError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import aiohttp

    from holdfast.retry import Policy

_CONNECT_SECONDS = 15.0
_EXEC_PROTOCOL = "v5.channel.k8s.io"
FORWARD_PROTOCOL = "v4.channel.k8s.io"
_LARGEST_FRAME = 8 * 1024 * 1024
_SWITCHING = 101


class Page(msgspec.Struct, frozen=True):
    """Some of the sandboxes, or of the claims, and where the next ones begin."""

    items: list[dict[str, Any]]
    next: str | None


class Cluster:
    """One namespace of one cluster."""

    def __init__(self, api_client: Any, namespace: str) -> None:
        # Streams hold a connection each; what bounds them is each client's own limit.
        api_client.rest_client.maxsize = 0
        self._client, self.namespace = api_client, namespace
        self.objects = AsyncObjects(api_client)
        self._link, self._wire = link(api_client), AsyncWire(api_client)

    async def close(self) -> None:
        await self._client.close()

    async def page(self, limit: int, after: str | None, labels: str | None) -> Page:
        """One page of sandboxes, as the API server cuts it."""
        where = Target(API_VERSION, "Sandbox", None, self.namespace)
        return await self._page(where, "sandboxes", limit, after, labels)

    async def claim_page(self, limit: int, after: str | None, labels: str | None) -> Page:
        """One page of SandboxClaims."""
        where = Target(EXTENSIONS_API_VERSION, "SandboxClaim", None, self.namespace)
        return await self._page(where, "sandboxclaims", limit, after, labels)

    async def _page(
        self, where: Target, plural: str, limit: int, after: str | None, labels: str | None
    ) -> Page:
        query = {"limit": str(limit), "continue": after, "labelSelector": labels}
        path = f"/apis/{where.api_version}/namespaces/{self.namespace}/{plural}"
        answer = await self._send(Request(Verb.READ, path, plural, query=query), where, "list")
        return Page(list(answer.get("items") or ()), (answer.get("metadata") or {}).get("continue") or None)

    async def sandbox(self, name: str) -> dict[str, Any] | None:
        return await self.objects.get("Sandbox", name, namespace=self.namespace, api_version=API_VERSION)

    async def claim(self, name: str) -> dict[str, Any] | None:
        """A SandboxClaim."""
        return await self.objects.get(
            "SandboxClaim", name, namespace=self.namespace, api_version=EXTENSIONS_API_VERSION
        )

    async def volume_claim(self, name: str) -> dict[str, Any] | None:
        return await self.objects.get("PersistentVolumeClaim", name, namespace=self.namespace)

    async def pod(self, name: str) -> dict[str, Any] | None:
        return await self.objects.get("Pod", name, namespace=self.namespace)

    async def pools(self) -> list[dict[str, Any]]:
        found = await self.objects.list(
            "SandboxWarmPool", namespace=self.namespace, api_version=EXTENSIONS_API_VERSION
        )
        return found.items

    async def try_out(self, manifest: dict[str, Any], plural: str) -> None:
        """Ask whether the server would take an object, before anything is made that depends on it."""
        path = f"/apis/{manifest['apiVersion']}/namespaces/{self.namespace}/{plural}"
        query = {"dryRun": "All", "fieldValidation": "Strict"}
        request = Request(Verb.ASK, path, plural, "POST", query, manifest)
        where = Target(manifest["apiVersion"], manifest["kind"], manifest["metadata"]["name"], self.namespace)
        try:
            await self._send(request, where, "try out")
        except ObjectConflictError:
            return  # there is one already, and it will be compared

    async def log(self, pod: str, query: dict[str, Any]) -> AsyncIterator[bytes]:
        """A pod's log as it comes; what can be refused is refused before the first piece."""
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}/log"
        request = Request(Verb.READ, path, "pods", query=query)
        where = Target("v1", "Pod", pod, self.namespace)
        try:
            raw = await self._policy(Verb.READ, "read the log").acall(
                lambda: adrive(exchange(self._link, request.method, lambda _: self._open(request)))
            )
        except Exception as error:
            settled = self._link.settle(error, request.method, None)
            raise translated(settled, "read the log of", where, writes=False) from error
        return _pieces(raw)

    async def execute(self, pod: str, query: list[tuple[str, str]]) -> PatientStream:
        """A stream into a command in a pod; opened again while the pod's node does not know the pod yet."""

        async def opening() -> aiohttp.ClientWebSocketResponse[bool]:
            return await self.connect(pod, "exec", query, _EXEC_PROTOCOL)

        return PatientStream(opening, await opening())

    async def connect(
        self, pod: str, subresource: str, query: list[tuple[str, str]], protocol: str
    ) -> aiohttp.ClientWebSocketResponse[bool]:
        """A WebSocket into a pod. Made once: nobody can know what a lost attempt has started.

        A failure is temporary only where nothing has begun: there was no connection, or the answer is no.
        """
        import aiohttp

        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}/{subresource}"
        _, url, headers, *_ = await self._client.param_serialize(
            "GET", path, query_params=query, header_params={}, auth_settings=["BearerToken"]
        )
        session = await self._session()
        try:
            return await session.ws_connect(  # type: ignore[no-any-return]
                url,
                headers=headers,
                protocols=(protocol,),
                max_msg_size=_LARGEST_FRAME,
                timeout=aiohttp.ClientWSTimeout(ws_close=2.0),
            )
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            if _has_not_begun(error):
                raise TemporaryError(f"the cluster did not open the stream into the pod {pod}") from error
            raise AnswerLostError(f"the connection to the pod {pod} was lost as it was opened") from error

    async def _session(self) -> Any:
        rest = self._client.rest_client
        if rest.pool_manager is None:
            rest.pool_manager = rest._create_pool_manager()  # noqa: SLF001 (as its own request() would)
        # The library would send a GET again by itself when its connection was cut, and run a command twice.
        rest.pool_manager._retry_connection = False  # noqa: SLF001
        return rest.pool_manager

    async def _open(self, request: Request) -> Any:
        import aiohttp

        query = [(key, value) for key, value in request.query.items() if value is not None]
        serialized = await self._client.param_serialize(
            "GET", request.path, query_params=query, header_params={}, auth_settings=["BearerToken"]
        )
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS)
        response = await self._client.call_api(*serialized, _request_timeout=timeout)
        if response.status >= 300:  # noqa: PLR2004 (a success is 2xx)
            from kubernetes.aio.client.exceptions import ApiException

            said = (await response.read()).decode("utf-8", "replace")
            raise ApiException.from_response(http_resp=response, body=said, data=None)
        return response.response

    async def _send(self, request: Request, where: Target, doing: str) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = await self._policy(request.verb, doing).acall(
                lambda: adrive(
                    exchange(self._link, request.method, lambda timeout: self._wire.send(request, timeout))
                )
            )
        except Exception as error:
            settled = self._link.settle(error, request.method, None)
            raise translated(settled, doing, where, writes=False) from error
        return answer

    def _policy(self, verb: Verb, doing: str) -> Policy:
        return self._link.policy_for(verb, f"{doing} for a client")


def _has_not_begun(error: Exception) -> bool:
    import aiohttp

    if isinstance(error, aiohttp.WSServerHandshakeError):
        return error.status != _SWITCHING
    return isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)


async def _pieces(raw: Any) -> AsyncIterator[bytes]:
    try:
        async for piece in raw.content.iter_any():
            yield piece
    finally:
        raw.close()


async def connected(kubeconfig: Path | None, namespace: str) -> Cluster:
    """The cluster of a kubeconfig, else the one that this process runs in."""
    if kubeconfig is not None:
        from holdfast.kube.client import async_api_client

        return Cluster(await async_api_client(kubeconfig), namespace)
    from holdfast.kube.incluster import in_cluster_async_client

    return Cluster(await in_cluster_async_client(), namespace)
