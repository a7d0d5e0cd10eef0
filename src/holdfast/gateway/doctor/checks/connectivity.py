"""Checks of the connection to a gateway: ssh tunnel, holdfast's API, and certificates."""

from __future__ import annotations

import datetime as dt
import ssl
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from holdfast.errors import CorruptFileError, HoldfastError
from holdfast.gateway.cluster import get_gateway_info, kubeconfig
from holdfast.gateway.doctor.facts import FactUnavailable
from holdfast.gateway.doctor.findings import Finding, FixedBy, Severity, new_finding, problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.gateway.doctor.facts import GatewayFacts

_PEM_END = b"-----END CERTIFICATE-----\n"
_EXPIRY_WARNING_FRACTION = 0.1
"""The node renews its certificates long before only this part of their lifetime remains."""


def check_tunnel(facts: GatewayFacts) -> Iterator[Finding]:
    """The tunnel to a gateway on a remote host is open while the gateway runs."""
    if facts.gateway.host.tunnel is None:
        return
    _ = facts.running_container
    if not facts.is_tunnel_open:
        cause = "The gateway runs, but the ssh tunnel to its ports is down."
        remote = facts.gateway.host.remote
        yield problem("tunnel-down", remote, cause, fixed_by="fix", repair="--fix reopens it.")


def check_gateway_api(facts: GatewayFacts) -> Iterator[Finding]:
    """The holdfast API on the gateway accepts this machine's client certificate."""
    from holdfast.pki import ClientCertificateStore

    if not facts.gateway.settings.workloads:
        raise FactUnavailable("holdfast's workloads are disabled (workloads = false)")
    facts.require_connection()
    directory = facts.gateway.files.mtls
    identity = ClientCertificateStore(directory).read().value
    if identity is None:
        cause = "This machine has no usable client certificate for the gateway's holdfast API."
        repair = f"--fix writes one, as `holdfast up {facts.name}` does."
        yield problem("client-files-bad", str(directory), cause, fixed_by="fix", repair=repair)
        return
    try:
        get_gateway_info(facts.gateway, identity)
    except HoldfastError as error:
        url, cause = facts.gateway.gateway_api_url, f"The gateway's holdfast API: {error.message}."
        repair = f"--fix applies its workloads and waits for them, as `holdfast up {facts.name}` does."
        yield problem("gateway-api-unreachable", url, cause, fixed_by="fix", repair=repair)


def check_certificates(facts: GatewayFacts) -> Iterator[Finding]:
    """Neither the kubeconfig's client certificate nor the API server's certificate is about to expire."""
    yield from _check_kubeconfig_certificate(facts)
    yield from _check_server_certificate(facts)


def check_client_files(facts: GatewayFacts) -> Iterator[Finding]:
    """The client certificate for the holdfast API is complete, private and not about to expire."""
    from holdfast.pki import ClientCertificateStore, validate_client_identity

    directory, settings = facts.gateway.files.mtls, facts.gateway.settings
    if not directory.exists():
        return
    validation = validate_client_identity(
        ClientCertificateStore(directory).read(),
        at=dt.datetime.now(dt.UTC),
        renew_below=settings.certificates.renew_below,
    )
    if not validation.is_valid and validation.codes != {"absent"}:
        fixed_by: FixedBy = "fix" if settings.workloads else "command"
        repair = f"--fix replaces it, as `holdfast up {facts.name}` does."
        yield problem("client-files-bad", str(directory), f"{validation}.", fixed_by=fixed_by, repair=repair)


def describe_expiry(certificate: str, pem: bytes, now: dt.datetime) -> tuple[str, bool]:
    """Describe what is wrong with a certificate's validity period.

    Returns:
        The description, empty if the certificate is valid for long enough; and whether it is unusable now.
    """
    from holdfast.pki import CertificateProblem, parse_certificate

    leaf = b"".join(pem.partition(_PEM_END)[:2])  # a chain may follow the leaf certificate
    parsed = parse_certificate(leaf, certificate)
    if isinstance(parsed, CertificateProblem):
        return f"{parsed.message}.", True
    if parsed.not_after <= now:
        return f"{certificate} expired on {parsed.not_after:%Y-%m-%d %H:%M} UTC.", True
    if parsed.not_before > now:
        start = f"{parsed.not_before:%Y-%m-%d %H:%M} UTC"
        return f"{certificate} is not valid before {start}: one of the clocks is wrong.", True
    if parsed.not_after - now < (parsed.not_after - parsed.not_before) * _EXPIRY_WARNING_FRACTION:
        return f"{certificate} expires on {parsed.not_after:%Y-%m-%d %H:%M} UTC.", False
    return "", False


def _check_kubeconfig_certificate(facts: GatewayFacts) -> Iterator[Finding]:
    path = facts.gateway.files.kubeconfig
    try:
        credentials = kubeconfig.parse_credentials(path.read_bytes())
    except (OSError, CorruptFileError):
        return  # reported by the kubeconfig check
    repair = "--fix writes the kubeconfig from the node's, which the node renews."
    pem = credentials.certificate
    yield from _check_expiry("The certificate in the kubeconfig", pem, str(path), "fix", repair)


def _check_server_certificate(facts: GatewayFacts) -> Iterator[Finding]:
    _ = facts.running_container
    server = urlsplit(facts.credentials.server)
    address = (server.hostname or "", server.port or 443)
    try:
        pem = ssl.get_server_certificate(address, timeout=facts.gateway.settings.timeouts.glance)
    except OSError:
        return  # reported by the API check
    repair = f"The node renews it at its start: holdfast restart {facts.name}"
    yield from _check_expiry("The API server's certificate", pem.encode(), server.netloc, "command", repair)


def _check_expiry(
    certificate: str, pem: bytes, subject: str, fixed_by: FixedBy, repair: str
) -> Iterator[Finding]:
    cause, is_unusable = describe_expiry(certificate, pem, dt.datetime.now(dt.UTC))
    if cause:
        severity: Severity = "problem" if is_unusable else "warning"
        yield new_finding(severity, "certificates-expiring", subject, cause, fixed_by=fixed_by, repair=repair)
