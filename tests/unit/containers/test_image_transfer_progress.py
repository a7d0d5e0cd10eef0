"""How often a transfer reports its progress, with a clock that the test sets."""

from holdfast.containers.image_transfer import TransferProgress

MB = 1_000_000


def reports(total, *updates):
    """The reports of a transfer with updates of (time, sent bytes)."""
    recorded, now = [], [0.0]
    progress = TransferProgress(
        total, lambda text, fraction: recorded.append((text, fraction)), clock=lambda: now[0]
    )
    for time, sent in updates:
        now[0] = time
        progress.update(sent)
    progress.finish()
    return recorded


def test_fast_stream_is_throttled_and_end_is_reported():
    updates = [(number / 1000, number * MB) for number in range(1, 101)]  # one percent per millisecond
    assert reports(100 * MB, *updates) == [("1 of 100 MB", 0.01), ("100 of 100 MB", 0.99)]


def test_slow_stream_reports_progress_between_percents():
    updates = [(number * 1.0, number * MB) for number in range(1, 5)]
    recorded = reports(10_000 * MB, *updates)
    texts = [f"{number} of 10000 MB, 1 MB/s" for number in range(1, 5)]
    assert [text.rpartition(", ")[0] for text, _ in recorded] == texts
    assert {fraction for _, fraction in recorded} == {0.0}


def test_time_left_follows_the_speed():
    recorded = reports(600 * MB, (2.0, 8 * MB), (40.0, 160 * MB), (100.0, 400 * MB))
    assert [text.rpartition(", ")[2] for text, _ in recorded] == [
        "2 min 28 s left",
        "1 min 50 s left",
        "50 s left",
    ]


def test_stalled_stream_is_not_reported_again():
    assert len(reports(100 * MB, (0.0, MB), (5.0, MB), (9.0, MB))) == 1


def test_progress_never_exceeds_total():
    assert reports(10 * MB, (0.0, 20 * MB)) == [("20 of 20 MB", 0.99)]
    assert reports(0, (0.0, 0))[0][1] == 0.0
