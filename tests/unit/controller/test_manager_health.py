"""The health port of the controller."""

import asyncio
import socket

import pytest

from holdfast.controller.manager import serve_health
from holdfast.controller.metrics import ControllerMetrics
from holdfast.errors import PortInUseError


async def start(host, port):
    async with serve_health(host, port, ControllerMetrics(), lambda: "starting"):
        pytest.fail("the address cannot be used")


def test_taken_port_is_named_with_hint():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortInUseError, match=f"port {port} on 127.0.0.1: .*in use") as raised:
            asyncio.run(start("127.0.0.1", port))
    assert "--port" in raised.value.hint
    assert "--host" in raised.value.hint
    assert raised.value.exit_code == 3


def test_invalid_host_is_named_with_reason():
    with pytest.raises(PortInUseError, match=r"port 0 on no host: (?!Unknown error)\w+"):
        asyncio.run(start("no host", 0))
