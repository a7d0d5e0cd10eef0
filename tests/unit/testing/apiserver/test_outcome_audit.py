"""A correct client passes the audit, and every kind of wrong report is found."""

from __future__ import annotations

import asyncio
import types

import pytest

from holdfast.testing.apiserver.outcome_audit import WORKLOAD_LABEL, Ledger, audit, run_tasks, run_threads


class MissingError(Exception):
    pass


class Store:
    """Server and client in one; subclasses report wrong outcomes."""

    def __init__(self):
        self.items = {}
        self.serial = 0

    def request(self, method, path):
        return 200, {"items": list(self.items.values())}

    def create_namespaced_config_map(self, namespace, body):
        self.serial += 1
        name = body["metadata"].get("name") or f"gen-{self.serial}"
        self.items[name] = {**body, "metadata": {**body["metadata"], "name": name}}
        return self.shown(name)

    def shown(self, name):
        item = self.items[name]
        return types.SimpleNamespace(metadata=types.SimpleNamespace(name=name), data=dict(item["data"]))

    def read_namespaced_config_map(self, name, namespace):
        if name not in self.items:
            raise MissingError
        return self.shown(name)

    def patch_namespaced_config_map(self, name, namespace, change):
        self.items[name] = {**self.items[name], "data": change["data"]}
        return self.shown(name)

    def delete_namespaced_config_map(self, name, namespace):
        del self.items[name]


def judge(call, error):
    return ("absent", "") if isinstance(error, MissingError) else ("not done", str(error))


def ran(store, calls=400):
    return audit(store, "ns", run_threads(store, "ns", judge, calls=calls, workers=1, seed=3))


def test_truthful_client_passes():
    report = ran(Store())
    assert report.mismatches == []
    assert report.outcomes == {"done": 400}
    assert str(report).startswith("400 calls in ")
    assert str(report).endswith("done 400; 0 mismatches, 0 stuck")


def test_threads_and_tasks_make_same_calls():
    class Later(Store):
        def __getattribute__(self, name):
            value = super().__getattribute__(name)
            if not name.endswith("_config_map"):
                return value

            async def later(*args):
                return value(*args)

            return later

    store = Later()
    report = audit(store, "ns", asyncio.run(run_tasks(store, "ns", judge, calls=50, workers=4)))
    assert report.outcomes == {"done": 50}
    assert report.mismatches == []


class Twice(Store):
    def create_namespaced_config_map(self, namespace, body):
        shown = super().create_namespaced_config_map(namespace, body)
        if "generateName" in body["metadata"]:
            super().create_namespaced_config_map(namespace, body)
        return shown


class Forgetful(Store):
    def create_namespaced_config_map(self, namespace, body):
        shown = super().create_namespaced_config_map(namespace, body)
        if self.serial == 5:
            raise RuntimeError
        return shown


class Lazy(Store):
    def delete_namespaced_config_map(self, name, namespace):
        pass


class Stale(Store):
    def patch_namespaced_config_map(self, name, namespace, change):
        return self.shown(name)


@pytest.mark.parametrize(
    ("liar", "words"),
    [
        (Twice, "exists 2 times"),
        (Forgetful, "the server has [0], expected [None]"),
        (Lazy, "expected [None]"),
        (Stale, "expected [1]"),
    ],
)
def test_every_false_report_is_found(liar, words):
    assert any(words in lie for lie in ran(liar()).mismatches)


def test_unreported_object_is_found():
    store = Store()
    run = run_threads(store, "ns", judge, calls=10, workers=1)
    body = {"metadata": {"name": "x", "labels": {WORKLOAD_LABEL: "stranger"}}, "data": {"value": "0"}}
    store.create_namespaced_config_map("ns", body)
    assert audit(store, "ns", run).mismatches == ["stranger: exists, but no ledger has it"]


def test_unknown_allows_both_states_and_not_done_only_the_old():
    for claim, allowed in (("unknown", {None, 0}), ("not done", {None})):
        ledger = Ledger("w", 0)
        call = ledger.next_call()
        ledger.record(call, RuntimeError(), lambda *_, claim=claim: (claim, ""), 0.0)
        assert ledger.possible_values[call.key] == allowed
