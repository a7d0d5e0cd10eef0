"""Short image names become full ones; references without a name are refused."""

import pytest

from holdfast.errors import UsageError
from holdfast.gateway.image_push.containerd_images import full_image_name, with_tag
from holdfast.gateway.registries import registry_host


@pytest.mark.parametrize(
    ("reference", "full"),
    [
        ("my-app:dev", "docker.io/library/my-app:dev"),
        ("my-app", "docker.io/library/my-app:latest"),
        ("team/my-app:1", "docker.io/team/my-app:1"),
        ("docker.io/my-app:1", "docker.io/library/my-app:1"),
        ("index.docker.io/team/app:1", "docker.io/team/app:1"),
        ("localhost/app:1", "localhost/app:1"),
        ("localhost:5000/app", "localhost:5000/app:latest"),
        ("registry.example.org:5000/a/b/c:1", "registry.example.org:5000/a/b/c:1"),
    ],
)
def test_full_names(reference, full):
    assert full_image_name(reference) == full
    assert full.startswith(registry_host(reference) + "/")


def test_port_is_not_a_tag():
    assert with_tag("registry.example.org:5000/app") == "registry.example.org:5000/app:latest"


def test_digest_is_not_a_name():
    with pytest.raises(UsageError, match="digest"):
        with_tag("app@sha256:" + "0" * 64)
