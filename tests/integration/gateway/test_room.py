"""How much room a volume has, asked on a real engine while no node runs on it."""

import uuid

import pytest

from holdfast.containers.containers import create_container, find_container, remove_container
from holdfast.containers.networks import create_volume, remove_volume
from holdfast.gateway.node_container import container_config
from holdfast.gateway.upgrade import volume
from holdfast.gateway.work import DEFAULT_IMAGE, Work

pytestmark = pytest.mark.engine


@pytest.fixture
def stopped(tmp_path, monkeypatch):
    """A gateway that was made and never started, with a datastore of a known size."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    work = Work(f"t-room-{uuid.uuid4().hex[:6]}")
    create_volume(work.engine, work.object, gateway=work.name)
    create_container(
        work.engine,
        work.object,
        image=DEFAULT_IMAGE,
        config=container_config(work.spec, work.profile),
        host_config={
            "NetworkMode": "none",
            "Mounts": [{"Type": "volume", "Source": work.object, "Target": work.profile.state_path}],
        },
        networking={},
    )
    yield work
    remove_container(work.engine, work.object)
    remove_volume(work.engine, work.object)


def test_a_stopped_gateways_room_is_looked_at_by_a_helper(stopped):
    work = stopped
    container = work.container()
    assert volume.room(work, container).data == 0
    script = 'mkdir -m 700 "$1" && head -c 5000000 /dev/zero > "$1/db" && chmod 600 "$1/db"'
    volume.helper_of(work, container.image_id).run(work.engine, script, work.profile.datastore)
    found = volume.room(work, container)
    assert 5_000_000 <= found.data < 6_000_000
    assert found.free > 0
    assert find_container(work.engine, f"helper-of-{work.object}") is None
