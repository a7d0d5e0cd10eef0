"""Secrets in the manifest of a sandbox: references by name, and which requests are rejected."""

import json

import pytest

from holdfast.api import SandboxRequest, SandboxSecret
from holdfast.errors import UsageError
from holdfast.sandbox import build_request, env_problem, from_request, is_managed_secret, used_secrets
from holdfast.sandbox.secrets import check_secret_size, parse_secret_use, secret_manifest


def manifest(*uses):
    request = build_request("a", secrets=list(uses))
    return from_request.sandbox_manifest(request, namespace="ns", endpoint=None)


def test_secret_without_path_is_environment_of_the_container_only():
    pod = manifest("db")["spec"]["podTemplate"]["spec"]
    assert pod["containers"][0]["envFrom"] == [{"secretRef": {"name": "holdfast-secret-db"}}]
    assert "envFrom" not in pod["initContainers"][0]


def test_secret_with_path_is_a_read_only_volume_without_sub_path():
    """A mount with a subPath does not follow updates of the Secret."""
    pod = manifest("db:/etc/db", "tls:/run/tls")["spec"]["podTemplate"]["spec"]
    mounts = [each for each in pod["containers"][0]["volumeMounts"] if each["name"].startswith("secret-")]
    assert mounts == [
        {"name": "secret-0", "mountPath": "/etc/db", "readOnly": True},
        {"name": "secret-1", "mountPath": "/run/tls", "readOnly": True},
    ]
    volumes = {each["name"]: each["secret"] for each in pod["volumes"]}
    assert volumes["secret-1"] == {"secretName": "holdfast-secret-tls", "defaultMode": 0o444}


def test_secrets_can_be_given_as_text_dictionary_or_model():
    forms = ("db:/etc/db", {"name": "db", "path": "/etc/db"}, SandboxSecret(name="db", path="/etc/db"))
    requests = [build_request("a", secrets=(form,)) for form in forms]
    assert requests[0] == requests[1] == requests[2]
    assert requests[0].secrets == [SandboxSecret(name="db", path="/etc/db")]


def test_used_secrets_are_those_of_the_request():
    uses = [SandboxSecret(name="env"), SandboxSecret(name="files", path="/files")]
    assert used_secrets(manifest("env", "files:/files")) == uses
    assert used_secrets(manifest()) == []


@pytest.mark.parametrize(
    "uses",
    [("db", "db"), ("a:/x", "b:/x"), ("a:/x", "b:/x/y"), ("a:/x", "a:/x")],
)
def test_uses_that_collide_are_rejected(uses):
    with pytest.raises(UsageError, match=r"listed twice|overlaps"):
        build_request("a", secrets=list(uses))


@pytest.mark.parametrize(
    "text",
    ["", ":", "Db", "db:", "db:relative", "db:/", "db:/etc", "db:/sandbox", "db:/proc/1", "db:/a/../b",
     "db:/etc/holdfast/tls", "db:/a\n", "db:/ä", "d" * 64, "db:/" + "x" * 1024, "-db", "db:/a:/b"],
)  # fmt: skip
def test_text_that_is_not_a_use_names_the_option_the_value_and_the_form(text):
    with pytest.raises(UsageError) as caught:
        parse_secret_use(text, "--secret")
    assert caught.value.message == f"--secret {text!r}: not NAME or NAME:/path"


def test_template_determines_secrets():
    request = SandboxRequest(name="a", template="t", secrets=[SandboxSecret(name="db")])
    with pytest.raises(UsageError, match="determines secrets"):
        from_request.sandbox_claim_manifest(request, namespace="ns", pool="p")


def test_only_labelled_secrets_under_the_own_prefix_are_managed():
    ours = secret_manifest("db", {}, namespace="ns")
    assert is_managed_secret(ours)
    for change in ({"labels": {}}, {"name": "holdfast-server-tls"}, {"name": "db"}):
        assert not is_managed_secret({"metadata": {**ours["metadata"], **change}})


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("TOKEN", b"x", ""),
        ("TOKEN", "ä".encode(), ""),
        ("tls.key", b"x", "key 'tls.key' is not a valid environment variable name"),
        ("TOKEN", b"a\0", "the value of key 'TOKEN' is not text"),
        ("TOKEN", b"\xff", "the value of key 'TOKEN' is not text"),
    ],
)
def test_what_cannot_be_an_environment_variable(key, value, problem):
    assert env_problem(key, value) == problem


def test_size_limit_counts_keys_and_values():
    check_secret_size({"k": b"x" * ((1 << 20) - 1)})
    with pytest.raises(UsageError, match="1048577 bytes"):
        check_secret_size({"k": b"x" * (1 << 20)})


def test_manifest_of_a_sandbox_without_secrets_has_no_trace_of_them():
    assert "secret-" not in json.dumps(manifest())
