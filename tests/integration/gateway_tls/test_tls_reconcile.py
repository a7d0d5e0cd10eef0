"""Three Secrets through a failing API server end as one bundle, and a good bundle is never replaced."""

from __future__ import annotations

import datetime as dt

import pytest

from holdfast.errors import PermanentError, TemporaryError
from holdfast.gateway import GatewayContext, resolve_settings
from holdfast.gateway.cluster import ReconcileTls, WriteClientFiles, tls
from holdfast.pki import (
    CLIENT_CA_SECRET,
    CLIENT_SECRET,
    SECRET_TYPES,
    SERVER_SECRET,
    ClientCertificateStore,
    issue_bundle,
    to_secret_data,
)
from holdfast.testing.faults import Fault, rule

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(180)]

FAULTS = [
    Fault(kind="unavailable", retry_after="1"),
    Fault(kind="too-many-requests", retry_after="1"),
    Fault(kind="reset-before"),
    Fault(kind="reset-after"),
]


def now():
    return dt.datetime.now(dt.UTC)


def bundle_for(bench, **terms):
    names = ["localhost", "127.0.0.1", "holdfast-api"]
    names += [f"holdfast-api.{bench.namespace}{rest}" for rest in ("", ".svc", ".svc.cluster.local")]
    return issue_bundle(terms.pop("names", names), **{"at": now(), **terms})


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.kind)
@pytest.mark.parametrize("name", SECRET_TYPES)
def test_fault_in_any_apply_is_retried(cluster_steps, faulty_kube, name, fault):
    count = 1 if fault.retry_after else 2
    with faulty_kube.faults(rule(fault, methods="PATCH", path=f"/secrets/{name}$", count=count)) as log:
        ended = cluster_steps.run(ReconcileTls)
    assert log.faults() == {fault.kind: count}
    assert cluster_steps.judgement().is_valid
    assert ended.result("reconcile-tls")["bundle"]
    before = cluster_steps.versions()
    assert cluster_steps.run(ReconcileTls).changed == ()
    assert cluster_steps.versions() == before


def test_failed_apply_leaves_parts_that_next_run_replaces(cluster_steps, faulty_kube):
    few = GatewayContext(
        "bench", resolve_settings({"namespace": cluster_steps.namespace, "attempts.apply": 2})
    )
    few.__dict__["spec"] = cluster_steps.gateway.spec
    with (
        faulty_kube.faults(
            rule("reset-before", methods="PATCH", path=f"/secrets/{CLIENT_CA_SECRET}$")
        ) as log,
        pytest.raises(TemporaryError, match=CLIENT_CA_SECRET),
    ):
        cluster_steps.run(ReconcileTls, gateway=few)
    assert log.faults() == {"reset-before": 2}
    assert [name for name, found in cluster_steps.secrets().items() if found] == [SERVER_SECRET]
    cluster_steps.run(ReconcileTls)
    assert cluster_steps.judgement().is_valid
    assert f"the secret {CLIENT_CA_SECRET} is missing" in cluster_steps.note("reconcile-tls")


def test_mixed_bundles_are_detected_and_replaced(cluster_steps):
    one, other = bundle_for(cluster_steps), bundle_for(cluster_steps)
    cluster_steps.put({**to_secret_data(one), SERVER_SECRET: to_secret_data(other)[SERVER_SECRET]})
    cluster_steps.run(ReconcileTls)
    assert cluster_steps.judgement().is_valid
    assert "signed by another CA" in cluster_steps.note("reconcile-tls")


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({"at": dt.datetime(2020, 1, 1, tzinfo=dt.UTC)}, "expired on"),
        ({"names": ["localhost"]}, "does not cover 127.0.0.1"),
        ({"at": dt.datetime.now(dt.UTC) - dt.timedelta(days=300)}, "of its lifetime is left"),
    ],
    ids=["expired", "missing name", "near expiry"],
)
def test_invalid_bundle_is_replaced_and_note_gives_reason(cluster_steps, bad, reason):
    cluster_steps.put(to_secret_data(bundle_for(cluster_steps, **bad)))
    before = cluster_steps.versions()
    cluster_steps.run(ReconcileTls)
    assert cluster_steps.judgement().is_valid
    assert reason in cluster_steps.note("reconcile-tls")
    assert all(cluster_steps.versions()[name] != before[name] for name in before)


def test_valid_foreign_bundle_is_kept(cluster_steps):
    bundle = bundle_for(cluster_steps)
    cluster_steps.put(to_secret_data(bundle))
    before = cluster_steps.versions()
    ended = cluster_steps.run(ReconcileTls)
    assert (ended.changed, cluster_steps.versions()) == ((), before)
    assert ended.result("reconcile-tls") == {"bundle": bundle.fingerprint}


def test_rerun_step_keeps_valid_bundle(cluster_steps):
    cluster_steps.run(ReconcileTls)
    before = cluster_steps.versions()

    class Newer(ReconcileTls):
        version = 2

    assert cluster_steps.run(Newer).changed == ("reconcile-tls",)
    assert cluster_steps.versions() == before


def test_clock_skew_is_reported_and_replaces_nothing(cluster_steps):
    cluster_steps.put(to_secret_data(bundle_for(cluster_steps, at=now() + dt.timedelta(days=40))))
    before = cluster_steps.versions()
    with pytest.raises(PermanentError, match="clock skew") as caught:
        cluster_steps.run(ReconcileTls)
    assert "Correct this machine's clock" in caught.value.hint
    assert cluster_steps.versions() == before


@pytest.mark.parametrize(("days", "words"), [(400, "400 days ahead of"), (-400, "400 days behind")])
def test_valid_bundle_is_not_replaced_by_skewed_clock(cluster_steps, monkeypatch, days, words):
    cluster_steps.run(ReconcileTls, WriteClientFiles)
    before = cluster_steps.versions()
    monkeypatch.setattr(tls, "utc_now", lambda: now() + dt.timedelta(days=days))
    with pytest.raises(PermanentError, match=f"{words} the clock of gateway bench; nothing was replaced"):
        cluster_steps.run(ReconcileTls, WriteClientFiles)
    assert cluster_steps.versions() == before


def test_first_bundle_is_not_issued_with_skewed_clock(cluster_steps, monkeypatch):
    monkeypatch.setattr(tls, "utc_now", lambda: now() + dt.timedelta(hours=3))
    with pytest.raises(PermanentError, match="3 hours ahead of"):
        cluster_steps.run(ReconcileTls)
    assert not any(cluster_steps.secrets().values())


def test_secrets_of_wrong_type_and_immutable_secrets_are_recreated(cluster_steps):
    data = to_secret_data(bundle_for(cluster_steps, at=dt.datetime(2020, 1, 1, tzinfo=dt.UTC)))
    cluster_steps.put(data, types=dict.fromkeys(SECRET_TYPES, "Opaque"))
    cluster_steps.server.request("DELETE", cluster_steps.path(CLIENT_CA_SECRET))
    body = {"metadata": {"name": CLIENT_CA_SECRET}, "immutable": True, "data": data[CLIENT_CA_SECRET]}
    assert cluster_steps.server.request("POST", cluster_steps.path(), body)[0] == 201
    cluster_steps.run(ReconcileTls)
    assert cluster_steps.judgement().is_valid
    assert {name: found["type"] for name, found in cluster_steps.secrets().items()} == SECRET_TYPES


def test_client_files_follow_cluster_without_leaking_keys(cluster_steps):
    cluster_steps.run(ReconcileTls, WriteClientFiles)
    files = ClientCertificateStore(cluster_steps.gateway.files.mtls)
    first = files.read().value
    assert cluster_steps.run(ReconcileTls, WriteClientFiles).changed == ()
    cluster_steps.server.request("DELETE", cluster_steps.path(CLIENT_SECRET))
    assert cluster_steps.run(ReconcileTls, WriteClientFiles).changed == (
        "reconcile-tls",
        "write-client-files",
    )
    second = files.read().value
    assert second != first
    assert files.is_unconfirmed  # the old one stays until the new one has worked
    told = cluster_steps.told()
    for pem in (first.client.key, second.client.key):
        for line in pem.decode().splitlines()[1:-1]:
            assert line not in told
    assert (cluster_steps.home / "state.db").stat().st_size > 0


@pytest.mark.parametrize("how", ["cut", "open", "gone", "foreign"])
def test_invalid_client_files_are_replaced(cluster_steps, how):
    cluster_steps.run(ReconcileTls, WriteClientFiles)
    files = ClientCertificateStore(cluster_steps.gateway.files.mtls)
    good, before = files.read().value, cluster_steps.versions()
    key = files.key.resolve()
    if how == "cut":
        key.write_bytes(key.read_bytes()[:60])
        key.chmod(0o600)
    elif how == "open":
        key.chmod(0o644)
    elif how == "gone":
        key.unlink()
    else:
        files.write(bundle_for(cluster_steps).client_identity)
    assert cluster_steps.run(ReconcileTls, WriteClientFiles).changed == ("write-client-files",)
    assert files.read().value == good
    assert not files.read().problems
    assert cluster_steps.versions() == before
    expected = {"cut": "incomplete", "open": "mode 0644", "gone": "is missing", "foreign": "another CA"}
    assert expected[how] in cluster_steps.note("write-client-files")
