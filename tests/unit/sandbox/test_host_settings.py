"""Proxy and CA certificates in the pod of a sandbox."""

import pytest

from holdfast.api import SandboxRequest
from holdfast.sandbox.from_request import TLS_PATH, sandbox_manifest
from holdfast.sandbox.host_settings import HostSettings

BUNDLE = "/etc/holdfast/ca/ca-bundle.crt"
CA_VARIABLES = {
    "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS",
}  # fmt: skip
PROXY_VARIABLES = {"http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY"}


def pod(settings, *, endpoint=None, **request):
    manifest = sandbox_manifest(
        SandboxRequest(name="a", **request), namespace="ns", endpoint=endpoint, host_settings=settings
    )
    return manifest["spec"]["podTemplate"]["spec"]


def variables(pod_spec):
    return {variable["name"]: variable for variable in pod_spec["containers"][0]["env"]}


def test_nothing_by_default():
    found = pod(HostSettings())
    assert not (CA_VARIABLES | PROXY_VARIABLES) & variables(found).keys()
    assert "volumes" not in found


@pytest.mark.parametrize("image", [None, "python:3.13"])
def test_proxy_comes_from_the_secret(image):
    found = variables(pod(HostSettings(proxy_secret="s"), image=image))
    for name in PROXY_VARIABLES:
        reference = {"name": "s", "key": name.lower(), "optional": True}
        assert found[name] == {"name": name, "valueFrom": {"secretKeyRef": reference}}
    assert not CA_VARIABLES & found.keys()


def test_ca_bundle_is_mounted_and_named():
    found = pod(HostSettings(ca_config_map="c"), endpoint="https://api")
    assert {name: variables(found)[name]["value"] for name in CA_VARIABLES} == dict.fromkeys(
        CA_VARIABLES, BUNDLE
    )
    volumes = {volume["name"]: volume for volume in found["volumes"]}
    mounts = {mount["mountPath"]: mount for mount in found["containers"][0]["volumeMounts"]}
    mount = mounts["/etc/holdfast/ca"]
    assert mount["readOnly"]
    assert volumes[mount["name"]]["configMap"] == {"name": "c", "optional": True}
    assert TLS_PATH in mounts
    assert not PROXY_VARIABLES & variables(found).keys()


@pytest.mark.parametrize("spelling", ["https_proxy", "HTTPS_PROXY", "Https_Proxy"])
def test_user_variable_replaces_both_spellings(spelling):
    found = variables(pod(HostSettings(proxy_secret="s"), env={spelling: "mine"}))
    assert found[spelling]["value"] == "mine"
    assert {name for name in found if name.lower() == "https_proxy"} == {spelling}
    assert {"http_proxy", "HTTP_PROXY", "NO_PROXY"} <= found.keys()


def test_user_variable_replaces_a_ca_variable():
    found = variables(pod(HostSettings(ca_config_map="c"), env={"SSL_CERT_FILE": "/mine"}))
    assert found["SSL_CERT_FILE"]["value"] == "/mine"
    assert found["GIT_SSL_CAINFO"]["value"] == BUNDLE


def test_each_variable_is_set_once():
    settings = HostSettings(proxy_secret="s", ca_config_map="c")
    names = [variable["name"] for variable in pod(settings, env={"no_proxy": "x"})["containers"][0]["env"]]
    assert len(names) == len(set(names))
