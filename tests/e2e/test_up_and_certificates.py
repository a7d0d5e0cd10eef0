"""`up` on one real gateway: from nothing to a pod that has written, and repair of invalid certificates."""

from __future__ import annotations

import copy
import datetime as dt
import http.client
import json
import ssl

import pytest
from tests.support.holdfast_cli import HoldfastCli

from holdfast.pki import (
    CLIENT_CA_SECRET,
    CLIENT_SECRET,
    SERVER_SECRET,
    CertificateAuthority,
    CertificateBundle,
    ClientCertificateStore,
    from_secret_data,
    issue_bundle,
    to_secret_data,
)
from holdfast.retry import Policy, constant

pytestmark = pytest.mark.engine

NAMESPACE = "holdfast"
CLUSTER_NAMES = [
    f"holdfast-api{rest}" for rest in ("", ".holdfast", ".holdfast.svc", ".holdfast.svc.cluster.local")
]
NAMES = ["localhost", "127.0.0.1", *CLUSTER_NAMES]
ON_DISK = object()
REFUSED = (ConnectionError, ssl.SSLError)
EVENTUALLY = Policy(attempts=None, deadline=60, backoff=constant(0.5), retry_on=REFUSED)


class RunningGateway:
    """A gateway with its own workloads, and a client of its API."""

    def __init__(self, gateway) -> None:
        self.gateway = gateway
        home = gateway.holdfast.home / "config" / "gateways" / gateway.name
        self.files = ClientCertificateStore(home / "mtls")
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

    def connect(self, pair=ON_DISK, ca: bytes = b"") -> http.client.HTTPSConnection:
        """Connect to the API and verify its certificate; the API has not verified the client yet."""
        metadata = json.loads((self.files.folder.parent / "metadata.json").read_text())
        context = ssl.create_default_context(cadata=(ca or self.files.ca.read_bytes()).decode())
        if pair is ON_DISK:
            context.load_cert_chain(self.files.certificate, self.files.key)
        elif pair is not None:
            file = self.gateway.holdfast.home / "another-client.pem"
            file.write_bytes(pair.certificate + b"\n" + pair.key)
            context.load_cert_chain(file)
        connection = http.client.HTTPSConnection(
            "127.0.0.1", metadata["gateway_port"], timeout=10, context=context
        )
        connection.connect()
        return connection

    def ask(self, pair=ON_DISK, ca: bytes = b"") -> dict:
        """The API, over mutual TLS, with the files on disk or as another client; None has no certificate."""
        return read_response(self.connect(pair, ca))

    def assert_refused(self, pair, ca: bytes = b"") -> None:
        connection = self.connect(pair, ca)
        with pytest.raises(REFUSED):
            read_response(connection)

    def pod(self) -> str:
        """The uid of the one pod of the API; old ones may still be on their way out."""
        found = self.gateway.get("pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/name=holdfast-api")
        (living,) = [pod for pod in found["items"] if not pod["metadata"].get("deletionTimestamp")]
        return living["metadata"]["uid"]

    def secrets(self) -> dict[str, str]:
        found = self.gateway.get("secrets", "-n", NAMESPACE)["items"]
        return {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in found}

    def bundle(self) -> CertificateBundle:
        found = self.gateway.get("secrets", "-n", NAMESPACE)["items"]
        return from_secret_data({each["metadata"]["name"]: each["data"] for each in found}).value

    def use_at_once(self, bundle) -> None:
        """Write Secrets, and wait until the API has them: the node puts them into its files on a change."""
        self.put(bundle)
        pods = ("pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/name=holdfast-api")

        def change_and_ask() -> None:
            self.gateway.kubectl("annotate", "--overwrite", *pods, f"test/looked-at={now().timestamp()}")
            self.ask(bundle.client, bundle.ca)

        EVENTUALLY.call(change_and_ask)

    def put(self, bundle, *names: str) -> None:
        """Write Secrets as another client."""
        for name, data in to_secret_data(bundle).items():
            if not names or name in names:
                patch = json.dumps({"data": data})
                self.gateway.kubectl("patch", "secret", name, "-n", NAMESPACE, "--type=merge", "-p", patch)


def read_response(connection: http.client.HTTPSConnection) -> dict:
    connection.request("GET", "/v1/gateway")
    return json.loads(connection.getresponse().read())


@pytest.fixture(scope="module")
def running_gateway(new_gateway, tmp_path_factory):
    made = RunningGateway(new_gateway("whole", holdfast=HoldfastCli(tmp_path_factory.mktemp("home"))))
    made.first = (made.up(), made.order())
    return made


def now():
    return dt.datetime.now(dt.UTC)


def test_up_from_nothing_runs_pod_with_workspace(running_gateway):
    changed, order = running_gateway.first
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
    assert running_gateway.ask()["name"] == running_gateway.gateway.name
    assert (
        running_gateway.gateway.get("pods,pvc", "-A", "-l", "app.kubernetes.io/part-of=holdfast")["items"]
        != []
    )
    left = [each["metadata"]["name"] for each in running_gateway.gateway.get("pvc", "-A")["items"]]
    assert left == []


def test_repeated_up_changes_and_restarts_nothing(running_gateway):
    pod, secrets, first = (
        running_gateway.pod(),
        running_gateway.secrets(),
        running_gateway.files.read().value,
    )
    assert running_gateway.up() == ()
    assert (running_gateway.pod(), running_gateway.secrets(), running_gateway.files.read().value) == (
        pod,
        secrets,
        first,
    )


def test_node_listens_on_loopback_only_and_pod_is_unprivileged(running_gateway):
    bindings = running_gateway.gateway.inspect()["HostConfig"]["PortBindings"]
    assert {place["HostIp"] for places in bindings.values() for place in places} == {"127.0.0.1"}
    name = running_gateway.gateway.get("pods", "-n", NAMESPACE)["items"][0]["metadata"]["name"]
    script = "import os; print(os.getuid(), os.path.exists('/var/run/secrets'), os.access('/opt', os.W_OK))"
    said = running_gateway.gateway.kubectl("exec", "-n", NAMESPACE, name, "--", "python3", "-c", script)
    assert said.split() == ["65532", "True", "False"]  # its account: it reaches sandboxes, and nothing else


def test_missing_foreign_and_expired_client_certificates_are_rejected(running_gateway):
    """The gateway's own CA signs nothing more: for an expired client of its CA, it gets one of ours."""
    for pair in (None, issue_bundle(NAMES, at=now()).client):
        running_gateway.assert_refused(pair)
    assert running_gateway.ask()["name"] == running_gateway.gateway.name
    before = running_gateway.bundle()
    authority = CertificateAuthority(at=now())
    past = copy.copy(authority)
    past._not_after = now() - dt.timedelta(minutes=1)
    ours = CertificateBundle(
        ca=authority.certificate, server=authority.issue_server(NAMES), client=authority.issue_client()
    )
    try:
        running_gateway.use_at_once(ours)
        running_gateway.assert_refused(past.issue_client(), ours.ca)
        running_gateway.assert_refused(before.client, ours.ca)
        assert running_gateway.ask(ours.client, ours.ca)["name"] == running_gateway.gateway.name
    finally:
        running_gateway.use_at_once(before)
    running_gateway.assert_refused(ours.client)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        pytest.param(
            lambda: issue_bundle(NAMES, at=dt.datetime(2020, 1, 1, tzinfo=dt.UTC)), "expired on", id="expired"
        ),
        pytest.param(
            lambda: issue_bundle(CLUSTER_NAMES, at=now()),
            "does not cover localhost",
            id="missing name",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_invalid_bundle_is_replaced_and_workload_restarted(running_gateway, bad, reason):
    pod, revoked = running_gateway.pod(), running_gateway.files.read().value.client
    assert running_gateway.ask(pair=revoked)["name"] == running_gateway.gateway.name
    running_gateway.put(bad())
    assert running_gateway.up() == ("reconcile-tls", "write-client-files", "apply-workloads")
    assert reason in running_gateway.note("reconcile-tls")
    assert running_gateway.pod() != pod
    assert running_gateway.ask()["name"] == running_gateway.gateway.name
    running_gateway.assert_refused(revoked)
    assert not running_gateway.files.is_unconfirmed  # the new ones worked, so the old ones are gone


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (SERVER_SECRET, "the server certificate was signed by another CA"),
        (CLIENT_CA_SECRET, "contain different CAs"),
    ],
)
def test_foreign_ca_is_detected(running_gateway, name, reason):
    running_gateway.put(issue_bundle(NAMES, at=now()), name)
    assert "reconcile-tls" in running_gateway.up()
    assert reason in running_gateway.note("reconcile-tls")
    assert running_gateway.ask()["name"] == running_gateway.gateway.name


def test_deleted_secret_is_recreated_with_whole_bundle(running_gateway):
    pod, before = running_gateway.pod(), running_gateway.secrets()
    running_gateway.gateway.kubectl("delete", "secret", CLIENT_SECRET, "-n", NAMESPACE)
    assert "reconcile-tls" in running_gateway.up()
    assert f"the secret {CLIENT_SECRET} is missing" in running_gateway.note("reconcile-tls")
    assert all(running_gateway.secrets()[name] != before[name] for name in before)
    assert running_gateway.pod() != pod
    assert running_gateway.ask()["name"] == running_gateway.gateway.name


@pytest.mark.parametrize(
    ("how", "reason"), [("cut", "incomplete"), ("open", "mode 0644"), ("foreign", "another CA")]
)
def test_invalid_client_files_are_rewritten_and_bundle_is_kept(running_gateway, how, reason):
    pod, secrets = running_gateway.pod(), running_gateway.secrets()
    key = running_gateway.files.key.resolve()
    if how == "cut":
        key.write_bytes(key.read_bytes()[:60])
    elif how == "open":
        key.chmod(0o644)
    else:
        running_gateway.files.write(issue_bundle(NAMES, at=now()).client_identity)
    assert running_gateway.up() == ("write-client-files",)
    assert reason in running_gateway.note("write-client-files")
    assert (running_gateway.pod(), running_gateway.secrets()) == (pod, secrets)
    assert running_gateway.ask()["name"] == running_gateway.gateway.name
    assert running_gateway.files.key.stat().st_mode & 0o777 == 0o600


def test_modified_workload_is_restored(running_gateway):
    running_gateway.gateway.kubectl(
        "set", "image", "deployment/holdfast-api", "api=nobody/has:this", "-n", NAMESPACE
    )
    assert running_gateway.up() == ("apply-workloads",)
    assert "Deployment holdfast-api changed" in running_gateway.note("apply-workloads")
    assert running_gateway.ask()["name"] == running_gateway.gateway.name


def test_no_key_in_store_or_events(running_gateway):
    key = running_gateway.files.key.read_text().splitlines()[1]
    told = json.dumps(running_gateway.events)
    kept = b"".join(
        path.read_bytes()
        for path in (
            running_gateway.gateway.holdfast.home / "state" / "gateways" / running_gateway.gateway.name
        ).glob("state.db*")
    )
    assert kept
    assert key not in told
    assert key.encode() not in kept


def test_destroy_removes_client_files(running_gateway):
    """Last in this file: the gateway is gone afterwards."""
    running_gateway.gateway.destroy()
    assert not running_gateway.files.folder.exists()
