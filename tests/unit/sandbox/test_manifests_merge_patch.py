"""A merge patch between two objects turns the old one into the new one."""

from __future__ import annotations

from hypothesis import given, strategies as st

from holdfast.sandbox import merge_patch

leaves = st.sampled_from([None, True, 0, 1, "", "x", [], [1], [1, 2]])
inner = st.dictionaries(st.sampled_from("ab"), leaves, max_size=2)
objects = st.dictionaries(st.sampled_from("abc"), leaves | inner, max_size=3)


def apply_patch(target, patch):
    """Apply a merge patch (RFC 7386) like the API server."""
    if not isinstance(patch, dict):
        return patch
    target = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        else:
            target[key] = apply_patch(target.get(key), value)
    return target


def without_nulls(value):
    if not isinstance(value, dict):
        return value
    return {key: without_nulls(inner) for key, inner in value.items() if inner is not None}


@given(objects, objects)
def test_merge_patch_converts_old_to_new_and_is_empty_if_equal(old, new):
    old, new = without_nulls(old), without_nulls(new)
    patch = merge_patch(old, new)
    assert apply_patch(old, patch) == new
    assert bool(patch) == (old != new)
