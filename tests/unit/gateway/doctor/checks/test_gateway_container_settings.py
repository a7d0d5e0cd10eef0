"""The checks of settings and network report exactly what `up` would repair."""

from types import SimpleNamespace

import msgspec
import pytest

from holdfast.containers import ContainerView, NetworkView, labels
from holdfast.gateway.doctor.checks.gateway_container import check_network, check_ports, check_settings
from holdfast.gateway.doctor.facts import GatewayFacts
from holdfast.gateway.node.container import container_config
from holdfast.gateway.spec import HOLDFAST_NODE, GatewaySpec

SPEC = GatewaySpec(name="dev", image="holdfast/node:1", port=16443, gateway_port=16444)
CONFIG = container_config(SPEC, HOLDFAST_NODE)
CONTAINER = ContainerView(
    id="c1",
    name="holdfast-dev",
    image_id="sha256:1",
    image=SPEC.image,
    state="running",
    exit_code=0,
    started_at="2026-01-01T00:00:00Z",
    health="healthy",
    hostname=CONFIG["Hostname"],
    labels=CONFIG["Labels"],
    environment=dict(variable.split("=", 1) for variable in CONFIG["Env"]),
    ports={},
    networks={"holdfast-dev": "n1"},
    restart_policy="always",
    gpus=(),
)
NETWORK = NetworkView(id="n1", name="holdfast-dev", labels={labels.GATEWAY: "dev"})


def facts_with(network=NETWORK, **fields):
    facts = GatewayFacts("dev")
    facts.gateway.spec = SPEC
    facts.gateway.engine = None  # settings without an image need no engine
    facts.compute_once("container", lambda: msgspec.structs.replace(CONTAINER, **fields))
    facts.compute_once("network", lambda: network)
    return facts


def test_container_with_current_settings_has_no_finding():
    assert list(check_settings(facts_with())) == []
    assert list(check_network(facts_with())) == []


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"environment": {}}, "its node is not named holdfast-dev"),
        ({"hostname": "3f2a"}, "its node is not named holdfast-dev"),
        ({"labels": {labels.GATEWAY: "dev", labels.SETTINGS: "other"}}, "its settings differ"),
    ],
)
def test_every_reason_to_recreate_is_reported(fields, reason):
    (finding,) = check_settings(facts_with(**fields))
    assert finding.code == "settings-differ"
    assert finding.cause == f"The container has to be recreated: {reason}."


@pytest.mark.parametrize(
    ("network", "networks", "cause"),
    [
        (None, {"holdfast-dev": "n1"}, "The gateway's network does not exist."),
        (NETWORK, {"bridge": "b"}, "The container is not attached to the gateway's network."),
        (
            NETWORK,
            {"holdfast-dev": "n0"},
            "The network was recreated, and the container is attached to the old one.",
        ),
        (NETWORK, {"holdfast-dev": ""}, None),
    ],
)
def test_detached_container_is_reported(network, networks, cause):
    found = list(check_network(facts_with(network, networks=networks)))
    assert [finding.cause for finding in found] == ([cause] if cause else [])


@pytest.mark.parametrize(("taken", "subjects"), [(16443, ["port 16443"]), (27000, [])])
def test_ports_that_up_would_use_are_checked_instead_of_rejected_ones(taken, subjects):
    """A container that never started may have a taken port, which the next `up` does not use."""
    rejected = {"6443/tcp": ("127.0.0.1", 27000), "8443/tcp": ("127.0.0.1", 16444)}
    facts = facts_with(state="created", ports=rejected)
    facts.gateway.engine = SimpleNamespace(is_local=False)
    facts.gateway.host = SimpleNamespace(is_port_taken=lambda port, _listen: port == taken)
    assert [finding.subject for finding in check_ports(facts)] == subjects
