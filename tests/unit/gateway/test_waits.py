"""How long is waited can be set; the few times that cannot are listed here, each with its reason.

The sources of the two floors that wait for engines, hosts and nodes are read for times that are written into
them: a keyword like `timeout=` or `deadline=` with a fixed value, a constant that is called like a time, and
words like `60s` or `ConnectTimeout=10` for other programs.
"""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import holdfast

ROOT = Path(holdfast.__file__).parent
FLOORS = ("gateway", "containers")

ON_PURPOSE = {
    "containers/engine.py: timeout=60.0": "for who has no settings (image builds bring their own time); "
    "commands on a gateway say timeouts.engine",
    "containers/ssh_master.py: LONGEST_SILENCE": "bound to how long the other side keeps a silent lock",
    "containers/ssh_master.py: _PS_SECONDS": "asks this machine's own process table",
    "containers/ssh_master.py: seconds=45.0": "for who has no settings; gateways say timeouts.ssh",
    "gateway/clocks.py: MOST_SECONDS": "by how much two clocks may differ: nobody waits",
    "gateway/doctor/checks/host.py: _BAD_SECONDS": "by how much two clocks may differ: nobody waits",
    "gateway/doctor/checks/host.py: _ODD_SECONDS": "by how much two clocks may differ: nobody waits",
    "gateway/doctor/checks/pods.py: _PATIENCE": "how old a pod is before it is called late: nobody waits",
    "gateway/node_container.py: STOP_SECONDS": "for the engine alone, at a shutdown of its host; part of the "
    "container, so that a setting would recreate it",
    "gateway/push.py: _DYING_SECONDS": "grace until a node that was just killed is over; decides words alone",
    "gateway/push_node.py: '10s'": "one question of many, that are repeated until timeouts.node_ready",
    "gateway/push_node.py: '1s'": "one question of many, as above",
    "gateway/settings_model.py: _LONGEST_WAIT": "the bound of what may be set",
    "gateway/steps/health.py: _PODS_AT_ONCE": "a glance at pods inside the wait that has timeouts.health",
    "gateway/steps/probe.py: _LEAST_SECONDS": "what a wait has left at least, of timeouts.probe",
    "gateway/steps/rollback.py: _FAILED_STOP_SECONDS": "grace of a node whose datastore is thrown away",
    "gateway/steps/workloads.py: _LEAST_SECONDS": "what a wait has left at least, of timeouts.rollout",
}

KEYWORDS = frozenset((
    "timeout", "deadline", "within", "wait", "silence", "seconds", "grace_seconds", "longest",
))  # fmt: skip
NAMED_LIKE_A_TIME = re.compile(r"SECONDS|PATIENCE|TIMEOUT|DEADLINE|WAIT(?!ING)|SILENCE")
WORDS = re.compile(r"\d+(ms|s)|\w*(Timeout|Interval|CountMax)=\d+")


def is_fixed(value):
    """Whether an expression is made of numbers and constants alone."""
    if isinstance(value, ast.Constant):
        return isinstance(value.value, int | float) and not isinstance(value.value, bool)
    if isinstance(value, ast.Name):
        return value.id.isupper()
    if isinstance(value, ast.BinOp):
        return is_fixed(value.left) and is_fixed(value.right)
    return isinstance(value, ast.UnaryOp) and is_fixed(value.operand)


def shown(name, value):
    return value.id if isinstance(value, ast.Name) else f"{name}={ast.unparse(value)}"


def fixed_times(source):
    """All times that are written into a source, by the names they are known under."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.keyword) and node.arg in KEYWORDS and is_fixed(node.value):
            yield shown(node.arg, node.value)
        elif isinstance(node, ast.arguments):
            plain = [*node.posonlyargs, *node.args]
            pairs = [*zip(plain[::-1], node.defaults[::-1], strict=False)]
            pairs += zip(node.kwonlyargs, node.kw_defaults, strict=True)
            yield from (
                shown(arg.arg, value)
                for arg, value in pairs
                if value and arg.arg in KEYWORDS and is_fixed(value)
            )
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            if node.target.id in KEYWORDS and is_fixed(node.value):
                yield shown(node.target.id, node.value)
        elif isinstance(node, ast.Assign):
            yield from _constants(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and WORDS.fullmatch(node.value):
            yield repr(node.value)


def _constants(node):
    for target in node.targets:
        pairs = [(target, node.value)]
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            pairs = zip(target.elts, node.value.elts, strict=True)
        for name, value in pairs:
            if isinstance(name, ast.Name) and NAMED_LIKE_A_TIME.search(name.id) and is_fixed(value):
                yield name.id


@cache
def all_fixed_times():
    return {
        f"{path.relative_to(ROOT)}: {name}"
        for floor in FLOORS
        for path in (ROOT / floor).rglob("*.py")
        for name in fixed_times(path.read_text())
    }


def test_no_time_is_fixed_but_those_that_are_so_on_purpose():
    new = sorted(all_fixed_times() - ON_PURPOSE.keys())
    assert not new, (
        "times that nobody can set: make each a setting (timeouts.* in settings_model.py), or add it to "
        f"ON_PURPOSE in this file with the reason why nobody may ever need another one: {new}"
    )


def test_the_list_names_nothing_that_is_not_there():
    gone = sorted(ON_PURPOSE.keys() - all_fixed_times())
    assert not gone, f"no such time in the sources any more: {gone}"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("call(timeout=60)", ["timeout=60"]),
        ("call(deadline=SILENCE + 30.0)", ["deadline=SILENCE + 30.0"]),
        ("call(within=_DYING)", ["_DYING"]),
        ("def wait(name, timeout=5.0): pass", ["timeout=5.0"]),
        ("def wait(*, deadline: float = 5.0): pass", ["deadline=5.0"]),
        ("class A:\n    seconds: float = 45.0", ["seconds=45.0"]),
        ("_START_SECONDS, _ANSWER_SECONDS = 40.0, 8.0", ["_START_SECONDS", "_ANSWER_SECONDS"]),
        ("PATIENCE = 15 * 60", ["PATIENCE"]),
        ("argv = ['ctr', '--timeout', '60s']", ["'60s'"]),
        ("options = ('ConnectTimeout=10',)", ["'ConnectTimeout=10'"]),
        ("call(timeout=settings.timeouts.api, wait=True, seconds=round(took, 3))", []),
        ("_MOST_MOVES = 20", []),
    ],
)
def test_what_counts_as_a_fixed_time(source, found):
    assert list(fixed_times(source)) == found
