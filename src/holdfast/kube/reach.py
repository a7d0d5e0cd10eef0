"""One verified request to an API server, without the weight of a whole client library.

For the question "does it answer me?", asked where start-up time counts. Everything else goes through the
resilient clients of this floor.
"""

from __future__ import annotations

import http.client
import ssl
from typing import NamedTuple
from urllib.parse import urlsplit

from holdfast.errors import PermanentError, TemporaryError
from holdfast.kube.certificates import passing_file

_OK = 200
_REFUSED = (401, 403)
_AT_ANOTHER_TIME = {9: "is not valid yet", 10: "has expired"}
"""OpenSSL's numbers for certificates that are good at another time."""


class ApiUnreachableError(TemporaryError):
    """The API server did not answer, or said that it is not ready."""

    code = "api-unreachable"


class ApiRefusedError(PermanentError):
    """The API server answered, but does not take these credentials or cannot be verified."""

    code = "api-refused"


class Answer(NamedTuple):
    """An answer with status 200, and what the server says of the time."""

    body: bytes
    date: str


def answers(
    server: str, path: str, *, ca: bytes, certificate: bytes, key: bytes, timeout: float = 5.0
) -> bytes:
    """The body of a GET that the server answered with 200; server and client are both verified."""
    return ask(server, path, ca=ca, certificate=certificate, key=key, timeout=timeout).body


def ask(
    server: str,
    path: str,
    *,
    ca: bytes,
    certificate: bytes,
    key: bytes,
    timeout: float = 5.0,
    largest: int = 1 << 20,
) -> Answer:
    """The same with the server's clock; no more than `largest` bytes of the body are read."""
    address = urlsplit(server)
    connection = http.client.HTTPSConnection(
        address.hostname or "",
        address.port or 443,
        timeout=timeout,
        context=verified_context(ca, certificate, key),
    )
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read(largest)
    except ssl.SSLCertVerificationError as error:
        raise _not_verified(server, error) from error
    except (OSError, http.client.HTTPException) as error:
        raise ApiUnreachableError(f"{server} does not answer: {error}") from error
    finally:
        connection.close()
    if answer.status in _REFUSED:
        raise ApiRefusedError(f"{server} refuses these credentials (HTTP {answer.status})")
    if answer.status != _OK:
        raise ApiUnreachableError(f"{server}{path} answers HTTP {answer.status}")
    return Answer(body, answer.getheader("Date") or "")


def _not_verified(server: str, error: ssl.SSLCertVerificationError) -> ApiRefusedError:
    """A node renews its certificates in time: one that is not good now says that a clock is off."""
    why = _AT_ANOTHER_TIME.get(error.verify_code)
    if why is None:
        return ApiRefusedError(f"{server} is not the expected server: {error.verify_message}")
    return ApiRefusedError(
        f"a clock is off: by this machine's, the certificate of {server} {why}",
        hint="Set the wrong clock right, this machine's or that of the gateway's host (`holdfast doctor` "
        "compares them), then run the same command again.",
    )


def is_unreachable(error: BaseException) -> bool:
    """Whether trying again may help."""
    return isinstance(error, ApiUnreachableError)


def verified_context(ca: bytes, certificate: bytes, key: bytes) -> ssl.SSLContext:
    """TLS with which both sides show a certificate, out of PEM texts that stay in memory."""
    try:
        # Never the empty text: with that, the standard library would trust the system's own.
        context = ssl.create_default_context(cadata=ca.decode("ascii") or "\n")
    except (ssl.SSLError, ValueError) as error:
        raise _no_pem("certificate of the CA", error) from error
    with passing_file(certificate + b"\n" + key) as pair:
        try:
            context.load_cert_chain(pair, password=_no_password)
        except (ssl.SSLError, ValueError) as error:
            raise _no_pem("client's certificate and key", error) from error
    return context


def _no_password() -> str:
    """Instead of a question on the terminal, which a key with a password would lead to."""
    return ""


def _no_pem(what: str, error: Exception) -> ApiRefusedError:
    why = getattr(error, "reason", None) or "not PEM"
    return ApiRefusedError(
        f"the {what} cannot be used ({str(why).lower().replace('_', ' ')})",
        hint="The file it comes from is damaged; `holdfast up` writes it anew.",
    )
