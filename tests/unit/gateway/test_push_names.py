"""Image names: short ones become what containerd keeps, and what has no name is refused."""

import pytest

from holdfast.errors import UsageError
from holdfast.gateway.push_names import full_name, registry_of, with_tag


@pytest.mark.parametrize(
    ("given", "full"),
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
def test_full_names(given, full):
    assert full_name(given) == full
    assert full.startswith(registry_of(given) + "/")


def test_a_port_is_no_tag():
    assert with_tag("registry.example.org:5000/app") == "registry.example.org:5000/app:latest"


def test_a_digest_is_no_name():
    with pytest.raises(UsageError, match="digest"):
        with_tag("app@sha256:" + "0" * 64)
