"""The names that a server certificate is made out to: DNS names and addresses, in one spelling.

Not here: certificates. This much is also asked by whoever reads settings, without loading a library.
"""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, TypeAlias

from holdfast.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_DNS = re.compile(rf"(?:\*\.{_LABEL}|{_LABEL})(?:\.{_LABEL})*")
_LOOKS_LIKE_AN_ADDRESS = re.compile(r"[0-9.]+")
_LONGEST = 253


def check_server_name(text: str) -> str:
    """The name or address as it stands in a certificate; refuses what cannot stand there."""
    name = text.strip()
    found = address(name)
    if found is not None:
        return str(found)
    name = name.lower().removesuffix(".")
    if len(name) > _LONGEST or not _DNS.fullmatch(name) or _LOOKS_LIKE_AN_ADDRESS.fullmatch(name):
        raise ArgumentError(
            "name",
            f"{text!r} is neither a host name nor an address",
            hint="Write a host name of at most 253 characters (an international one in its xn-- form), or an "
            "IP address without port.",
        )
    return name


def server_names(texts: Iterable[str]) -> tuple[str, ...]:
    """All names in one spelling, each once, in their order; there has to be one."""
    names = tuple(dict.fromkeys(check_server_name(text) for text in texts))
    if not names:
        raise ArgumentError("names", "a server certificate needs at least one name")
    return names


def address(text: str) -> Address | None:
    """The IP address that a text is, with or without the brackets of IPv6; None for anything else."""
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    try:
        found = ipaddress.ip_address(bare)
    except ValueError:
        return None
    return None if "%" in bare else found


def covers(held: Iterable[str], wanted: str) -> bool:
    """Whether one of the names in a certificate stands for the wanted one; `*` stands for one label."""
    names = set(held)
    if wanted in names:
        return True
    head, dot, rest = wanted.partition(".")
    return bool(dot) and head != "*" and address(wanted) is None and f"*.{rest}" in names
