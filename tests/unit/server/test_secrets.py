"""Which requests the service sends for a secret, and what its errors say, with a fake cluster."""

import asyncio
import base64

import pytest

from holdfast.api import SandboxSecret, SecretRequest
from holdfast.errors import ObjectConflictError
from holdfast.retry import testing_mode
from holdfast.sandbox.secrets import secret_manifest
from holdfast.server.errors import ApiError
from holdfast.server.secrets import SecretService


class FakeCluster:
    """A namespace with Secrets; `conflicts` writes fail because another client was faster."""

    namespace = "ns"

    def __init__(self, *secrets, conflicts=0):
        self.objects, self.conflicts = self, conflicts
        self.secrets = {secret["metadata"]["name"]: secret for secret in secrets}
        self.patches = []

    async def get(self, kind, name):
        assert kind == "Secret"
        return self.secrets.get(name)

    async def list(self, kind, **_):
        items = list(self.secrets.values()) if kind == "Secret" else []
        return type("Listed", (), {"items": items})

    async def create(self, manifest):
        self._fail()
        self.secrets[manifest["metadata"]["name"]] = manifest
        return manifest

    async def patch(self, obj, patch):
        self._fail()
        self.patches.append(patch)
        kept = {key: value for key, value in patch["data"].items() if value is not None}
        return {**obj, "data": kept}

    def _fail(self):
        if self.conflicts:
            self.conflicts -= 1
            raise ObjectConflictError("another client was faster")


def stored(name="db", **values):
    data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
    made = secret_manifest(name, data, namespace="ns")
    made["metadata"] |= {"uid": "u", "resourceVersion": "7"}
    return made


def create(cluster, *, replace=False, **values):
    request = SecretRequest(
        name="db", data={key: value.encode() for key, value in values.items()}, replace=replace
    )
    with testing_mode():
        return asyncio.run(SecretService(cluster).create(request))


def test_conflicting_writes_are_repeated_with_the_new_version():
    cluster = FakeCluster(stored(A="1", B="1"), conflicts=3)
    assert create(cluster, replace=True, A="2").effect == "replaced"
    (patch,) = cluster.patches
    assert patch["metadata"] == {"resourceVersion": "7"}
    assert patch["data"] == {"A": base64.b64encode(b"2").decode(), "B": None}


def test_lasting_conflict_is_an_error():
    with pytest.raises(ObjectConflictError):
        create(FakeCluster(conflicts=99), A="1")


def test_secret_that_another_client_creates_meanwhile_counts_as_unchanged():
    cluster = FakeCluster()

    async def lose(manifest):
        cluster.secrets[manifest["metadata"]["name"]] = stored(A="1")
        raise ObjectConflictError("exists")

    cluster.create = lose
    assert create(cluster, A="1").effect == "unchanged"


def test_required_secrets_are_read_once_each():
    cluster = FakeCluster(stored(A="1"))
    uses = [SandboxSecret(name="db"), SandboxSecret(name="db", path="/x")]
    asyncio.run(SecretService(cluster).require(uses))
    with pytest.raises(ApiError) as caught:
        asyncio.run(SecretService(FakeCluster()).require(uses))
    assert (caught.value.status, caught.value.problem.code) == (422, "secret-missing")


def test_list_leaves_out_secrets_with_the_label_under_another_name():
    foreign = stored()
    foreign["metadata"]["name"] = "holdfast-server-tls"
    listed = asyncio.run(SecretService(FakeCluster(foreign, stored(A="1"))).list())
    assert [(view.name, view.keys) for view in listed.items] == [("db", ["A"])]


def test_representation_of_a_request_has_no_values():
    request = SecretRequest(name="db", data={"A": b"planted"})
    assert "planted" not in f"{request!r} {request} {request.__rich_repr__()}"
