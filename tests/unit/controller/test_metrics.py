"""The metrics of the controller in the Prometheus text format."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from holdfast.controller.metrics import ControllerMetrics


def samples(metrics):
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(metrics.encode().decode())
        for sample in family.samples
    }


def test_counters_increment_per_label_value():
    metrics = ControllerMetrics()
    metrics.reconciles.labels("Sandbox", "ok").inc()
    metrics.reconciles.labels("Sandbox", "ok").inc()
    metrics.reconciles.labels("Pod", 'a "quoted"\nline').inc()
    values = samples(metrics)
    assert values["holdfast_controller_reconcile_total", "Sandbox", "ok"] == 2
    assert values["holdfast_controller_reconcile_total", "Pod", 'a "quoted"\nline'] == 1


def test_histogram_buckets_are_cumulative():
    metrics = ControllerMetrics()
    for seconds in (0.0005, 0.001, 0.02, 99.0):
        metrics.reconcile_duration.labels("Sandbox").observe(seconds)
    values, name = samples(metrics), "holdfast_controller_reconcile_duration_seconds"
    assert values[f"{name}_bucket", "Sandbox", "0.01"] == 2
    assert values[f"{name}_bucket", "Sandbox", "0.025"] == 3
    assert values[f"{name}_bucket", "Sandbox", "+Inf"] == values[f"{name}_count", "Sandbox"] == 4


def test_gauge_is_read_at_each_scrape():
    metrics, depth = ControllerMetrics(), [1]
    metrics.add_gauge("queue", "Depth.", lambda: depth[0])
    assert samples(metrics)["holdfast_controller_queue",] == 1
    depth[0] = 3
    assert samples(metrics)["holdfast_controller_queue",] == 3


def test_every_metric_has_help_text():
    text = ControllerMetrics().encode().decode()
    names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    described = [line.split()[2] for line in text.splitlines() if line.startswith("# HELP")]
    assert names == described
    assert "holdfast_controller_queue_duration_seconds" in names
    assert len(set(names)) == len(names)
