"""Registries for the node: mirrors, CAs and logins reach real pulls, and a login is seen nowhere else."""

import datetime as dt
import json
import os
import subprocess
import time
from pathlib import Path

import pytest
from tests.support.image_registry import LOGIN, PASSWORD, ImageRegistry, TokenServer, basic_auth_header

from holdfast.containers import find_container, read_file, run_in_container
from holdfast.errors import ImageNotFoundError
from holdfast.events import EventBus, RetryScheduled
from holdfast.gateway import GatewayContext, resolve_settings
from holdfast.gateway.node import CheckEngine, EnsureImage
from holdfast.pki import CertificateAuthority
from holdfast.remote import connect
from holdfast.testing.faults import FaultProxy, Upstream, rule
from holdfast.workflow import NoLock, SQLiteStore, Workflow

pytestmark = pytest.mark.engine

FOLDER = "/var/lib/holdfast/registries"
LOGINS = "/var/lib/holdfast/kubelet/config.json"
LOOPBACK = "127.0.0.1"


class RegistrySite:
    """Registries on the gateway's network and on loopback that serve the same images."""

    def __init__(self, folder, gateway, small_images):
        client = connect().client
        address = client.inspect_network(gateway.container)["IPAM"]["Config"][0]["Gateway"]
        authority = CertificateAuthority(at=dt.datetime.now(dt.UTC))
        pair = authority.issue_server([address])
        self.ca = folder / "ca.pem"
        self.ca.write_bytes(authority.certificate)
        self.login = folder / "login"
        self.login.touch(mode=0o600)
        self.login.write_text(LOGIN + "\n")
        self.open = ImageRegistry(folder, LOOPBACK)
        self.closed = ImageRegistry(folder, LOOPBACK, login=True)
        self.basic = ImageRegistry(folder, address, login=True, pair=pair)
        self.tokens = TokenServer(folder, address)
        self.token = ImageRegistry(folder, address, tokens=self.tokens, pair=pair)
        self.plain = ImageRegistry(folder, address)
        self._images = small_images

    @property
    def parts(self):
        return (self.tokens, self.open, self.closed, self.basic, self.token, self.plain)

    @property
    def settings(self):
        both = (self.basic.host, self.token.host)
        return {
            "HOLDFAST_REGISTRIES_MIRRORS": f"mirrored.example.org=https://{self.basic.host}",
            "HOLDFAST_REGISTRIES_CA_FILES": ",".join(f"{host}={self.ca}" for host in both),
            "HOLDFAST_REGISTRIES_CREDENTIALS": ",".join(f"{host}=file:{self.login}" for host in both),
            "HOLDFAST_REGISTRIES_INSECURE": self.plain.host,
        }

    def fill(self, name, layers, **options):
        made = self._images.build(layers, name=f"{self.open.host}/{name}", **options)
        for answer in connect().client.push(made, stream=True, decode=True):
            assert "error" not in answer, answer
        self._images.remove_image(made)
        return name


@pytest.fixture(scope="module")
def site(tmp_path_factory, bare_gateway, small_images):
    from contextlib import ExitStack

    made = RegistrySite(tmp_path_factory.mktemp("registries"), bare_gateway, small_images)
    with ExitStack() as stack:
        for part in made.parts:
            stack.enter_context(part)
        busybox = read_file(connect(), bare_gateway.container, "/usr/bin/busybox")
        made.fill("team/app:1", [{"bin/busybox": busybox}])
        made.fill("team/node:1", [{"word": os.urandom(3 << 20)}], labels={"dev.holdfast.contract": "1"})
        yield made


def with_settings(gateway, settings):
    return type(gateway.holdfast)(gateway.holdfast.home, HOLDFAST_WORKLOADS="false", **settings)


def pulling_pod(name, image):
    command = ["/bin/busybox", "sh", "-c", "/bin/busybox tail -f /dev/null"]
    container = {"name": "main", "image": image, "imagePullPolicy": "Always", "command": command}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 1}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def test_pods_pull_with_mirror_ca_and_login_without_leaking_login(bare_gateway, site):
    before = bare_gateway.inspect()["State"]["StartedAt"]
    events = with_settings(bare_gateway, site.settings).events("up", bare_gateway.name)
    written = [event for event in events if event.get("step") == "write-registries"]
    assert written[-1]["event"] == "step.finished"
    assert bare_gateway.inspect()["State"]["StartedAt"] == before
    bare_gateway.apply(
        pulling_pod("by-token", f"{site.token.host}/team/app:1"),
        pulling_pod("by-login", f"{site.basic.host}/team/app:1"),
        pulling_pod("by-mirror", "mirrored.example.org/team/app:1"),
        pulling_pod("by-http", f"{site.plain.host}/team/app:1"),
    )
    for name in ("by-login", "by-mirror", "by-token", "by-http"):
        bare_gateway.wait_ready(name)
    assert "login" in site.tokens.requests
    listed = run_in_container(
        connect(), bare_gateway.container, ["sh", "-c", f"stat -c %a {FOLDER}/*/hosts.toml {LOGINS}"]
    )
    assert set(listed.output.split()) == {"600"}
    assert_login_not_visible(bare_gateway, json.dumps(events))


def assert_login_not_visible(gateway, *texts):
    """The planted password, plain or packed, is in no event, store, log, definition or process list."""
    files = [path.read_bytes() for path in Path(gateway.holdfast.home).rglob("*") if path.is_file()]
    processes = subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, check=True).stdout
    inside = run_in_container(
        connect(), gateway.container, ["sh", "-c", "cat /var/lib/holdfast/logs/*.log"]
    ).output
    inspected = json.dumps(gateway.inspect())
    everything = [*files, processes, *(text.encode() for text in (*texts, inspected, inside))]
    for word in (PASSWORD.encode(), basic_auth_header(LOGIN).removeprefix("Basic ").encode()):
        assert not [text for text in everything if word in text]


def test_registry_files_are_removed_with_setting(bare_gateway, site):
    with_settings(bare_gateway, site.settings)("up", bare_gateway.name)
    assert with_settings(bare_gateway, site.settings).json("up", bare_gateway.name)["changed"] == []
    assert bare_gateway.up()["changed"] == ["write-registries"]
    assert bare_gateway.up()["changed"] == []
    assert_not_pulled(bare_gateway, "without-tls", f"{site.plain.host}/team/app:1")
    found = run_in_container(
        connect(), bare_gateway.container, ["grep", "-r", 'Basic\\|"auth"', FOLDER, LOGINS]
    )
    assert found.output == ""


def assert_not_pulled(gateway, name, image):
    """Without the setting, a registry that has no TLS is asked with TLS alone."""
    gateway.apply(pulling_pod(name, image))
    waiting = "{.status.containerStatuses[0].state.waiting.reason}"
    gateway.kubectl("wait", f"pod/{name}", f"--for=jsonpath={waiting}=ErrImagePull", "--timeout=60s")
    failed = gateway.get("events", f"--field-selector=involvedObject.name={name},reason=Failed")["items"]
    assert "server gave HTTP response to HTTPS client" in failed[0]["message"]
    gateway.kubectl("delete", "pod", name, "--wait=false")


@pytest.mark.parametrize(
    "setting",
    [
        "HOLDFAST_REGISTRIES_CA_FILES=example.org=/nowhere/ca.pem",
        "HOLDFAST_REGISTRIES_CREDENTIALS=example.org=file:/nowhere/login",
    ],
)
def test_unreadable_files_are_reported_before_any_change(new_gateway, bare_gateway, setting):
    fresh = new_gateway("early", holdfast=with_settings(bare_gateway, dict([setting.split("=", 1)])))
    ended = fresh.holdfast.run("up", fresh.name)
    assert ended.returncode == 2
    assert "/nowhere/" in ended.stderr
    assert "[bad-setting]" in ended.stderr
    assert find_container(connect(), fresh.container) is None


def pull(tmp_path, reference, credentials, *subscribers):
    """The steps of `up` that bring the node image, against a real engine and registry."""
    settings = {"image": reference, "registries.credentials": credentials}
    context = GatewayContext("t-pull", resolve_settings(settings, environ={}, cwd=tmp_path))
    steps = Workflow("pull", [CheckEngine(context), EnsureImage(context)])
    steps.run(store=SQLiteStore(tmp_path / "state.db"), lock=NoLock(), bus=EventBus(*subscribers))
    return (tmp_path / "state.db").read_bytes()


@pytest.mark.parametrize(
    ("kind", "path", "count", "settings", "tries"),
    [
        ("unavailable", "/manifests/", 4, {}, 3),  # the engine asks twice each time
        ("reset-before", "/v2/$", 2, {}, 3),
        ("stall-body", "/blobs/LAYER", 1, {"seconds": 0}, 1),  # the engine itself asks for the rest
        ("slow", "/blobs/LAYER", 1, {"seconds": 3}, 1),
    ],
    ids=["503", "reset", "dropped-inside-a-layer", "slow-layer"],
)
def test_transient_registry_failure_is_retried(site, tmp_path, kind, path, count, settings, tries):
    (layer,) = (each["digest"] for each in site.open.manifest("team/node", "1")["layers"])
    fault = rule(kind, path=path.replace("LAYER", layer), count=count, **settings)
    events, begun = [], time.monotonic()
    with FaultProxy(Upstream(f"http://{site.closed.host}"), rules=[fault], tls=False) as proxy:
        host = f"{LOOPBACK}:{proxy.port}"
        store = pull(tmp_path, f"{host}/team/node:1", {host: f"file:{site.login}"}, events.append)
        lasted = time.monotonic() - begun
        connect().client.remove_image(f"{host}/team/node:1")
    assert proxy.log.faults() == {kind: count}
    assert sum(isinstance(event, RetryScheduled) for event in events) == tries - 1
    *_, fetched = (record for record in proxy.log if record.path.endswith(layer))
    assert fetched.status == (206 if kind == "stall-body" else 200)
    assert settings.get("seconds", 0) <= lasted < 60
    assert PASSWORD.encode() not in store


def test_rejected_login_is_a_permanent_error(site, tmp_path):
    wrong = tmp_path / "wrong"
    wrong.touch(mode=0o600)
    wrong.write_text("pu:not-the-password")
    with pytest.raises(ImageNotFoundError) as caught:
        pull(tmp_path, f"{site.closed.host}/team/node:1", {site.closed.host: f"file:{wrong}"})
    assert "registries.credentials" in caught.value.hint
    assert not getattr(caught.value, "__notes__", [])
    with pytest.raises(ImageNotFoundError) as caught:
        pull(tmp_path, f"{site.closed.host}/team/absent:1", {site.closed.host: f"file:{site.login}"})
    assert "holdfast image build" in caught.value.hint
