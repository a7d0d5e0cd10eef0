"""Every timeout is a setting, except those listed here with a reason.

The test scans the packages that wait for engines, hosts and nodes for hardcoded times: a keyword like
`timeout=` with a fixed value, a constant named like a time, and arguments like `60s` or `ConnectTimeout=10`
for other programs.
"""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import holdfast

ROOT = Path(holdfast.__file__).parent
PACKAGES = ("gateway", "containers", "remote")

ON_PURPOSE = {
    "remote/container_engine.py: timeout=60.0": "default without settings (image builds set their own); "
    "gateway commands pass timeouts.engine",
    "remote/control_master.py: MAX_SILENCE_SECONDS": "bound to how long the remote side keeps a silent lock",
    "remote/lock.py: HEARTBEAT_SECONDS": "protocol between the two sides of a remote lock",
    "remote/lock.py: HEARTBEAT_TIMEOUT_SECONDS": "protocol between the two sides of a remote lock",
    "remote/lock.py: timeout=30.0": "default without settings; gateways pass timeouts.ssh",
    "gateway/cluster/kubeconfig.py: deadline=5.0": "lock file of a local file; no settings are loaded",
    "gateway/cluster/tls.py: _MAX_SKEW_SECONDS": "tolerated clock skew, not a wait",
    "gateway/doctor/checks/engine_host.py: _SKEW_PROBLEM_SECONDS": "tolerated clock skew, not a wait",
    "gateway/doctor/checks/engine_host.py: _SKEW_WARNING_SECONDS": "tolerated clock skew, not a wait",
    "gateway/doctor/checks/cluster.py: _STUCK_AFTER_SECONDS": "age of a pod that counts as stuck, not a wait",
    "gateway/node/container.py: SHUTDOWN_GRACE_SECONDS": "for the engine alone, at a shutdown of its host; part of the "  # noqa: E501
    "container, so that a setting would recreate it",
    "gateway/image_push/push.py: _NODE_EXIT_SECONDS": "grace until a node that was just killed is over; decides words alone",  # noqa: E501
    "gateway/image_push/containerd_images.py: '10s'": "one question of many, that are repeated until timeouts.node_ready",  # noqa: E501
    "gateway/image_push/containerd_images.py: '1s'": "one question of many, as above",
    "gateway/pv_migration/stale_nodes.py: grace_seconds=0": "the kubelet of that pod is gone",
    "gateway/base_steps.py: _MIN_WAIT_SECONDS": "minimum rest of timeouts.probe and timeouts.rollout",
    "gateway/upgrade/upgrade_steps.py: _FAILED_STOP_SECONDS": "grace of a node whose datastore is thrown away",  # noqa: E501
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
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        for name in fixed_times(path.read_text())
    }


def test_only_listed_timeouts_are_hardcoded():
    new = sorted(all_fixed_times() - ON_PURPOSE.keys())
    assert not new, (
        "hardcoded times: make each a setting (timeouts.* in settings/models.py), or add it to "
        f"ON_PURPOSE in this file with a reason: {new}"
    )


def test_allow_list_has_no_unused_entries():
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
def test_hardcoded_timeout_detection(source, found):
    assert list(fixed_times(source)) == found
