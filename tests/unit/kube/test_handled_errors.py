"""A call inside an `except` block: the error that is handled there says nothing about the call."""

import itertools
import ssl

import pytest
import urllib3

from holdfast.errors import OutcomeUnknownError
from holdfast.kube import Done, Outcome, classify, outcome_of
from holdfast.retry import Policy

BODY = {"kind": "ConfigMap", "metadata": {"name": "a"}}
HANDLED = [
    ConnectionRefusedError(),
    ssl.SSLCertVerificationError(),
    urllib3.exceptions.NewConnectionError(None, "refused"),
]


def fail(error):
    raise error


@pytest.mark.parametrize("handled", HANDLED, ids=lambda each: type(each).__name__)
def test_an_ambiguous_write_stays_unknown(cluster, server, told, clock, handled):
    server.answers += [told.reset()] * 20
    policy = Policy(attempts=2)
    try:
        fail(handled)
    except Exception:  # noqa: BLE001
        with pytest.raises(Exception) as caught:
            cluster.call("CoreV1Api", "create_namespaced_config_map", "n", BODY, policy=policy)
        with pytest.raises(OutcomeUnknownError):
            cluster.objects("ensure", BODY, namespace="n", policy=policy)
    assert outcome_of(caught.value) is Done.UNKNOWN
    assert classify(caught.value) is Outcome.AMBIGUOUS


@pytest.mark.parametrize("handled", HANDLED, ids=lambda each: type(each).__name__)
def test_a_read_is_repeated_all_the_same(cluster, server, store, told, clock, handled):
    store._keep("/api/v1/namespaces/n/configmaps/a", BODY)
    server.answers += [told.reset(), told.reset()]
    try:
        fail(handled)
    except Exception:  # noqa: BLE001
        assert cluster.call("CoreV1Api", "read_namespaced_config_map", "a", "n").metadata.name == "a"


def test_a_read_does_not_inherit_what_became_of_a_write(cluster, server, told, clock):
    server.answers += [told.reset()] * 2
    server.reply = lambda *_: told.status(404, "NotFound")
    once = Policy(attempts=1)
    try:
        cluster.call("CoreV1Api", "create_namespaced_config_map", "n", BODY, policy=once)
    except Exception:  # noqa: BLE001
        with pytest.raises(Exception) as caught:
            cluster.call("CoreV1Api", "read_namespaced_config_map", "a", "n", policy=once)
    assert outcome_of(caught.value) is Done.NO


def chain(*errors):
    for outer, inner in itertools.pairwise(errors):
        outer.__cause__ = inner
    return errors[0]


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (chain(ConnectionResetError(), ConnectionRefusedError()), Outcome.AMBIGUOUS),
        (chain(urllib3.exceptions.ProtocolError("x"), ConnectionRefusedError()), Outcome.AMBIGUOUS),
        (chain(ValueError(), ConnectionRefusedError()), Outcome.NOT_SENT),
        (chain(urllib3.exceptions.NewConnectionError(None, "x"), TimeoutError()), Outcome.NOT_SENT),
        (
            chain(
                urllib3.exceptions.MaxRetryError(None, "/"),
                urllib3.exceptions.ConnectTimeoutError(),
                TimeoutError(),
            ),
            Outcome.NOT_SENT,
        ),
    ],
    ids=["reset over refused", "protocol over refused", "refused", "not connected", "connect timeout"],
)
def test_what_was_lost_outranks_what_was_not_sent_but_for_the_clients_word(error, outcome):
    assert classify(error) is outcome
