"""The health port of the controller."""

import asyncio
import socket

import pytest

from holdfast.controller.manager import HealthServer
from holdfast.controller.metrics import ControllerMetrics
from holdfast.errors import PortInUseError


def test_taken_port_is_named_with_hint():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortInUseError, match=f"port {port} on 127.0.0.1: .*in use") as raised:
            asyncio.run(HealthServer(ControllerMetrics()).start("127.0.0.1", port))
    assert "--port" in raised.value.hint
    assert raised.value.exit_code == 3
