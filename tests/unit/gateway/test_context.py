"""The context of a command: the published address of the container, and a client that opens no tunnel."""

import msgspec
import pytest
import yaml
from tests.support.inspected_containers import engine_with, inspected

from holdfast.containers import free_port
from holdfast.gateway.cluster import EnsureNamespace, kubeconfig
from holdfast.gateway.context import GatewayContext, UpOptions
from holdfast.gateway.registry import GatewayMetadata, write_metadata
from holdfast.gateway.settings import resolve_settings
from holdfast.gateway.spec import GatewaySpec
from holdfast.gateway.tunnel import Tunnel
from holdfast.workflow import Workflow

SPEC = GatewaySpec(name="dev", image="holdfast/node:1", port=26443, gateway_port=26444, listen="10.0.0.1")
NODE_KUBECONFIG = yaml.safe_dump(
    {
        "clusters": [{"name": "n", "cluster": {"server": "https://127.0.0.1:6443"}}],
        "users": [{"name": "n", "user": {"token": "t"}}],
        "contexts": [],
    }
).encode()


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))


@pytest.mark.parametrize(
    "settings", [{"port": 7000, "gateway_port": 7001}, {"port": "auto"}, {"listen": "127.0.0.1"}, {}]
)
def test_container_decides_published_address(settings):
    gateway = GatewayContext("dev", resolve_settings(settings, environ={}))
    gateway.engine = engine_with(inspected(SPEC, Status="running"))
    published = gateway.published_spec()
    assert (published.listen, published.port, published.gateway_port) == ("10.0.0.1", 26443, 26444)
    assert gateway.api_server_url == "https://10.0.0.1:26443"


def test_settings_decide_address_of_missing_container():
    gateway = GatewayContext("dev", resolve_settings({"port": 7000, "gateway_port": 7001}, environ={}))
    gateway.engine = engine_with()
    assert gateway.published_spec() == msgspec.structs.replace(
        gateway.spec, listen="127.0.0.1", port=7000, gateway_port=7001
    )


@pytest.mark.parametrize(("remote", "expected"), [("", (26445, 26446)), ("user@host", (26443, 26444))])
def test_recorded_gateway_without_container_keeps_its_ports(remote, expected, monkeypatch):
    write_metadata(GatewayMetadata(**msgspec.structs.asdict(SPEC), remote=remote))
    gateway = GatewayContext("other", resolve_settings({}, environ={}))
    gateway.engine = engine_with()
    monkeypatch.setattr(
        type(gateway.host), "free_port", lambda _, reserved: free_port(reserved, is_taken=lambda _: False)
    )
    assert (gateway.spec.port, gateway.spec.gateway_port) == expected


@pytest.fixture
def rejected_container():
    """A container with other ports than the recorded ones, which the engine has not started."""
    rejected = msgspec.structs.replace(SPEC, port=27000, gateway_port=27001, listen="127.0.0.1")
    return engine_with(inspected(rejected, Status="created"))


def test_recorded_settings_take_precedence_over_a_container_that_never_started(rejected_container):
    write_metadata(GatewayMetadata(**msgspec.structs.asdict(SPEC)))
    gateway = GatewayContext("dev", resolve_settings({}, environ={}))
    gateway.engine = rejected_container
    assert (gateway.spec.port, gateway.spec.gateway_port, gateway.spec.listen) == (26443, 26444, "10.0.0.1")


def test_parked_container_takes_precedence_over_a_container_that_never_started():
    write_metadata(GatewayMetadata(**msgspec.structs.asdict(SPEC)))
    gateway = GatewayContext("dev", resolve_settings({}, environ={}))
    ran = msgspec.structs.replace(SPEC, port=28000)
    parked = inspected(ran, name=gateway.parked_name, Status="exited")
    gateway.engine = engine_with(inspected(SPEC, Status="created"), parked)
    assert gateway.spec.port == 28000


def test_container_that_never_started_decides_without_a_record(rejected_container):
    gateway = GatewayContext("dev", resolve_settings({}, environ={}))
    gateway.engine = rejected_container
    assert (gateway.spec.port, gateway.spec.gateway_port) == (27000, 27001)


def test_recorded_settings_replace_explicit_ones():
    resolved = resolve_settings({"port": 27000, "listen": "127.0.0.1", "workloads": False}, environ={})
    recorded = GatewayContext("dev", resolved, UpOptions(recreate=True)).with_recorded_settings()
    assert not any(recorded.resolved.is_explicit(key) for key in ("port", "listen"))
    assert (recorded.settings.port, recorded.settings.workloads) == ("auto", False)
    assert not recorded.replaces_container


def test_preview_of_cluster_steps_opens_no_tunnel(monkeypatch):
    monkeypatch.setattr(Tunnel, "open", lambda *_: pytest.fail("the preview opened the tunnel"))
    gateway = GatewayContext("dev", resolve_settings({}, environ={}), UpOptions(remote="me@far"))
    gateway.engine = engine_with(inspected(SPEC, Status="running"))
    content = kubeconfig.build_host_kubeconfig(NODE_KUBECONFIG, name="dev", server="https://127.0.0.1:1")
    gateway.files.kubeconfig.parent.mkdir(parents=True)
    gateway.files.kubeconfig.write_bytes(content)
    step = EnsureNamespace(gateway)
    step.needs = ()
    (planned,) = Workflow("up", [step]).plan()
    assert (planned.action, planned.unsure) == ("verify", True)
    assert gateway.files.kubeconfig.read_bytes() == content
