"""How often a push is told of: by a clock that the test moves."""

import pytest

from holdfast.gateway.push_meter import Meter

MB = 1_000_000


@pytest.fixture
def seen():
    return []


def metered(seen, total, *steps):
    """Tell of bytes at times; what was told."""
    now = [0.0]
    meter = Meter(total, lambda words, fraction: seen.append((words, fraction)), clock=lambda: now[0])
    for at, sent in steps:
        now[0] = at
        meter.tell(sent)
    meter.end()
    return seen


def test_a_quick_stream_is_no_flood_and_its_end_is_told(seen):
    steps = [(number / 1000, number * MB) for number in range(1, 101)]  # a whole percent each millisecond
    assert metered(seen, 100 * MB, *steps) == [("1 of 100 MB", 0.01), ("100 of 100 MB", 0.99)]


def test_a_slow_stream_is_seen_to_move_between_two_percent(seen):
    steps = [(number * 1.0, number * MB) for number in range(1, 5)]
    told = metered(seen, 10_000 * MB, *steps)
    assert [words for words, _ in told] == [f"{number} of 10000 MB" for number in range(1, 5)]
    assert {fraction for _, fraction in told} == {0.0}


def test_a_stream_that_stands_still_is_not_told_again(seen):
    assert len(metered(seen, 100 * MB, (0.0, MB), (5.0, MB), (9.0, MB))) == 1


def test_more_than_was_guessed_is_never_more_than_all(seen):
    assert metered(seen, 10 * MB, (0.0, 20 * MB)) == [("20 of 20 MB", 0.99)]
    assert metered([], 0, (0.0, 0))[0][1] == 0.0
