"""What is counted comes out as Prometheus reads it."""

from __future__ import annotations

from holdfast.controller.metrics import Counter, Histogram, Metrics


def test_counters_grow_for_each_value_of_their_labels():
    counter = Counter("n_total", "words", "kind", "result")
    counter.add("Sandbox", "ok")
    counter.add("Sandbox", "ok")
    counter.add("Pod", 'a "quoted"\nline')
    assert list(counter.lines()) == [
        'n_total{kind="Pod",result="a \\"quoted\\"\\nline"} 1',
        'n_total{kind="Sandbox",result="ok"} 2',
    ]


def test_a_histogram_counts_upwards_and_ends_with_everything():
    times = Histogram("t_seconds", "words")
    for seconds in (0.0005, 0.001, 0.02, 99.0):
        times.observe(seconds)
    lines = list(times.lines())
    assert lines[0] == 't_seconds_bucket{le="0.001"} 2'
    assert 't_seconds_bucket{le="0.01"} 2' in lines
    assert 't_seconds_bucket{le="0.025"} 3' in lines
    assert lines[-3:] == ['t_seconds_bucket{le="+Inf"} 4', "t_seconds_sum 99.021500", "t_seconds_count 4"]


def test_every_metric_says_what_it_is():
    metrics = Metrics()
    metrics.looks.add("Sandbox", "ok")
    metrics.gauge("depth", "How deep.", lambda: 3)
    text = metrics.text()
    assert text.endswith("\n")
    assert "# TYPE depth gauge\ndepth 3\n" in text
    names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    helped = [line.split()[2] for line in text.splitlines() if line.startswith("# HELP")]
    assert names == helped
    assert len(set(names)) == len(names)
