"""Rules: matching, counting, reproducible seeds, and errors that name the key."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from holdfast.errors import UsageError
from holdfast.testing.faults import (
    FAULT_KINDS,
    Fault,
    FaultScriptError,
    RequestRecord,
    Rule,
    load_script,
    parse_script,
    rule,
)
from holdfast.testing.faults.rules import FaultSelector

GET = RequestRecord(number=1, method="GET", path="/api/v1/pods", query="limit=5")
POST = RequestRecord(number=2, method="POST", path="/api/v1/namespaces/a/pods")
HEADERS = [("Authorization", "Bearer stale")]


def select(selector, *requests):
    return [selector.select_fault(request, HEADERS) for request in requests]


def struck(selector, *requests):
    return [None if fault is None else fault.kind for fault in select(selector, *requests)]


def test_selected_fault_and_rule_are_recorded():
    record = RequestRecord(number=1, method="GET", path="/")
    FaultSelector([rule("gone", name="old version")]).select_fault(record, ())
    assert (record.rule, record.fault) == ("old version", "gone")


def test_first_matching_rule_wins():
    decider = FaultSelector([rule("gone", methods="GET"), rule("reset-before")])
    assert struck(decider, GET, POST) == ["gone", "reset-before"]


@pytest.mark.parametrize(
    ("settings", "hit"),
    [
        ({"methods": ("GET", "PUT")}, True),
        ({"methods": "POST"}, False),
        ({"path": "/pods$"}, True),
        ({"path": "^/pods"}, False),
        ({"query": "limit=\\d"}, True),
        ({"query": "watch"}, False),
        ({"header": "^authorization: Bearer stale$"}, True),
        ({"header": "fresh"}, False),
    ],
)
def test_rule_matching(settings, hit):
    assert (struck(FaultSelector([rule("gone", **settings)]), GET) == ["gone"]) is hit


def test_nth_after_and_count():
    kinds = struck(FaultSelector([rule("gone", nth=(2, 4))]), *[GET] * 5)
    assert [k is not None for k in kinds] == [False, True, False, True, False]
    kinds = struck(FaultSelector([rule("gone", after=2, count=2)]), *[GET] * 6)
    assert [k is not None for k in kinds] == [False, False, True, True, False, False]
    kinds = struck(FaultSelector([rule("gone", after=2, nth=1)]), *[GET] * 4)
    assert [k is not None for k in kinds] == [False, False, True, False]


@given(st.integers(), st.lists(st.sampled_from([GET, POST]), max_size=60))
def test_same_seed_and_order_give_same_faults(seed, requests):
    rules = [
        rule("too-many-requests", retry_after=["1", "0"], probability=0.2),
        rule("reset-after", "gone", "slow", probability=0.5),
    ]
    first, second = FaultSelector(rules, seed), FaultSelector(rules, seed)
    assert select(first, *requests) == select(second, *requests)


def test_seeds_differ_and_probabilities_hold():
    rules = [rule("gone", probability=0.3)]
    runs = [struck(FaultSelector(rules, seed), *[GET] * 2000) for seed in (1, 2)]
    assert runs[0] != runs[1]
    assert all(0.25 < sum(k is not None for k in run) / 2000 < 0.35 for run in runs)


def test_rule_draws_independently_of_others():
    alone = struck(FaultSelector([rule("gone", probability=0.5)], 3), *[GET] * 50)
    beside = struck(
        FaultSelector([rule("gone", probability=0.5), rule("slow", methods="PUT")], 3), *[GET] * 50
    )
    assert alone == beside


@pytest.mark.parametrize(
    ("make", "key"),
    [
        (lambda: Fault(kind="explode"), "kind"),
        (lambda: Fault(kind="slow", seconds=-1), "seconds"),
        (lambda: Fault(kind="slow", seconds=float("nan")), "seconds"),
        (lambda: Fault(kind="slow", commit=True), "commit"),
        (lambda: Fault(kind="html", status=99), "status"),
        (lambda: Fault(kind="truncated", bytes=-1), "bytes"),
        (lambda: Fault(kind="unavailable", retry_after="date:soon"), "retry_after"),
        (lambda: Fault(kind="unavailable", retry_after="1\r\nX: y"), "retry_after"),
        (lambda: Rule(faults=()), "faults"),
        (lambda: rule("gone", probability=1.5), "probability"),
        (lambda: rule("gone", probability=float("nan")), "probability"),
        (lambda: rule("gone", nth=0), "nth"),
        (lambda: rule("gone", after=-1), "after"),
        (lambda: rule("gone", count=0), "count"),
        (lambda: rule("gone", path="("), "path"),
        (lambda: rule("gone", methods="get"), "methods"),
        (lambda: rule("gone", colour="red"), "colour"),
        (lambda: rule("gone", seconds=3), "seconds"),
        (lambda: rule("gone", probability="often"), "probability"),
    ],
)
def test_invalid_rules_name_key(make, key):
    with pytest.raises(FaultScriptError, match=key) as caught:
        make()
    assert isinstance(caught.value, UsageError)


def test_script_is_parsed():
    script = parse_script("""
        seed = 7
        [[rule]]
        name = "lost answers"
        fault = ["reset-after", {kind = "gateway-timeout", commit = true}]
        methods = ["POST"]
        probability = 0.3
        [[rule]]
        fault = "too-many-requests"
        retry_after = ["1", "date:+2", "absent"]
        nth = 3
    """)
    assert script.seed == 7
    assert [r.name for r in script.rules] == ["lost answers", ""]
    assert script.rules[0].faults == (Fault(kind="reset-after"), Fault(kind="gateway-timeout", commit=True))
    assert script.rules[1].nth == (3,)
    assert script.rules[1].faults[0].retry_after_forms == ("1", "date:+2", "absent")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("seed = ", "not TOML"),
        ("seed = 'x'", "seed"),
        ("seed = true", "seed"),
        ("speed = 1", "speed"),
        ("rule = 1", "rule"),
        ("[[rule]]\npath = 'x'", "rule 1: fault: is missing"),
        ("[[rule]]\nfault = 'gone'\n[[rule]]\nname = 'b'\nfault = 'gon'", r"rule 2 \(b\): kind: 'gon'"),
        ("[[rule]]\nfault = 'gone'\nprobabilty = 0.1", "rule 1: .*probabilty"),
        ("[[rule]]\nfault = 'gone'\nprobability = 'x'", "rule 1: .*probability"),
        ("[[rule]]\nfault = {kind = 'slow', second = 1}", "rule 1: .*second"),
        ("[[rule]]\nfault = 3", "rule 1: fault: 3"),
        ("[[rule]]\nfault = []", "rule 1: faults"),
        ("[[rule]]\nfault = 'gone'\nfaults = []", "rule 1: faults: unknown"),
        ("[[rule]]\nfault = 'gone'\nretry_after = '1'", "rule 1: retry_after"),
    ],
)
def test_invalid_script_names_rule_and_key(text, words):
    with pytest.raises(FaultScriptError, match=words):
        parse_script(text)


def test_script_errors_name_file(tmp_path):
    path = tmp_path / "faults.toml"
    with pytest.raises(FaultScriptError, match=r"faults\.toml: cannot be read"):
        load_script(path)
    path.write_bytes(b"\xff")
    with pytest.raises(FaultScriptError, match="cannot be read"):
        load_script(path)
    path.write_text("x = 1")
    with pytest.raises(FaultScriptError, match=r"faults\.toml: .*unknown field `x`"):
        load_script(path)


def test_every_fault_kind_has_description():
    assert all(kind.description for kind in FAULT_KINDS.values())
