"""Amounts as Kubernetes writes them."""

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.api import format_timestamp
from holdfast.cli.output import format_age, format_bytes, format_cores


@pytest.mark.parametrize(
    ("size", "text"),
    [(None, "-"), (0, "0"), (1023, "1023"), (1024, "1Ki"), (1536, "1.5Ki"), (20 << 20, "20Mi"),
     (3 << 30, "3Gi"), (int(3.25 * (1 << 30)), "3.2Gi"), (5 << 50, "5Pi"), (5000 << 50, "5000Pi")],
)  # fmt: skip
def test_bytes(size, text):
    assert format_bytes(size) == text


@pytest.mark.parametrize(
    ("cores", "text"),
    [(None, "-"), (0.0, "0m"), (0.0004, "0m"), (0.25, "250m"), (1.0, "1"), (1.5, "1500m"), (64, "64")],
)
def test_cores(cores, text):
    assert format_cores(cores) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(5, "5s"), (65, "1m"), (7300, "2h"), (200_000, "2d"), (-9, "0s")]
)
def test_age(seconds, text):
    created = format_timestamp(datetime.now(UTC) - timedelta(seconds=seconds))
    assert format_age(created) == text


def test_age_of_unknown_creation_is_empty():
    assert format_age(None) == ""
