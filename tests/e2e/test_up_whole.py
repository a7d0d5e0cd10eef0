"""`up` as a whole on one real gateway: from nothing to a pod that wrote, and every bad certificate mended."""

from __future__ import annotations

import datetime as dt
import http.client
import json
import ssl

import pytest
from tests.support.commands import Holdfast

from holdfast.pki import CLIENT_CA_SECRET, CLIENT_SECRET, SERVER_SECRET, ClientFiles, issue, to_secret_data

pytestmark = pytest.mark.engine

NAMESPACE = "holdfast"
CLUSTER_NAMES = [
    f"holdfast-api{rest}" for rest in ("", ".holdfast", ".holdfast.svc", ".holdfast.svc.cluster.local")
]
NAMES = ["localhost", "127.0.0.1", *CLUSTER_NAMES]


class Whole:
    """A gateway with its own workloads, and a client of its API."""

    def __init__(self, gateway) -> None:
        self.gateway = gateway
        home = gateway.holdfast.home / "config" / "gateways" / gateway.name
        self.files = ClientFiles(home / "mtls")
        self.events: list[dict] = []

    def up(self) -> tuple[str, ...]:
        """Run `up` and return the steps that changed something."""
        ended = self.gateway.holdfast.run("up", self.gateway.name, "--json")
        assert ended.returncode == 0, ended.stderr
        self.events = [json.loads(line) for line in ended.stderr.splitlines()]
        return tuple(json.loads(ended.stdout)["changed"])

    def note(self, step: str) -> str:
        ended = [one for one in self.events if one["event"] == "step.finished" and one["step"] == step]
        return ended[-1]["note"]

    def order(self) -> list[str]:
        return [one["step"] for one in self.events if one["event"] in ("step.finished", "step.skipped")]

    def ask(self) -> dict:
        """The API, over mutual TLS, with the files on disk."""
        metadata = json.loads((self.files.folder.parent / "metadata.json").read_text())
        context = ssl.create_default_context(cafile=str(self.files.ca))
        context.load_cert_chain(self.files.certificate, self.files.key)
        connection = http.client.HTTPSConnection(
            "127.0.0.1", metadata["gateway_port"], timeout=10, context=context
        )
        connection.request("GET", "/v1/gateway")
        return json.loads(connection.getresponse().read())

    def pod(self) -> str:
        """The uid of the one pod of the API; old ones may still be on their way out."""
        found = self.gateway.get("pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/name=holdfast-api")
        (living,) = [pod for pod in found["items"] if not pod["metadata"].get("deletionTimestamp")]
        return living["metadata"]["uid"]

    def secrets(self) -> dict[str, str]:
        found = self.gateway.get("secrets", "-n", NAMESPACE)["items"]
        return {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in found}

    def put(self, bundle, *names: str) -> None:
        """Write Secrets as somebody else would."""
        for name, data in to_secret_data(bundle).items():
            if not names or name in names:
                patch = json.dumps({"data": data})
                self.gateway.kubectl("patch", "secret", name, "-n", NAMESPACE, "--type=merge", "-p", patch)


@pytest.fixture(scope="module")
def whole(new_gateway, tmp_path_factory):
    made = Whole(new_gateway("whole", holdfast=Holdfast(tmp_path_factory.mktemp("home"))))
    made.first = (made.up(), made.order())
    return made


def now():
    return dt.datetime.now(dt.UTC)


def test_from_nothing_to_a_pod_that_wrote_its_workspace(whole):
    changed, order = whole.first
    assert {
        "reconcile-tls",
        "write-client-files",
        "push-gateway-image",
        "apply-workloads",
        "run-probe",
    } <= set(changed)
    assert order[-1] == "write-metadata"
    for before, after in [
        ("push-gateway-image", "apply-workloads"),
        ("reconcile-tls", "apply-workloads"),
        ("apply-workloads", "wait-rollout"),
        ("wait-rollout", "wait-healthy"),
    ]:
        assert order.index(before) < order.index(after)
    assert whole.ask()["name"] == whole.gateway.name
    assert whole.gateway.get("pods,pvc", "-A", "-l", "app.kubernetes.io/part-of=holdfast")["items"] != []
    left = [each["metadata"]["name"] for each in whole.gateway.get("pvc", "-A")["items"]]
    assert left == []


def test_up_again_changes_nothing_and_restarts_nothing(whole):
    pod, secrets, first = whole.pod(), whole.secrets(), whole.files.read().bundle
    assert whole.up() == ()
    assert (whole.pod(), whole.secrets(), whole.files.read().bundle) == (pod, secrets, first)


def test_nothing_listens_beyond_loopback_and_the_pod_is_nobody(whole):
    bindings = whole.gateway.inspect()["HostConfig"]["PortBindings"]
    assert {place["HostIp"] for places in bindings.values() for place in places} == {"127.0.0.1"}
    name = whole.gateway.get("pods", "-n", NAMESPACE)["items"][0]["metadata"]["name"]
    script = "import os; print(os.getuid(), os.path.exists('/var/run/secrets'), os.access('/opt', os.W_OK))"
    said = whole.gateway.kubectl("exec", "-n", NAMESPACE, name, "--", "python3", "-c", script)
    assert said.split() == ["65532", "True", "False"]  # its account: it reaches sandboxes, and nothing else


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        pytest.param(
            lambda: issue(NAMES, at=dt.datetime(2020, 1, 1, tzinfo=dt.UTC)), "expired on", id="expired"
        ),
        pytest.param(
            lambda: issue(CLUSTER_NAMES, at=now()),
            "lacks the name localhost",
            id="missing name",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_bundle_that_is_not_good_is_replaced_and_the_workload_restarted(whole, bad, reason):
    pod = whole.pod()
    whole.put(bad())
    assert whole.up() == ("reconcile-tls", "write-client-files", "apply-workloads")
    assert reason in whole.note("reconcile-tls")
    assert whole.pod() != pod
    assert whole.ask()["name"] == whole.gateway.name
    assert not whole.files.unconfirmed  # the new ones worked, so the old ones are gone


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (SERVER_SECRET, "the server certificate was signed by another CA"),
        (CLIENT_CA_SECRET, "hold different CAs"),
    ],
)
def test_a_foreign_ca_is_found(whole, name, reason):
    whole.put(issue(NAMES, at=now()), name)
    assert "reconcile-tls" in whole.up()
    assert reason in whole.note("reconcile-tls")
    assert whole.ask()["name"] == whole.gateway.name


def test_a_secret_that_was_deleted_is_made_again_with_all_the_others(whole):
    pod, before = whole.pod(), whole.secrets()
    whole.gateway.kubectl("delete", "secret", CLIENT_SECRET, "-n", NAMESPACE)
    assert "reconcile-tls" in whole.up()
    assert f"the secret {CLIENT_SECRET} is missing" in whole.note("reconcile-tls")
    assert all(whole.secrets()[name] != before[name] for name in before)
    assert whole.pod() != pod
    assert whole.ask()["name"] == whole.gateway.name


@pytest.mark.parametrize(
    ("how", "reason"), [("cut", "half there"), ("open", "mode 0644"), ("foreign", "another CA")]
)
def test_client_files_that_are_not_good_are_written_anew_and_the_bundle_is_kept(whole, how, reason):
    pod, secrets = whole.pod(), whole.secrets()
    key = whole.files.key.resolve()
    if how == "cut":
        key.write_bytes(key.read_bytes()[:60])
    elif how == "open":
        key.chmod(0o644)
    else:
        whole.files.write(issue(NAMES, at=now()).identity)
    assert whole.up() == ("write-client-files",)
    assert reason in whole.note("write-client-files")
    assert (whole.pod(), whole.secrets()) == (pod, secrets)
    assert whole.ask()["name"] == whole.gateway.name
    assert whole.files.key.stat().st_mode & 0o777 == 0o600


def test_a_workload_that_somebody_broke_is_put_right(whole):
    whole.gateway.kubectl("set", "image", "deployment/holdfast-api", "api=nobody/has:this", "-n", NAMESPACE)
    assert whole.up() == ("apply-workloads",)
    assert "Deployment holdfast-api changed" in whole.note("apply-workloads")
    assert whole.ask()["name"] == whole.gateway.name


def test_no_key_is_in_the_store_or_in_what_was_told(whole):
    key = whole.files.key.read_text().splitlines()[1]
    told = json.dumps(whole.events)
    kept = b"".join(
        path.read_bytes()
        for path in (whole.gateway.holdfast.home / "state" / "gateways" / whole.gateway.name).glob(
            "state.db*"
        )
    )
    assert kept
    assert key not in told
    assert key.encode() not in kept


def test_destroy_takes_the_client_files_along(whole):
    """Last in this file: the gateway is gone afterwards."""
    whole.gateway.destroy()
    assert not whole.files.folder.exists()
