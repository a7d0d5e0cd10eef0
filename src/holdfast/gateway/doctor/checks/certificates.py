"""Certificates on the way to the gateway: this machine's, the API server's, and the client files."""

from __future__ import annotations

import datetime as dt
import ssl
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from holdfast.errors import DamagedFileError
from holdfast.gateway import kubeconfig
from holdfast.gateway.doctor.findings import Finding, problem, warning

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.gateway.doctor.case import Case

_END = b"-----END CERTIFICATE-----\n"
_DUE = 0.1
"""The node renews its own long before this share of life is left: then something keeps it from doing so."""


def certificates(case: Case) -> Iterator[Finding]:
    """Neither the kubeconfig's certificate nor the API server's is about to end."""
    yield from _in_kubeconfig(case)
    yield from _of_server(case)


def client_files(case: Case) -> Iterator[Finding]:
    """The client certificate for the gateway's own API is whole, private and good for a while yet."""
    from holdfast.pki import ClientFiles, judge_client

    if not case.work.files.mtls.exists():
        return
    renew_below = case.work.settings.certificates.renew_below
    stored = ClientFiles(case.work.files.mtls).read()
    judgement = judge_client(stored, at=dt.datetime.now(dt.UTC), renew_below=renew_below)
    if not judgement.good and judgement.codes != {"absent"}:
        yield problem(
            "client-files-bad",
            str(case.work.files.mtls),
            f"{judgement}.",
            mend="fix" if case.work.settings.workloads else "command",
            repair=f"--fix puts good ones in place, as `holdfast up {case.name}` does.",
        )


def judge_life(what: str, pem: bytes, now: dt.datetime) -> tuple[str, bool]:
    """What is to be said about a certificate's age, if anything, and whether it is over already."""
    from holdfast.pki.reading import read_certificate
    from holdfast.pki.reasons import Reason

    leaf = pem.partition(_END)  # the chain may follow; the first certificate is the one in use
    facts = read_certificate(b"".join(leaf[:2]), what)
    if isinstance(facts, Reason):
        return f"{facts.text}.", True
    if facts.end <= now:
        return f"{what} expired on {facts.end:%Y-%m-%d %H:%M} UTC.", True
    if facts.begin > now:
        return f"{what} is valid from {facts.begin:%Y-%m-%d %H:%M} UTC on only: a clock is off.", True
    if facts.end - now < (facts.end - facts.begin) * _DUE:
        return f"{what} expires on {facts.end:%Y-%m-%d %H:%M} UTC.", False
    return "", False


def _in_kubeconfig(case: Case) -> Iterator[Finding]:
    path = case.work.files.kubeconfig
    try:
        found = kubeconfig.credentials(path.read_bytes())
    except (OSError, DamagedFileError):
        return  # the kubeconfig's own check says so
    words, over = judge_life("The certificate in the kubeconfig", found.certificate, dt.datetime.now(dt.UTC))
    if words:
        repair = "--fix writes the kubeconfig from the node's own, which the node renews."
        if over:
            yield problem("certificates-expiring", str(path), words, mend="fix", repair=repair)
        else:
            yield warning("certificates-expiring", str(path), words, mend="fix", repair=repair)


def _of_server(case: Case) -> Iterator[Finding]:
    _ = case.running
    server = urlsplit(case.credentials.server)
    try:
        pem = ssl.get_server_certificate(
            (server.hostname or "", server.port or 443), timeout=case.work.settings.timeouts.glance
        )
    except OSError:
        return  # the API's own check says so
    words, over = judge_life("The API server's certificate", pem.encode(), dt.datetime.now(dt.UTC))
    if words:
        repair = f"The node renews it when it starts: holdfast restart {case.name}"
        if over:
            yield problem("certificates-expiring", server.netloc, words, mend="command", repair=repair)
        else:
            yield warning("certificates-expiring", server.netloc, words, mend="command", repair=repair)
