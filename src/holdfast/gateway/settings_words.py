"""What is allowed for each kind of setting, in words; and the error that says so.

Not here: the checks themselves (settings_values.py); a test holds both against each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import BadSettingError
from holdfast.gateway.settings_values import UNQUOTED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from holdfast.gateway.settings_model import Kind, Leaf

_LONGEST_QUOTE = 60

_ALLOWED: Mapping[Kind, str] = {
    "image": "an image reference like [registry/]name[:tag], in lower case",
    "port": "a port from 1 to 65535, or auto",
    "listen": "an IPv4 address",
    "names": "host names and IP addresses, as a list or with commas between them",
    "images": "image references, as a list or with commas between them",
    "gpus": "all, none, or device ids, as a list or with commas between them",
    "seconds": "seconds from {low:g} to {high:g}, as a number or like 90s, 3m, 1h",
    "count": "a whole number from {low:g} to {high:g}",
    "mirrors": "addresses by registry host, as a table or like host=https://mirror:port,host=…; no logins",
    "hosts": "registry hosts like name or name:port, as a list or with commas between them",
    "ca-files": "paths by registry host, as a table or like host=path,host=path",
    "logins": "by registry host, file:PATH or env:NAME, as a table or like host=env:NAME,host=file:PATH",
    "size": "a size like 512Mi, 2Gi or 10G",
    "class": "the name of a storage class, or nothing for the cluster's default",
    "days": "a whole number of days from {low:g} to {high:g}",
    "namespace": "the name of a namespace: a-z, 0-9 and -, at most 63 characters",
    "switch": "true or false",
    "share": "a number from {low:g} up to, but not, {high:g}",
}


def allowed(leaf: Leaf) -> str:
    """What a setting takes, in words."""
    low, high = leaf.bounds or (0, 0)
    return _ALLOWED[leaf.kind].format(low=low, high=high)


def bad_value(leaf: Leaf, raw: object, where: str, why: str) -> BadSettingError:
    """The error for a value that cannot be: names key and place, and quotes nothing that may be a secret."""
    shown = "" if leaf.kind in UNQUOTED else f" {_quoted(raw)}"
    return BadSettingError(
        f"{leaf.key}: the value{shown} from {where} cannot be used: {why}",
        hint=f"{leaf.key} takes {allowed(leaf)}.",
    )


def unknown_key(key: str, where: str, known: Iterable[str]) -> BadSettingError:
    """The error for a key that nobody knows, with the one that may have been meant."""
    from difflib import get_close_matches

    names = sorted(known)
    close = get_close_matches(key, names, n=1, cutoff=0.7)
    hint = f"Did you mean {close[0]}?" if close else f"There are: {', '.join(names)}."
    return BadSettingError(f"there is no setting {key} (from {where})", hint=hint)


def _quoted(raw: object) -> str:
    text = repr(raw)
    return text if len(text) <= _LONGEST_QUOTE else f"{text[: _LONGEST_QUOTE - 1]}…"
