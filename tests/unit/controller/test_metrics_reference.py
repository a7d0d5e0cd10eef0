"""docs/reference/metrics.md lists every metric with its type and labels, and every reason of an event."""

import ast
import asyncio
import re
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from tests.support.fake_leases import FakeLeases

from holdfast.controller import published_metrics
from holdfast.controller.manager import ControllerOptions, Manager
from holdfast.kube import prometheus

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "metrics.md").read_text()


def section(title):
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def expected_rows(registry):
    """The table of a registry, sorted by name."""
    rows = {}
    for collector in registry._collector_to_names:
        if isinstance(collector, Counter | Gauge | Histogram):
            suffix = "_total" if isinstance(collector, Counter) else ""
            rows[collector._name + suffix] = (
                collector._type, collector._labelnames, collector._documentation
            )  # fmt: skip
        else:
            for family in collector.collect():
                rows[family.name] = (family.type, family._labelnames, family.documentation)
    return [
        f"| `{name}` | {kind} | {', '.join(f'`{label}`' for label in labels)} | {text.rstrip('.')} |".replace(
            "|  |", "| |"
        )
        for name, (kind, labels, text) in sorted(rows.items())
    ]


def table_rows(title):
    return re.findall(r"^\| `.*$", section(title), re.MULTILINE)


def test_metrics_of_the_controller_are_listed():
    manager = Manager(FakeLeases(), ControllerOptions(host="127.0.0.1", port=0), asyncio.Event())
    assert table_rows("The controller") == expected_rows(manager._controller.metrics.registry)


def test_metrics_of_requests_are_listed():
    registry = CollectorRegistry()
    prometheus(registry)
    assert table_rows("Your own requests") == expected_rows(registry)


def test_reasons_of_events_are_listed():
    calls = (
        node
        for node in ast.walk(ast.parse(Path(published_metrics.__file__).read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "self._emit"
    )
    reasons = {ast.literal_eval(call.args[1]) for call in calls}
    assert set(re.findall(r"^\| `(\w+)`", section("Kubernetes events"), re.MULTILINE)) == reasons
