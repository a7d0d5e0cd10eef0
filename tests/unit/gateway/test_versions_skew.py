"""Which Kubernetes version may follow which, by example and for every pair of versions."""

import pytest
from hypothesis import given, strategies as st

from holdfast.errors import ImageIncompatibleError
from holdfast.gateway.versions import (
    KubernetesVersion,
    check_data_version,
    check_version_skew,
    parse_version,
)

versions = st.builds(KubernetesVersion, st.integers(0, 3), st.integers(0, 40), st.integers(0, 30))


@pytest.mark.parametrize(
    ("current", "target"),
    [
        ("v1.34.4", "v1.34.4"),
        ("v1.34.4", "v1.34.5"),
        ("v1.34.4", "v1.34.0"),
        ("v1.33.13", "v1.34.4"),
        ("1.33.13", "v1.34.0-rc.1"),
        ("v1.34.4+holdfast", "v1.35.0"),
    ],
)
def test_same_and_next_minor_are_is_allowed(current, target):
    check_version_skew(current, target, "image:1")


@pytest.mark.parametrize(
    ("current", "target", "reason", "hint"),
    [
        ("v1.34.4", "v1.33.13", "cannot be used by an older minor", "1.34 or 1.35"),
        ("v1.33.13", "v1.35.0", "cannot be skipped", "Upgrade to 1.34 first"),
        ("v1.34.4", "v2.0.0", "another major", "Upgrade to 1.35 first"),
        ("v2.0.0", "v1.34.4", "another major", "2.0 or 2.1"),
        ("v1.34.4", "", "no valid Kubernetes version", "dev.holdfast.kubernetes"),
        ("", "v1.34.4", "no valid Kubernetes version", "dev.holdfast.kubernetes"),
    ],
)
def test_other_versions_are_rejected_with_hint(current, target, reason, hint):
    with pytest.raises(ImageIncompatibleError, match="nothing was changed") as raised:
        check_version_skew(current, target, "image:1")
    assert reason in raised.value.message
    assert hint in raised.value.hint
    assert raised.value.exit_code == 3


def is_allowed(check, current, target):
    try:
        check(str(current), str(target), "image:1")
    except ImageIncompatibleError:
        return False
    return True


@given(versions, versions)
def test_upgrade_stays_in_major_and_moves_at_most_one_minor(current, target):
    fits = current.major == target.major and target.minor - current.minor in (0, 1)
    assert is_allowed(check_version_skew, current, target) == fits


@given(versions, versions)
def test_following_hints_reaches_target_version(current, target):
    if current.major != target.major or target.minor <= current.minor:
        return
    step = KubernetesVersion(current.major, current.minor + 1, 0)
    assert is_allowed(check_version_skew, current, step)


@given(versions, versions)
def test_retained_data_requires_same_minor_and_no_older_patch(data, target):
    fits = (data.major, data.minor) == (target.major, target.minor) and data.patch <= target.patch
    assert is_allowed(check_data_version, data, target) == fits


@pytest.mark.parametrize(("data", "target"), [("", "v1.34.4"), ("v1.34.4", ""), ("nonsense", "v1.34.4")])
def test_data_of_unknown_version_is_is_allowed(data, target):
    check_data_version(data, target, "image:1")


@given(versions)
def test_version_round_trip(version):
    assert parse_version(str(version)) == version
    assert parse_version(f"{version}-rc.1+build") == version


@pytest.mark.parametrize(
    "text", ["", "v1.34", "latest", "1.34.4.5", "v1.34.x", "v1.34.4 or so", "v\uff11.34.4", "9" * 99]
)
def test_invalid_version_is_none(text):
    assert parse_version(text) is None
