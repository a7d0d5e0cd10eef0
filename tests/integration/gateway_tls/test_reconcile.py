"""Three Secrets through a failing API server end as one bundle, and a good bundle is never replaced."""

from __future__ import annotations

import datetime as dt

import pytest

from holdfast.errors import PermanentError, TemporaryError
from holdfast.gateway import clocks
from holdfast.gateway.settings import resolve
from holdfast.gateway.steps.tls import ReconcileTls, WriteClientFiles
from holdfast.gateway.work import Work
from holdfast.pki import (
    CLIENT_CA_SECRET,
    CLIENT_SECRET,
    SECRET_TYPES,
    SERVER_SECRET,
    ClientFiles,
    issue,
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
    return issue(terms.pop("names", names), **{"at": now(), **terms})


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.kind)
@pytest.mark.parametrize("name", SECRET_TYPES)
def test_a_fault_in_any_of_the_applies_is_survived(bench, faulty_kube, name, fault):
    count = 1 if fault.retry_after else 2
    with faulty_kube.faults(rule(fault, methods="PATCH", path=f"/secrets/{name}$", count=count)) as log:
        ended = bench.run(ReconcileTls)
    assert log.faults() == {fault.kind: count}
    assert bench.judgement().good
    assert ended.result("reconcile-tls")["bundle"]
    before = bench.versions()
    assert bench.run(ReconcileTls).changed == ()
    assert bench.versions() == before


def test_an_apply_that_never_succeeds_leaves_parts_that_the_next_run_replaces(bench, faulty_kube):
    few = Work("bench", resolve({"namespace": bench.namespace, "attempts.apply": 2}))
    few.__dict__["spec"] = bench.work.spec
    with (
        faulty_kube.faults(
            rule("reset-before", methods="PATCH", path=f"/secrets/{CLIENT_CA_SECRET}$")
        ) as log,
        pytest.raises(TemporaryError, match=CLIENT_CA_SECRET),
    ):
        bench.run(ReconcileTls, work=few)
    assert log.faults() == {"reset-before": 2}
    assert [name for name, found in bench.secrets().items() if found] == [SERVER_SECRET]
    bench.run(ReconcileTls)
    assert bench.judgement().good
    assert f"the secret {CLIENT_CA_SECRET} is missing" in bench.note("reconcile-tls")


def test_parts_of_two_bundles_are_found_and_replaced(bench):
    one, other = bundle_for(bench), bundle_for(bench)
    bench.put({**to_secret_data(one), SERVER_SECRET: to_secret_data(other)[SERVER_SECRET]})
    bench.run(ReconcileTls)
    assert bench.judgement().good
    assert "signed by another CA" in bench.note("reconcile-tls")


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({"at": dt.datetime(2020, 1, 1, tzinfo=dt.UTC)}, "expired on"),
        ({"names": ["localhost"]}, "lacks the name 127.0.0.1"),
        ({"at": dt.datetime.now(dt.UTC) - dt.timedelta(days=300)}, "of its life is left"),
    ],
    ids=["expired", "missing name", "near expiry"],
)
def test_a_bundle_that_is_not_good_is_replaced_and_the_line_says_why(bench, bad, reason):
    bench.put(to_secret_data(bundle_for(bench, **bad)))
    before = bench.versions()
    bench.run(ReconcileTls)
    assert bench.judgement().good
    assert reason in bench.note("reconcile-tls")
    assert all(bench.versions()[name] != before[name] for name in before)


def test_a_good_bundle_of_somebody_else_is_kept(bench):
    bundle = bundle_for(bench)
    bench.put(to_secret_data(bundle))
    before = bench.versions()
    ended = bench.run(ReconcileTls)
    assert (ended.changed, bench.versions()) == ((), before)
    assert ended.result("reconcile-tls") == {"bundle": bundle.fingerprint}


def test_a_step_that_has_to_run_again_keeps_a_good_bundle_all_the_same(bench):
    bench.run(ReconcileTls)
    before = bench.versions()

    class Newer(ReconcileTls):
        version = 2

    assert bench.run(Newer).changed == ("reconcile-tls",)
    assert bench.versions() == before


def test_a_clock_that_is_off_replaces_nothing_and_is_named(bench):
    bench.put(to_secret_data(bundle_for(bench, at=now() + dt.timedelta(days=40))))
    before = bench.versions()
    with pytest.raises(PermanentError, match="a clock is off") as caught:
        bench.run(ReconcileTls)
    assert "clock right" in caught.value.hint
    assert bench.versions() == before


@pytest.mark.parametrize(("days", "words"), [(400, "400 days ahead of"), (-400, "400 days behind")])
def test_a_good_bundle_is_not_replaced_on_the_word_of_a_clock_far_off(bench, monkeypatch, days, words):
    bench.run(ReconcileTls, WriteClientFiles)
    before = bench.versions()
    monkeypatch.setattr(clocks, "now", lambda: now() + dt.timedelta(days=days))
    with pytest.raises(PermanentError, match=f"{words} that of gateway bench; nothing was replaced"):
        bench.run(ReconcileTls, WriteClientFiles)
    assert bench.versions() == before


def test_no_first_bundle_is_made_by_a_clock_that_is_far_off(bench, monkeypatch):
    monkeypatch.setattr(clocks, "now", lambda: now() + dt.timedelta(hours=3))
    with pytest.raises(PermanentError, match="3 hours ahead of"):
        bench.run(ReconcileTls)
    assert not any(bench.secrets().values())


def test_secrets_of_another_type_and_immutable_ones_make_room(bench):
    data = to_secret_data(bundle_for(bench, at=dt.datetime(2020, 1, 1, tzinfo=dt.UTC)))
    bench.put(data, types=dict.fromkeys(SECRET_TYPES, "Opaque"))
    bench.server.request("DELETE", bench.path(CLIENT_CA_SECRET))
    body = {"metadata": {"name": CLIENT_CA_SECRET}, "immutable": True, "data": data[CLIENT_CA_SECRET]}
    assert bench.server.request("POST", bench.path(), body)[0] == 201
    bench.run(ReconcileTls)
    assert bench.judgement().good
    assert {name: found["type"] for name, found in bench.secrets().items()} == SECRET_TYPES


def test_client_files_follow_the_cluster_and_no_key_is_ever_told(bench):
    bench.run(ReconcileTls, WriteClientFiles)
    files = ClientFiles(bench.work.files.mtls)
    first = files.read().bundle
    assert bench.run(ReconcileTls, WriteClientFiles).changed == ()
    bench.server.request("DELETE", bench.path(CLIENT_SECRET))
    assert bench.run(ReconcileTls, WriteClientFiles).changed == ("reconcile-tls", "write-client-files")
    second = files.read().bundle
    assert second != first
    assert files.unconfirmed  # the old one stays until the new one has worked
    told = bench.told()
    for pem in (first.client.key, second.client.key):
        for line in pem.decode().splitlines()[1:-1]:
            assert line not in told
    assert (bench.home / "state.db").stat().st_size > 0


@pytest.mark.parametrize("how", ["cut", "open", "gone", "foreign"])
def test_client_files_that_are_not_good_are_replaced(bench, how):
    bench.run(ReconcileTls, WriteClientFiles)
    files = ClientFiles(bench.work.files.mtls)
    good, before = files.read().bundle, bench.versions()
    key = files.key.resolve()
    if how == "cut":
        key.write_bytes(key.read_bytes()[:60])
        key.chmod(0o600)
    elif how == "open":
        key.chmod(0o644)
    elif how == "gone":
        key.unlink()
    else:
        files.write(bundle_for(bench).identity)
    assert bench.run(ReconcileTls, WriteClientFiles).changed == ("write-client-files",)
    assert files.read().bundle == good
    assert not files.read().reasons
    assert bench.versions() == before
    expected = {"cut": "half there", "open": "mode 0644", "gone": "is missing", "foreign": "another CA"}
    assert expected[how] in bench.note("write-client-files")
