"""Facts are collected once; the gateway is chosen even if settings or files are invalid."""

import threading

import pytest

from holdfast.errors import UsageError
from holdfast.gateway.doctor.facts import GatewayFacts, load_facts
from holdfast.gateway.registry import GatewayFiles


def test_fact_is_collected_once():
    facts, calls, barrier = GatewayFacts(None), [], threading.Barrier(5)

    def compute():
        calls.append(1)
        return "fact"

    def read():
        barrier.wait()
        assert facts.compute_once("key", compute) == "fact"

    threads = [threading.Thread(target=read) for _ in range(5)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert calls == [1]


def test_error_of_a_fact_is_kept():
    facts, calls = GatewayFacts(None), []

    def compute():
        calls.append(1)
        raise ValueError("no value")

    for _ in range(2):
        with pytest.raises(ValueError, match="no value"):
            facts.compute_once("key", compute)
    assert calls == [1]


def test_invalid_settings_and_active_file_are_findings(monkeypatch):
    monkeypatch.setenv("HOLDFAST_PORT", "many")
    directory = GatewayFiles("dev").directory
    directory.mkdir(parents=True)
    (directory.parent.parent / "active").write_bytes(b"\xff\xfe/../x")
    facts = load_facts(None)
    assert {finding.code for finding in facts.initial_findings} == {"settings-bad", "active-damaged"}
    assert facts.name == "dev"


def test_variable_names_the_gateway(monkeypatch):
    monkeypatch.setenv("HOLDFAST_GATEWAY", "dev")
    assert load_facts(None).name == "dev"
    assert load_facts("other").name == "other"


def test_invalid_name_is_a_usage_error():
    with pytest.raises(UsageError):
        load_facts("../etc")
