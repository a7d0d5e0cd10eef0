"""One mutual-TLS GET request to an API server, without importing the Kubernetes client.

For readiness checks where start-up time matters; all other requests use `resilient` or `Objects`.
"""

from __future__ import annotations

import ssl
from typing import NamedTuple
from urllib.parse import urlsplit

from holdfast.errors import ApiRefusedError, ApiUnreachableError
from holdfast.kube.certificate_files import temporary_secret_file

_OK = 200
_AUTH_STATUSES = (401, 403)
_VALIDITY_ERRORS = {9: "is not valid yet", 10: "has expired"}
"""OpenSSL verification codes that depend on the clock."""


class HttpsResponse(NamedTuple):
    """A response with status 200 and its Date header."""

    body: bytes
    date: str


def https_get(
    server: str,
    path: str,
    *,
    ca: bytes,
    certificate: bytes,
    key: bytes,
    timeout: float = 5.0,
    max_bytes: int = 1 << 20,
) -> HttpsResponse:
    """GET a path once; client and server authenticate each other.

    Args:
        server: The URL of the server.
        path: The path of the request.
        ca: The CA certificate of the server, PEM.
        certificate: The client certificate, PEM.
        key: The key of the client certificate, PEM.
        timeout: Seconds for the connection and for each wait for bytes.
        max_bytes: The rest of a longer body is not read.

    Raises:
        ApiUnreachableError: No response, or a status other than 200, 401 and 403; a retry may succeed.
        ApiRefusedError: The credentials or the server certificate are not accepted.
    """
    import http.client  # imported here: `mtls_context` is part of the start-up of `sandbox exec`

    address = urlsplit(server)
    connection = http.client.HTTPSConnection(
        address.hostname or "",
        address.port or 443,
        timeout=timeout,
        context=mtls_context(ca, certificate, key),
    )
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read(max_bytes)
    except ssl.SSLCertVerificationError as error:
        raise _verification_error(server, error) from error
    except (OSError, http.client.HTTPException) as error:
        from holdfast.kube.failures import is_tls_trust_error

        # With TLS 1.3, the server rejects a client certificate after the handshake, with an alert.
        if is_tls_trust_error(error):
            raise ApiRefusedError(f"{server}: client certificate rejected: {error}") from error
        raise ApiUnreachableError(f"{server}: no response: {error}") from error
    finally:
        connection.close()
    if response.status in _AUTH_STATUSES:
        raise ApiRefusedError(f"{server}: credentials rejected (HTTP {response.status})")
    if response.status != _OK:
        raise ApiUnreachableError(f"{server}{path}: HTTP {response.status}")
    return HttpsResponse(body, response.getheader("Date") or "")


def _verification_error(server: str, error: ssl.SSLCertVerificationError) -> ApiRefusedError:
    """The error for an invalid server certificate.

    A node renews its certificates before they expire, so one outside its validity indicates clock skew.
    """
    reason = _VALIDITY_ERRORS.get(error.verify_code)
    if reason is None:
        return ApiRefusedError(f"{server}: not the expected server: {error.verify_message}")
    return ApiRefusedError(
        f"{server}: the certificate {reason} according to the clock of this machine",
        hint="Correct the clock of this machine or of the server's host, then run the same command again.",
    )


def mtls_context(ca: bytes, certificate: bytes, key: bytes) -> ssl.SSLContext:
    """Create a context for mutual TLS from PEM data that stays in memory."""
    try:
        # With empty `cadata`, `ssl` would trust the CA certificates of the system.
        context = ssl.create_default_context(cadata=ca.decode("ascii") or "\n")
    except (ssl.SSLError, ValueError) as error:
        raise _invalid_pem_error("CA certificate", error) from error
    with temporary_secret_file(certificate + b"\n" + key) as pair:
        try:
            # Without a password, OpenSSL prompts for one on the terminal if the key is encrypted.
            context.load_cert_chain(pair, password=lambda: "")
        except (ssl.SSLError, ValueError) as error:
            raise _invalid_pem_error("client certificate and key", error) from error
    return context


def _invalid_pem_error(what: str, error: Exception) -> ApiRefusedError:
    reason = getattr(error, "reason", None) or "not PEM"
    problem = f"{what}: invalid ({str(reason).lower().replace('_', ' ')})"
    return ApiRefusedError(problem, hint="Replace the file that contains it with a valid PEM file.")
