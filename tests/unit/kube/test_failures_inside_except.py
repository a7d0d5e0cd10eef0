"""A call inside an `except` block: the error that is handled there says nothing about the call."""

import itertools
import ssl

import pytest
import urllib3

from holdfast.errors import OutcomeUnknownError
from holdfast.kube import FailureClass, WriteOutcome, classify, write_outcome
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
def test_ambiguous_write_stays_unknown(cluster, server, responses, clock, handled):
    server.answers += [responses.reset()] * 20
    policy = Policy(attempts=2)
    try:
        fail(handled)
    except Exception:  # noqa: BLE001
        with pytest.raises(Exception) as caught:
            cluster.call("CoreV1Api", "create_namespaced_config_map", "n", BODY, policy=policy)
        with pytest.raises(OutcomeUnknownError):
            cluster.objects("ensure", BODY, namespace="n", policy=policy)
    assert write_outcome(caught.value) is WriteOutcome.UNKNOWN
    assert classify(caught.value) is FailureClass.AMBIGUOUS


@pytest.mark.parametrize("handled", HANDLED, ids=lambda each: type(each).__name__)
def test_read_is_retried(cluster, server, store, responses, clock, handled):
    store._keep("/api/v1/namespaces/n/configmaps/a", BODY)
    server.answers += [responses.reset(), responses.reset()]
    try:
        fail(handled)
    except Exception:  # noqa: BLE001
        assert cluster.call("CoreV1Api", "read_namespaced_config_map", "a", "n").metadata.name == "a"


def test_read_does_not_inherit_write_outcome(cluster, server, responses, clock):
    server.answers += [responses.reset()] * 2
    server.reply = lambda *_: responses.status(404, "NotFound")
    once = Policy(attempts=1)
    try:
        cluster.call("CoreV1Api", "create_namespaced_config_map", "n", BODY, policy=once)
    except Exception:  # noqa: BLE001
        with pytest.raises(Exception) as caught:
            cluster.call("CoreV1Api", "read_namespaced_config_map", "a", "n", policy=once)
    assert write_outcome(caught.value) is WriteOutcome.NOT_DONE


def chain(*errors):
    for outer, inner in itertools.pairwise(errors):
        outer.__cause__ = inner
    return errors[0]


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (chain(ConnectionResetError(), ConnectionRefusedError()), FailureClass.AMBIGUOUS),
        (chain(urllib3.exceptions.ProtocolError("x"), ConnectionRefusedError()), FailureClass.AMBIGUOUS),
        (chain(ValueError(), ConnectionRefusedError()), FailureClass.NOT_SENT),
        (chain(urllib3.exceptions.NewConnectionError(None, "x"), TimeoutError()), FailureClass.NOT_SENT),
        (
            chain(
                urllib3.exceptions.MaxRetryError(None, "/"),
                urllib3.exceptions.ConnectTimeoutError(),
                TimeoutError(),
            ),
            FailureClass.NOT_SENT,
        ),
    ],
    ids=["reset over refused", "protocol over refused", "refused", "not connected", "connect timeout"],
)
def test_lost_response_outranks_unsent_request(error, outcome):
    assert classify(error) is outcome
