"""SIGKILL at random times: the workflow converges, and no finished step runs again."""

from __future__ import annotations

import pytest

from .fifty_steps import COUNT, build, observe


def assert_converges(crash_matrix, count):
    report = crash_matrix(build, random=count, observe=observe)
    assert len(report.findings) == count
    killed = [finding for finding in report.findings if -9 in finding.exit_codes]
    assert len(killed) >= count // 3, "the kills came too late to matter"


def test_killed_at_random_moments(crash_matrix):
    assert_converges(crash_matrix, 25)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_killed_at_two_hundred_random_moments(crash_matrix):
    assert_converges(crash_matrix, 200)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_killed_at_every_step(crash_matrix):
    report = crash_matrix(build, observe=observe, kill_points=2)
    assert len(report.findings) >= COUNT * 4
