"""Which Kubernetes may follow which: the skew rules, by example and for every pair of versions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ImageUnfitError
from holdfast.gateway.upgrade.versions import Version, check_data, check_upgrade, parse

versions = st.builds(Version, st.integers(0, 3), st.integers(0, 40), st.integers(0, 30))


@pytest.mark.parametrize(
    ("now", "then"),
    [
        ("v1.34.4", "v1.34.4"),
        ("v1.34.4", "v1.34.5"),
        ("v1.34.4", "v1.34.0"),
        ("v1.33.13", "v1.34.4"),
        ("1.33.13", "v1.34.0-rc.1"),
        ("v1.34.4+holdfast", "v1.35.0"),
    ],
)
def test_the_same_minor_and_the_next_one_may_follow(now, then):
    check_upgrade(now, then, "image:1")


@pytest.mark.parametrize(
    ("now", "then", "words", "hint"),
    [
        ("v1.34.4", "v1.33.13", "cannot go back to an older minor", "1.34 or 1.35"),
        ("v1.33.13", "v1.35.0", "cannot be skipped", "Upgrade to 1.34 first"),
        ("v1.34.4", "v2.0.0", "another major", "Upgrade to 1.35 first"),
        ("v2.0.0", "v1.34.4", "another major", "2.0 or 2.1"),
        ("v1.34.4", "", "does not say its Kubernetes version", "dev.holdfast.kubernetes"),
        ("", "v1.34.4", "does not say its Kubernetes version", "dev.holdfast.kubernetes"),
    ],
)
def test_others_are_refused_with_the_reason_and_the_way_out(now, then, words, hint):
    with pytest.raises(ImageUnfitError, match="nothing was changed") as refused:
        check_upgrade(now, then, "image:1")
    assert words in refused.value.message
    assert hint in refused.value.hint
    assert refused.value.exit_code == 3


def allowed(check, now, then):
    try:
        check(str(now), str(then), "image:1")
    except ImageUnfitError:
        return False
    return True


@given(versions, versions)
def test_an_upgrade_never_leaves_the_major_and_goes_at_most_one_minor_forward(now, then):
    fits = now.major == then.major and then.minor - now.minor in (0, 1)
    assert allowed(check_upgrade, now, then) == fits


@given(versions, versions)
def test_a_refused_pair_is_reached_by_following_the_hint_where_there_is_a_way(now, then):
    if now.major != then.major or then.minor <= now.minor:
        return
    step = Version(now.major, now.minor + 1, 0)
    assert allowed(check_upgrade, now, step)


@given(versions, versions)
def test_data_alone_is_opened_by_its_own_minor_and_never_by_an_older_patch(data, then):
    fits = (data.major, data.minor) == (then.major, then.minor) and data.patch <= then.patch
    assert allowed(check_data, data, then) == fits


@pytest.mark.parametrize(("data", "then"), [("", "v1.34.4"), ("v1.34.4", ""), ("nonsense", "v1.34.4")])
def test_data_of_which_nobody_knows_the_version_is_not_held_back(data, then):
    check_data(data, then, "image:1")


@given(versions)
def test_a_version_is_read_as_it_is_written(version):
    assert parse(str(version)) == version
    assert parse(f"{version}-rc.1+build") == version


@pytest.mark.parametrize(
    "text", ["", "v1.34", "latest", "1.34.4.5", "v1.34.x", "v1.34.4 or so", "v\uff11.34.4", "9" * 99]
)
def test_what_is_no_version_is_none(text):
    assert parse(text) is None
