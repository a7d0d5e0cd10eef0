"""Walking cause chains: in order, each once, and always to an end."""

from hypothesis import given, strategies as st

from holdfast.retry.state import causes


def test_cause_then_context_then_reason():
    root, middle, top = OSError("root"), ValueError("middle"), KeyError("top")
    top.__cause__ = middle
    middle.reason = root
    assert list(causes(top)) == [top, middle, root]


def test_suppressed_context_is_not_followed():
    inner, outer = OSError(), ValueError()
    outer.__context__, outer.__suppress_context__ = inner, True
    assert list(causes(outer)) == [outer]


def test_none_is_an_empty_chain():
    assert list(causes(None)) == []


def test_cyclic_chain_ends():
    one, two = ValueError(), OSError()
    one.__cause__, two.__cause__ = two, one
    assert list(causes(one)) == [one, two]


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.sampled_from(["cause", "context", "reason"])))
)
def test_any_graph_ends_and_visits_each_once(edges):
    errors = [ValueError(str(n)) for n in range(10)]
    for source, target, kind in edges:
        if kind == "cause":
            errors[source].__cause__ = errors[target]
        elif kind == "context":
            errors[source].__context__ = errors[target]
        else:
            errors[source].reason = errors[target]
    walked = list(causes(errors[0]))
    assert len(walked) == len({id(each) for each in walked}) <= 10


def test_very_long_chain_is_truncated():
    tip = error = ValueError()
    for _ in range(1_000):
        error.__cause__ = ValueError()
        error = error.__cause__
    assert len(list(causes(tip))) == 100


def test_excluded_errors_are_not_followed():
    tip, apart, beyond = ValueError(), KeyError(), OSError()
    tip.__context__, apart.__context__ = apart, beyond
    assert list(causes(tip, exclude={id(apart)})) == [tip]
