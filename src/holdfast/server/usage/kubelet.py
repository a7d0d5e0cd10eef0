"""Client for the statistics of one kubelet: its summary of all pods of the node, in one request.

The client connects to the kubelet itself and needs `get` on `nodes/stats` only. Through the API server it
would need `nodes/proxy`, with which an account can run commands in every pod of the node.
"""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from holdfast.errors import ApiRefusedError, TemporaryError, UnreadableResponseError

SERVICE_ACCOUNT_DIR = Path("/var/run/secrets/kubernetes.io/serviceaccount")
KUBELET_PORT = 10250
_TIMEOUT = 5.0
_MAX_BYTES = 32 << 20
_OK, _UNAUTHORIZED = 200, (401, 403)


class Kubelet:
    """The kubelet of one node.

    Args:
        node: name of the node.
        address: its IP address, which the certificate of the kubelet contains.
        port: port of the kubelet.
        credentials: directory with `ca.crt`, the CA of the cluster, and `token`, the token of this process.
    """

    def __init__(
        self,
        node: str,
        address: str,
        *,
        port: int = KUBELET_PORT,
        credentials: Path = SERVICE_ACCOUNT_DIR,
    ) -> None:
        self.node, self._credentials = node, credentials
        host = f"[{address}]" if ":" in address else address
        self._url = f"https://{host}:{port}/stats/summary"

    async def read_summary(self) -> dict[str, Any]:
        """Return the kubelet's summary of the node and its pods.

        Raises:
            ApiRefusedError: the kubelet rejects the token, or its certificate is not valid.
            TemporaryError: the kubelet does not answer.
        """
        try:
            # Read each time: the kubelet rotates the token, and a renewed node may have another CA.
            token, context = await asyncio.to_thread(self._read_credentials)
            async with asyncio.timeout(_TIMEOUT), aiohttp.ClientSession() as session:
                headers = {"Authorization": f"Bearer {token}"}
                async with session.get(self._url, headers=headers, ssl=context) as response:
                    body = await response.content.read(_MAX_BYTES) if response.status == _OK else b""
                    while chunk := await response.content.read(_MAX_BYTES - len(body)):
                        body += chunk
                    status = response.status
        except aiohttp.ClientConnectorCertificateError as error:
            message = f"kubelet of node {self.node}: its certificate is not valid"
            raise ApiRefusedError(message, cause=error) from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            message = f"kubelet of node {self.node}: does not answer"
            raise TemporaryError(message, cause=error) from error
        if status in _UNAUTHORIZED:
            raise ApiRefusedError(f"kubelet of node {self.node}: rejects the request with HTTP {status}")
        try:
            return msgspec.json.decode(body, type=dict[str, Any])
        except msgspec.MsgspecError as error:
            message = f"kubelet of node {self.node}: HTTP {status} without statistics"
            raise UnreadableResponseError(message) from error

    def _read_credentials(self) -> tuple[str, ssl.SSLContext]:
        token = (self._credentials / "token").read_text().strip()
        return token, ssl.create_default_context(cafile=str(self._credentials / "ca.crt"))
