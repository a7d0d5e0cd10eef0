"""Which port an engine means when it refuses to start a container."""

import pytest

from holdfast.gateway.node.start import conflicting_ports
from holdfast.gateway.spec import GatewaySpec

SPEC = GatewaySpec(name="x", image="i", port=26443, gateway_port=26444)


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ("Bind for 127.0.0.1:26443 failed: port is already allocated", {"port": 26443}),
        ("Bind for 127.0.0.1:26444 failed: port is already allocated", {"gateway_port": 26444}),
        ("listen tcp4 127.0.0.1:26444: bind: address already in use", {"gateway_port": 26444}),
        (
            "failed to bind host port for 127.0.0.1:26443:172.18.0.2:6443/tcp: address already in use",
            {"port": 26443},
        ),
        ("listen tcp6 [::1]:26443: bind: address already in use", {"port": 26443}),
        ("port is already allocated", {"port": 26443}),
        ("Bind for 0.0.0.0:264430 failed: port is already allocated", {"port": 26443}),
    ],
)
def test_port_conflict_message_names_gateway_ports(said, named):
    assert conflicting_ports(said, SPEC) == named
