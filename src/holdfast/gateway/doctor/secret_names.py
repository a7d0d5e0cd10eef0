"""Which names give away that what they name is a secret: of variables, fields, flags and keys."""

from __future__ import annotations

import re
from functools import lru_cache

_PARTS = (
    "password", "passwd", "passphrase", "secret", "token", "credential", "apikey", "privatekey", "accesskey",
    "clientkey", "signingkey", "dockerconfig", "authorization", "cookie", "bearer", "webhook",
)  # fmt: skip
"""Anywhere in a name, however it is spelled."""

_WORDS = {
    "pass",
    "pwd",
    "pat",
    "auth",
    "auths",
    "dsn",
    "jwt",
    "otp",
    "psk",
    "sas",
    "sig",
    "signature",
    "creds",
}
"""As a word of their own: `DB_PASS`, and not `bypass`."""

_KEY_TAILS = {"data", "pem", "b64", "base64", "file", "value"}
_OPEN_KEYS = {"public", "topology", "sort", "cache", "partition", "foreign", "primary", "label"}
_SPLIT = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Whether the value under this name has to be hidden."""
    squeezed = re.sub(r"[^a-z0-9]", "", name.lower())
    if any(part in squeezed for part in _PARTS):
        return True
    words = [word.lower() for word in _SPLIT.findall(name)]
    return bool(_WORDS & set(words)) or _is_some_key(words)


def _is_some_key(words: list[str]) -> bool:
    """`TLS_KEY` and `client-key-data`, but not a plain `key`, which names labels and fields."""
    while words and words[-1] in _KEY_TAILS:
        words = words[:-1]
    return len(words) > 1 and words[-1] in ("key", "keys") and not _OPEN_KEYS & set(words)
