"""What makes a bundle still good: pure functions that answer with every reason why it is not.

The time is an argument, so that a test can move it. Not here: where a bundle was stored (`secret_data` and
`client_files` say what is wrong with the place), and what is done about a bad one.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

# The package before its part: two threads that load them the other way round wait for each other.
from cryptography import x509  # noqa: TC002
from cryptography.x509.oid import ExtendedKeyUsageOID

from holdfast.errors import ArgumentError
from holdfast.pki.material import Bundle, Held, Identity, Pair, Stored
from holdfast.pki.names import covers, server_names
from holdfast.pki.reading import CertificateFacts, read_certificate, read_key
from holdfast.pki.reasons import Judgement, Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


RENEW_BELOW = 1 / 3
"""A certificate with less than this share of its life left is due."""

_CA = "the CA certificate"


def judge(
    stored: Bundle | Stored[Bundle],
    *,
    names: Iterable[str],
    at: dt.datetime,
    renew_below: float = RENEW_BELOW,
) -> Judgement:
    """Whether a stored bundle serves under these names for a good while yet."""
    wanted = server_names(names)
    clock = _Clock(at, renew_below)
    bundle, reasons = _opened(stored)
    if bundle is None:
        return Judgement(tuple(reasons))
    ca = read_certificate(bundle.ca, _CA)
    reasons.extend(_of_ca(ca, clock))
    reasons.extend(_of_pair("server", bundle.server, ca, ExtendedKeyUsageOID.SERVER_AUTH, clock))
    reasons.extend(_missing_names(bundle.server, wanted))
    reasons.extend(_of_pair("client", bundle.client, ca, ExtendedKeyUsageOID.CLIENT_AUTH, clock))
    return Judgement(tuple(reasons))


def judge_client(
    stored: Identity | Stored[Identity],
    *,
    at: dt.datetime,
    ca: bytes | None = None,
    renew_below: float = RENEW_BELOW,
) -> Judgement:
    """Whether what a client has is good; `ca` is the CA that its gateway has now, where that is known."""
    clock = _Clock(at, renew_below)
    identity, reasons = _opened(stored)
    if identity is None:
        return Judgement(tuple(reasons))
    own = read_certificate(identity.ca, _CA)
    reasons.extend(_of_ca(own, clock))
    reasons.extend(_of_pair("client", identity.client, own, ExtendedKeyUsageOID.CLIENT_AUTH, clock))
    if ca is not None and not _same(own, read_certificate(ca, _CA)):
        reasons.append(Reason("foreign-ca", "the client's files belong to another CA than the gateway's"))
    return Judgement(tuple(reasons))


class _Clock:
    """The moment of judgement, and how much life must be left at it."""

    def __init__(self, at: dt.datetime, renew_below: float) -> None:
        if at.tzinfo is None:
            raise ArgumentError("at", "needs a time zone: datetime.now(datetime.UTC)")
        if not 0 <= renew_below < 1:
            raise ArgumentError("renew_below", f"{renew_below!r} is no share of a life: 0 up to below 1")
        self._at = at.astimezone(dt.UTC)
        self._renew_below = renew_below

    def judge(self, what: str, facts: CertificateFacts) -> Iterator[Reason]:
        if facts.begin > self._at:
            begin = f"{facts.begin:%Y-%m-%d %H:%M} UTC"
            text = f"{what} is valid from {begin} on only, and it is {self._at:%Y-%m-%d %H:%M} UTC"
            yield Reason("from-the-future", text)
        elif facts.end <= self._at:
            yield Reason("expired", f"{what} expired on {facts.end:%Y-%m-%d %H:%M} UTC")
        elif facts.end - self._at < (facts.end - facts.begin) * self._renew_below:
            left = (facts.end - self._at) / (facts.end - facts.begin)
            text = f"{what} expires on {facts.end:%Y-%m-%d %H:%M} UTC, only {left:.0%} of its life is left"
            yield Reason("near-expiry", text)


def _opened(stored: Held | Stored[Held]) -> tuple[Held | None, list[Reason]]:
    if isinstance(stored, Stored):
        return stored.bundle, list(stored.reasons)
    return stored, []


def _of_ca(facts: CertificateFacts | Reason, clock: _Clock) -> Iterator[Reason]:
    if isinstance(facts, Reason):
        yield facts
        return
    if not facts.is_ca:
        yield Reason("no-ca", f"{_CA} is not one that may sign others")
    elif not facts.signed(facts):
        yield Reason("foreign-ca", f"{_CA} was signed by another CA, or not properly by itself")
    yield from _strength(_CA, facts)
    yield from clock.judge(_CA, facts)


def _of_pair(
    role: str, pair: Pair, ca: CertificateFacts | Reason, use: x509.ObjectIdentifier, clock: _Clock
) -> Iterator[Reason]:
    what = f"the {role} certificate"
    facts = read_certificate(pair.certificate, what)
    key = read_key(pair.key, f"the {role} key")
    if isinstance(key, Reason):
        yield key
    if isinstance(facts, Reason):
        yield facts
        return
    if not isinstance(key, Reason) and key.public_key != facts.public_key:
        yield Reason("key-mismatch", f"the {role} key does not belong to {what}")
    if not isinstance(ca, Reason) and not ca.signed(facts):
        yield Reason("foreign-ca", f"{what} was signed by another CA")
    if use not in facts.uses or facts.is_ca:
        yield Reason("wrong-use", f"{what} is not one for a {role}")
    yield from _strength(what, facts)
    yield from clock.judge(what, facts)


def _strength(what: str, facts: CertificateFacts) -> Iterator[Reason]:
    if facts.weak_key:
        yield Reason("weak-key", f"the key of {what} is too weak: {facts.weak_key}")
    if facts.weak_signature:
        yield Reason("weak-signature", f"{what} is signed with {facts.weak_signature}")


def _missing_names(server: Pair, wanted: tuple[str, ...]) -> Iterator[Reason]:
    facts = read_certificate(server.certificate, "")
    if isinstance(facts, Reason):
        return
    for name in wanted:
        if not covers(facts.names, name):
            yield Reason("missing-name", f"the server certificate lacks the name {name}")


def _same(one: CertificateFacts | Reason, other: CertificateFacts | Reason) -> bool:
    if isinstance(one, Reason) or isinstance(other, Reason):
        return False
    return one.certificate == other.certificate
