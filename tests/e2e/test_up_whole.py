"""`up` as a whole on one real gateway: from nothing to a pod that wrote, and every bad certificate mended."""

from __future__ import annotations

import copy
import datetime as dt
import http.client
import json
import ssl

import pytest
from tests.support.commands import Holdfast

from holdfast.pki import (
    CLIENT_CA_SECRET,
    CLIENT_SECRET,
    SERVER_SECRET,
    Authority,
    Bundle,
    ClientFiles,
    from_secret_data,
    issue,
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
SOON = Policy(attempts=None, deadline=60, backoff=constant(0.5), retry_on=REFUSED)


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

    def connect(self, pair=ON_DISK, ca: bytes = b"") -> http.client.HTTPSConnection:
        """A way to the API, whose certificate was found good; the API has not said yet what it thinks."""
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
        return answer(self.connect(pair, ca))

    def assert_refused(self, pair, ca: bytes = b"") -> None:
        connection = self.connect(pair, ca)
        with pytest.raises(REFUSED):
            answer(connection)

    def pod(self) -> str:
        """The uid of the one pod of the API; old ones may still be on their way out."""
        found = self.gateway.get("pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/name=holdfast-api")
        (living,) = [pod for pod in found["items"] if not pod["metadata"].get("deletionTimestamp")]
        return living["metadata"]["uid"]

    def secrets(self) -> dict[str, str]:
        found = self.gateway.get("secrets", "-n", NAMESPACE)["items"]
        return {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in found}

    def bundle(self) -> Bundle:
        found = self.gateway.get("secrets", "-n", NAMESPACE)["items"]
        return from_secret_data({each["metadata"]["name"]: each["data"] for each in found}).bundle

    def use_at_once(self, bundle) -> None:
        """Write Secrets, and wait until the API has them: the node puts them into its files on a change."""
        self.put(bundle)
        pods = ("pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/name=holdfast-api")

        def change_and_ask() -> None:
            self.gateway.kubectl("annotate", "--overwrite", *pods, f"test/looked-at={now().timestamp()}")
            self.ask(bundle.client, bundle.ca)

        SOON.call(change_and_ask)

    def put(self, bundle, *names: str) -> None:
        """Write Secrets as somebody else would."""
        for name, data in to_secret_data(bundle).items():
            if not names or name in names:
                patch = json.dumps({"data": data})
                self.gateway.kubectl("patch", "secret", name, "-n", NAMESPACE, "--type=merge", "-p", patch)


def answer(connection: http.client.HTTPSConnection) -> dict:
    connection.request("GET", "/v1/gateway")
    return json.loads(connection.getresponse().read())


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


def test_no_certificate_one_of_another_ca_and_an_expired_one_are_refused(whole):
    """The gateway's own CA signs nothing more: for an expired client of its CA, it gets one of ours."""
    for pair in (None, issue(NAMES, at=now()).client):
        whole.assert_refused(pair)
    assert whole.ask()["name"] == whole.gateway.name
    before = whole.bundle()
    authority = Authority(at=now())
    past = copy.copy(authority)
    past._end = now() - dt.timedelta(minutes=1)
    ours = Bundle(ca=authority.certificate, server=authority.server(NAMES), client=authority.client())
    try:
        whole.use_at_once(ours)
        whole.assert_refused(past.client(), ours.ca)
        whole.assert_refused(before.client, ours.ca)
        assert whole.ask(ours.client, ours.ca)["name"] == whole.gateway.name
    finally:
        whole.use_at_once(before)
    whole.assert_refused(ours.client)


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
    pod, revoked = whole.pod(), whole.files.read().bundle.client
    assert whole.ask(pair=revoked)["name"] == whole.gateway.name
    whole.put(bad())
    assert whole.up() == ("reconcile-tls", "write-client-files", "apply-workloads")
    assert reason in whole.note("reconcile-tls")
    assert whole.pod() != pod
    assert whole.ask()["name"] == whole.gateway.name
    whole.assert_refused(revoked)
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
