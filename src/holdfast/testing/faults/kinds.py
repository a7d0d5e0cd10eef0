"""The faults that can be injected: one table with what each does and which settings it takes.

Not here: when a fault strikes (`rules`) and how it is carried out (`inject`).
"""

from __future__ import annotations

from typing import NamedTuple


class Kind(NamedTuple):
    """What a fault does, in words, and the settings that mean something to it; some need a watch."""

    does: str
    takes: frozenset[str] = frozenset()
    watch: bool = False


def _kind(does: str, *takes: str) -> Kind:
    return Kind(does, frozenset(takes), watch="events" in takes)


KINDS: dict[str, Kind] = {
    # The connection
    "reset-before": _kind("reset the connection; the server never sees the request"),
    "reset-after": _kind("let the server carry the request out, swallow its answer, reset the connection"),
    "refuse": _kind("close the port for a while: connections are refused; this request is reset", "seconds"),
    "truncated": _kind("send the head and a part of the body, then close", "bytes"),
    "stall-headers": _kind(
        "answer nothing for a while, then close; `commit` forwards first", "seconds", "commit"
    ),
    "stall-body": _kind("send the head and a part of the body, wait, then close", "seconds", "bytes"),
    "slow": _kind("wait, then forward and answer as usual", "seconds"),
    # Refusals as the API server or a load balancer words them
    "unauthorized": _kind("401 Unauthorized"),
    "request-timeout": _kind("408 from a load balancer", "commit"),
    "gone": _kind("410 Expired: the resource version is too old"),
    "too-many-requests": _kind("429 TooManyRequests", "retry_after"),
    "internal-error": _kind("500 InternalError", "commit"),
    "leader-changed": _kind("500 'etcdserver: leader changed'", "commit"),
    "server-timeout": _kind("500 ServerTimeout", "commit", "retry_after"),
    "bad-gateway": _kind("502 from a load balancer, as HTML", "commit"),
    "unavailable": _kind("503 ServiceUnavailable", "commit", "retry_after"),
    "gateway-timeout": _kind("504 Timeout", "commit"),
    # Answers that no API server gives
    "html": _kind("an HTML page", "status", "commit"),
    "empty": _kind("an empty body", "status", "commit"),
    "enormous": _kind("a JSON body without end, up to `bytes`", "status", "commit", "bytes"),
    "invalid-utf8": _kind("JSON with bytes that are no UTF-8", "status", "commit"),
    "wrong-content-type": _kind("the server's own answer, labelled text/plain"),
    # Inside a watch: `events` of the server's own come first
    "event-gone": _kind("an ERROR event with 410, then the stream ends", "events"),
    "event-too-many-requests": _kind(
        "an ERROR event with 429, then the stream ends", "events", "retry_after"
    ),
    "event-garbage": _kind("a line that is no JSON, then the stream ends", "events"),
    "end-stream": _kind("the stream ends as if its time were up", "events"),
    "drop-stream": _kind("the connection is reset in mid-stream", "events"),
}

# What servers have been seen to send; `date:+N` is an HTTP date N seconds ahead, `absent` no header at all.
RETRY_AFTER_FORMS = ("1", "0", "-5", "", "soon", "1.5", "date:+1", "date:-30", "absent")
