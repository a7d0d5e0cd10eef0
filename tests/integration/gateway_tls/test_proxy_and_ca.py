"""The step that gives sandboxes proxy and CA certificates, on a real API server."""

from __future__ import annotations

import base64
import datetime as dt
from functools import partial

import pytest
from tests.integration.gateway_tls.conftest import ClusterSteps
from tests.support.hints import execute_hint
from tests.support.holdfast_cli import HoldfastCli

from holdfast.errors import InvalidSettingError, ObjectConflictError
from holdfast.gateway import GatewayContext, resolve_settings
from holdfast.gateway.cluster import WriteHostSettings, read_host_sources
from holdfast.gateway.cluster.proxy_and_ca import join_certificates, public_roots
from holdfast.pki import CertificateAuthority
from holdfast.sandbox import CA_BUNDLE_KEY, CA_CONFIG_MAP, PROXY_SECRET

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(120)]

LOGIN = "user:hunter2-9d1c"
STEP = "write-host-settings"


@pytest.fixture
def ca(tmp_path):
    """A file with the certificate of a private CA."""
    file = tmp_path / "ca.pem"
    file.write_bytes(CertificateAuthority(at=dt.datetime.now(dt.UTC)).certificate)
    return file


class HostSettingsSteps(ClusterSteps):
    """Runs the step with settings, and reads its objects."""

    def apply(self, **settings):
        keys = {key.replace("__", "."): value for key, value in settings.items()}
        resolved = resolve_settings({"sandbox_namespace": self.namespace, **keys})
        gateway = GatewayContext("bench", resolved)
        sources = read_host_sources(resolved.settings)
        return self.run(partial(WriteHostSettings, sources=sources), gateway=gateway).changed

    def read(self, kind, name):
        path = f"/api/v1/namespaces/{self.namespace}/{kind}/{name}"
        status, found = self.server.request("GET", path)
        return found if status == 200 else None

    def proxy(self):
        secret = self.read("secrets", PROXY_SECRET)
        return secret and {key: base64.b64decode(value).decode() for key, value in secret["data"].items()}

    def bundle(self):
        found = self.read("configmaps", CA_CONFIG_MAP)
        return found and found["data"][CA_BUNDLE_KEY].encode()


@pytest.fixture
def steps(kube_server, faulty_kube, kube_namespace, home):
    return HostSettingsSteps(kube_server, faulty_kube.kubeconfig, home, kube_namespace)


def test_without_settings_nothing_is_written(steps):
    assert STEP not in steps.apply()
    assert steps.proxy() is None
    assert steps.bundle() is None


def test_proxy_with_login_is_in_the_secret_only(steps, monkeypatch):
    monkeypatch.setenv("PROXY_LOGIN", LOGIN)
    settings = {"proxy__http": "http://proxy:3128", "proxy__credentials": "env:PROXY_LOGIN"}
    assert STEP in steps.apply(**settings)
    found = steps.proxy()
    assert found.keys() == {"http_proxy", "no_proxy"}
    assert found["http_proxy"] == f"http://{LOGIN}@proxy:3128"
    assert ".svc" in found["no_proxy"]
    assert STEP not in steps.apply(**settings)
    assert "hunter2" not in steps.told()


def test_changed_proxy_replaces_every_key(steps):
    steps.apply(proxy__http="http://one:1", proxy__https="http://one:1")
    assert STEP in steps.apply(proxy__https="http://two:2")
    assert steps.proxy().keys() == {"https_proxy", "no_proxy"}
    assert steps.proxy()["https_proxy"] == "http://two:2"


def test_removed_proxy_removes_the_secret(steps):
    steps.apply(proxy__http="http://one:1")
    assert STEP in steps.apply()
    assert steps.proxy() is None
    assert STEP not in steps.apply()


def test_bundle_has_public_certificates_and_the_ca(steps, ca):
    assert STEP in steps.apply(sandbox__ca_bundle=str(ca))
    bundle = steps.bundle()
    assert ca.read_bytes().strip() in bundle
    assert bundle.count(b"BEGIN") == public_roots().count(b"-----BEGIN CERTIFICATE") + 1
    assert STEP not in steps.apply(sandbox__ca_bundle=str(ca))


def test_removed_ca_is_no_longer_trusted(steps, ca):
    """Existing sandboxes name the file as their only source, so that it stays, without the CA."""
    steps.apply(sandbox__ca_bundle=str(ca))
    assert STEP in steps.apply()
    assert steps.bundle() == join_certificates(public_roots())
    assert STEP not in steps.apply()


@pytest.mark.parametrize(
    ("kind", "name", "key"), [("secrets", PROXY_SECRET, "stringData"), ("configmaps", CA_CONFIG_MAP, "data")]
)
def test_objects_of_another_owner_stay(steps, ca, kind, name, key):
    labels = {"app.kubernetes.io/managed-by": "helm"}
    body = {"metadata": {"name": name, "labels": labels}, key: {"mine": "1"}}
    steps.server.request("POST", f"/api/v1/namespaces/{steps.namespace}/{kind}", body)
    before = steps.read(kind, name)
    assert STEP not in steps.apply(), "there is nothing of holdfast to withdraw"
    settings = {"sandbox__ca_bundle": str(ca), "proxy__http": "http://proxy:3128"}
    with pytest.raises(
        ObjectConflictError, match=f"{name} in namespace .*: not created by holdfast"
    ) as caught:
        steps.apply(**settings)
    assert steps.read(kind, name) == before
    execute_hint(
        HoldfastCli(steps.home / "home"),
        caught.value.hint,
        "If it is not needed, run `kubectl {} delete {} {}`, then run the same command again.",
    )
    assert STEP in steps.apply(**settings)


def test_certificates_are_joined_once():
    roots = public_roots()
    assert join_certificates(roots, roots) == join_certificates(roots)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"text", "no PEM certificate"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "a certificate is damaged"),
        (b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "a private key"),
        (None, "No such file"),
    ],
)
def test_unusable_file_is_rejected_before_any_change(tmp_path, home, content, reason):
    file = tmp_path / "bad.pem"
    if content is not None:
        file.write_bytes(content)
    settings = resolve_settings({"sandbox.ca_bundle": str(file)}).settings
    with pytest.raises(InvalidSettingError, match=rf"sandbox\.ca_bundle.*{reason}"):
        read_host_sources(settings)
