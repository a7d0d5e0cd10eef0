"""The controller's health port: one that is taken is said in a clear line."""

import asyncio
import socket

import pytest

from holdfast.controller.health import Health
from holdfast.controller.metrics import Metrics
from holdfast.errors import PortTakenError


def test_a_port_that_is_taken_is_named_with_what_to_do():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortTakenError, match=f"port {port} on 127.0.0.1 .*in use") as raised:
            asyncio.run(Health(Metrics()).start("127.0.0.1", port))
    assert "--port" in raised.value.hint
    assert raised.value.exit_code == 3
