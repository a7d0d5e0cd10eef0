"""The free space of a volume without a running node, measured on a real engine."""

import uuid

import pytest

from holdfast.containers import (
    create_container,
    create_volume,
    find_container,
    remove_container,
    remove_volume,
)
from holdfast.gateway import GatewayContext
from holdfast.gateway.context import DEFAULT_IMAGE
from holdfast.gateway.node.container import container_config
from holdfast.gateway.upgrade import datastore

pytestmark = pytest.mark.engine


@pytest.fixture
def stopped_gateway(tmp_path, monkeypatch):
    """A gateway with a volume and a container that was never started."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    gateway = GatewayContext(f"t-space-{uuid.uuid4().hex[:6]}")
    create_volume(gateway.engine, gateway.object_name, gateway=gateway.name)
    create_container(
        gateway.engine,
        gateway.object_name,
        image=DEFAULT_IMAGE,
        config=container_config(gateway.spec, gateway.contract),
        host_config={
            "NetworkMode": "none",
            "Mounts": [
                {"Type": "volume", "Source": gateway.object_name, "Target": gateway.contract.state_path}
            ],
        },
        networking_config={},
    )
    yield gateway
    remove_container(gateway.engine, gateway.object_name)
    remove_volume(gateway.engine, gateway.object_name)


def test_free_space_of_stopped_gateway_is_read_by_helper_container(stopped_gateway):
    gateway = stopped_gateway
    container = gateway.container()
    assert datastore.measure_space(gateway, container).data == 0
    script = 'mkdir -m 700 "$1" && head -c 5000000 /dev/zero > "$1/db" && chmod 600 "$1/db"'
    datastore.volume_job_for(gateway, container.image_id).run(
        gateway.engine, script, gateway.contract.datastore
    )
    space = datastore.measure_space(gateway, container)
    assert 5_000_000 <= space.data < 6_000_000
    assert space.free > 0
    assert find_container(gateway.engine, f"helper-of-{gateway.object_name}") is None
