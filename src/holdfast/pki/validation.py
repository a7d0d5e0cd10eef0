"""Validation of bundles and client identities: functions that return every problem.

The time is a parameter. Problems of the storage (files, Secrets) are found where the credentials are read.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

# The package is imported before its submodule: in the other order, two threads can deadlock.
from cryptography import x509  # noqa: TC002
from cryptography.x509.oid import ExtendedKeyUsageOID

from holdfast.errors import InvalidArgumentError
from holdfast.pki.bundle import (
    CertificateBundle,
    CertificateProblem,
    ClientIdentity,
    KeyPair,
    StoredCredentials,
    StoredT,
    ValidationResult,
)
from holdfast.pki.parsing import ParsedCertificate, parse_certificate, parse_private_key
from holdfast.pki.server_names import has_matching_name, normalize_server_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


# A certificate is renewed when less than this fraction of its lifetime is left.
RENEW_BELOW = 1 / 3

_CA_LABEL = "the CA certificate"


def validate_bundle(
    stored: CertificateBundle | StoredCredentials[CertificateBundle],
    *,
    names: Iterable[str],
    at: dt.datetime,
    renew_below: float = RENEW_BELOW,
) -> ValidationResult:
    """Check that a bundle is valid, covers these server names, and is not due for renewal at a time."""
    names = normalize_server_names(names)
    clock = _ValidityCheck(at, renew_below)
    bundle, problems = _unwrap(stored)
    if bundle is None:
        return ValidationResult(tuple(problems))
    ca = parse_certificate(bundle.ca, _CA_LABEL)
    problems.extend(_ca_problems(ca, clock))
    problems.extend(_key_pair_problems("server", bundle.server, ca, ExtendedKeyUsageOID.SERVER_AUTH, clock))
    problems.extend(_missing_name_problems(bundle.server, names))
    problems.extend(_key_pair_problems("client", bundle.client, ca, ExtendedKeyUsageOID.CLIENT_AUTH, clock))
    return ValidationResult(tuple(problems))


def validate_client_identity(
    stored: ClientIdentity | StoredCredentials[ClientIdentity],
    *,
    at: dt.datetime,
    ca: bytes | None = None,
    renew_below: float = RENEW_BELOW,
) -> ValidationResult:
    """Check a client identity; `ca` is the current CA of its gateway, if known."""
    clock = _ValidityCheck(at, renew_below)
    identity, problems = _unwrap(stored)
    if identity is None:
        return ValidationResult(tuple(problems))
    own = parse_certificate(identity.ca, _CA_LABEL)
    problems.extend(_ca_problems(own, clock))
    problems.extend(
        _key_pair_problems("client", identity.client, own, ExtendedKeyUsageOID.CLIENT_AUTH, clock)
    )
    if ca is not None and not _is_same_certificate(own, parse_certificate(ca, _CA_LABEL)):
        problems.append(
            CertificateProblem("foreign-ca", "the client certificate is from another CA than the gateway's")
        )
    return ValidationResult(tuple(problems))


class _ValidityCheck:
    """Checks validity periods at one time."""

    def __init__(self, at: dt.datetime, renew_below: float) -> None:
        if at.tzinfo is None:
            raise InvalidArgumentError("at", "has no time zone; use datetime.now(datetime.UTC)")
        if not 0 <= renew_below < 1:
            raise InvalidArgumentError("renew_below", f"{renew_below!r} is not between 0 and 1")
        self._at = at.astimezone(dt.UTC)
        self._renew_below = renew_below

    def check(self, what: str, facts: ParsedCertificate) -> Iterator[CertificateProblem]:
        if facts.not_before > self._at:
            begin = f"{facts.not_before:%Y-%m-%d %H:%M} UTC"
            text = f"{what} is not valid before {begin}, and it is {self._at:%Y-%m-%d %H:%M} UTC"
            yield CertificateProblem("from-the-future", text)
        elif facts.not_after <= self._at:
            yield CertificateProblem("expired", f"{what} expired on {facts.not_after:%Y-%m-%d %H:%M} UTC")
        elif facts.not_after - self._at < (facts.not_after - facts.not_before) * self._renew_below:
            left = (facts.not_after - self._at) / (facts.not_after - facts.not_before)
            text = (
                f"{what} expires on {facts.not_after:%Y-%m-%d %H:%M} UTC; {left:.0%} of its lifetime is left"
            )
            yield CertificateProblem("near-expiry", text)


def _unwrap(stored: StoredT | StoredCredentials[StoredT]) -> tuple[StoredT | None, list[CertificateProblem]]:
    if isinstance(stored, StoredCredentials):
        return stored.value, list(stored.problems)
    return stored, []


def _ca_problems(
    facts: ParsedCertificate | CertificateProblem, clock: _ValidityCheck
) -> Iterator[CertificateProblem]:
    if isinstance(facts, CertificateProblem):
        yield facts
        return
    if not facts.is_ca:
        yield CertificateProblem("no-ca", f"{_CA_LABEL} is not allowed to sign certificates")
    elif not facts.has_signed(facts):
        yield CertificateProblem("foreign-ca", f"{_CA_LABEL} is not correctly self-signed")
    yield from _strength_problems(_CA_LABEL, facts)
    yield from clock.check(_CA_LABEL, facts)


def _key_pair_problems(
    role: str,
    pair: KeyPair,
    ca: ParsedCertificate | CertificateProblem,
    use: x509.ObjectIdentifier,
    clock: _ValidityCheck,
) -> Iterator[CertificateProblem]:
    what = f"the {role} certificate"
    facts = parse_certificate(pair.certificate, what)
    key = parse_private_key(pair.key, f"the {role} key")
    if isinstance(key, CertificateProblem):
        yield key
    if isinstance(facts, CertificateProblem):
        yield facts
        return
    if not isinstance(key, CertificateProblem) and key.public_key != facts.public_key:
        yield CertificateProblem("key-mismatch", f"the {role} key does not belong to {what}")
    if not isinstance(ca, CertificateProblem) and not ca.has_signed(facts):
        yield CertificateProblem("foreign-ca", f"{what} was signed by another CA")
    if use not in facts.extended_key_usages or facts.is_ca:
        yield CertificateProblem("wrong-use", f"{what} is not issued for use as {role}")
    yield from _strength_problems(what, facts)
    yield from clock.check(what, facts)


def _strength_problems(what: str, facts: ParsedCertificate) -> Iterator[CertificateProblem]:
    if facts.weak_key:
        yield CertificateProblem("weak-key", f"the key of {what} is too weak: {facts.weak_key}")
    if facts.weak_signature:
        yield CertificateProblem("weak-signature", f"{what} is signed with {facts.weak_signature}")


def _missing_name_problems(server: KeyPair, names: tuple[str, ...]) -> Iterator[CertificateProblem]:
    facts = parse_certificate(server.certificate, "")
    if isinstance(facts, CertificateProblem):
        return
    for name in names:
        if not has_matching_name(facts.names, name):
            yield CertificateProblem("missing-name", f"the server certificate does not cover {name}")


def _is_same_certificate(
    one: ParsedCertificate | CertificateProblem, other: ParsedCertificate | CertificateProblem
) -> bool:
    if isinstance(one, CertificateProblem) or isinstance(other, CertificateProblem):
        return False
    return one.certificate == other.certificate
