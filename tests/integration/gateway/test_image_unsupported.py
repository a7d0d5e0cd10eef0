"""Images that cannot run a node are rejected on a real engine; nothing is changed or sent."""

import uuid

import pytest
from tests.support.small_images import SmallImages

from holdfast.containers import find_container, find_network, find_volume
from holdfast.containers.labels import CONTRACT
from holdfast.errors import ImageIncompatibleError
from holdfast.events import EventBus
from holdfast.gateway import GatewayContext, commands, resolve_settings
from holdfast.gateway.node.image import check_node_image
from holdfast.gateway.spec import CONTRACT_VERSION as VERSION
from holdfast.remote import connect, copy_image

pytestmark = pytest.mark.engine

OTHER_ARCHITECTURE = {"amd64": "arm64", "arm64": "amd64"}


@pytest.fixture(scope="module")
def engine():
    return connect()


@pytest.fixture(scope="module")
def foreign_architecture_image(engine):
    """A node image for another architecture than the engine's."""
    images = SmallImages(engine)
    yield images.build(
        [{"x": b"x"}], architecture=OTHER_ARCHITECTURE[engine.architecture], labels={CONTRACT: VERSION}
    )
    images.remove_all()


def test_other_architecture_is_rejected_before_any_change(
    engine, foreign_architecture_image, tmp_path, monkeypatch
):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    name = f"t-unfit-{uuid.uuid4().hex[:6]}"
    with pytest.raises(ImageIncompatibleError) as raised:
        commands.up(name, EventBus(), resolved=resolve_settings({"image": foreign_architecture_image}))
    assert OTHER_ARCHITECTURE[engine.architecture] in raised.value.message
    assert raised.value.exit_code == 3
    object_name = GatewayContext(name).object_name
    assert find_container(engine, object_name) is None
    assert find_network(engine, object_name) is None
    assert find_volume(engine, object_name) is None


def test_unusable_image_is_not_sent_to_host(engine, foreign_architecture_image):
    progress = []

    def check(image):
        check_node_image(foreign_architecture_image, image, engine.architecture)

    with pytest.raises(ImageIncompatibleError, match="the engine runs"):
        copy_image(
            lambda: engine, engine, foreign_architecture_image, check, lambda *args: progress.append(args)
        )
    assert progress == []
    assert not copy_image(lambda: engine, engine, "t-unfit/none:1", check, lambda *args: None)
