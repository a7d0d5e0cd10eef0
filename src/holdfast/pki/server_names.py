"""Names of server certificates: DNS names and IP addresses in one spelling.

This module does not load the cryptography library; settings are validated with it.
"""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, TypeAlias

from holdfast.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_DNS_NAME = re.compile(rf"(?:\*\.{_LABEL}|{_LABEL})(?:\.{_LABEL})*")
_DIGITS_AND_DOTS = re.compile(r"[0-9.]+")
_MAX_NAME_LENGTH = 253


def normalize_server_name(text: str) -> str:
    """Return a DNS name or IP address in the spelling that certificates use.

    Raises:
        InvalidArgumentError: the text is neither.
    """
    name = text.strip()
    address = parse_address(name)
    if address is not None:
        return str(address)
    name = name.lower().removesuffix(".")
    # 256.1.1.1 matches the pattern of DNS names, but is a mistyped address.
    if len(name) > _MAX_NAME_LENGTH or not _DNS_NAME.fullmatch(name) or _DIGITS_AND_DOTS.fullmatch(name):
        raise InvalidArgumentError(
            "name",
            f"{text!r} is neither a host name nor an IP address",
            hint="Use a host name of at most 253 characters (xn-- form for international names), or an IP"
            " address without port.",
        )
    return name


def normalize_server_names(texts: Iterable[str]) -> tuple[str, ...]:
    """Normalize names and remove duplicates; at least one is required."""
    names = tuple(dict.fromkeys(normalize_server_name(text) for text in texts))
    if not names:
        raise InvalidArgumentError("names", "a server certificate needs at least one name")
    return names


def parse_address(text: str) -> Address | None:
    """Parse an IP address, with or without the brackets of IPv6; return None for any other text."""
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    try:
        # An address with a zone (fe80::1%eth0) is valid on one machine only.
        return None if "%" in bare else ipaddress.ip_address(bare)
    except ValueError:
        return None


def has_matching_name(certificate_names: Iterable[str], wanted: str) -> bool:
    """Report whether a certificate covers a name; `*` matches one label."""
    names = set(certificate_names)
    if wanted in names:
        return True
    head, dot, rest = wanted.partition(".")
    return bool(dot) and head != "*" and parse_address(wanted) is None and f"*.{rest}" in names
