"""Secrets by reference: what may be said of them, and the guard that keeps their values out of stores.

Not here: where a secret comes from. A step reads it again, by its reference, whenever it needs it.
"""

from __future__ import annotations

import base64
import json
import threading
from typing import NoReturn

SHORTEST_SOUGHT = 6
"""Values shorter than this are not looked for in texts: they would be found in any."""

_PRIVATE_KEY = "PRIVATE KEY-----"
_KUBECONFIG_KEY = '"client-key-data"'
MASK = "•••"


class Secret:
    """A value that must not be written down, and the reference by which it is found again."""

    __slots__ = ("_value", "ref")

    def __init__(self, ref: str, value: str | bytes) -> None:
        self.ref = ref
        self._value = value.encode() if isinstance(value, str) else bytes(value)

    def reveal(self) -> bytes:
        """The value itself, for the one call that needs it."""
        return self._value

    def text(self) -> str:
        """The value as text, for the one call that needs it."""
        return self._value.decode()

    def __repr__(self) -> str:
        return f"Secret({self.ref!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self!r} is not to be written down")


class Vault:
    """The secrets that a run has seen: finds their values in texts that are about to be kept."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._lock = threading.Lock()

    def learn(self, secret: Secret) -> None:
        value = secret.reveal()
        if len(value) < SHORTEST_SOUGHT:
            return
        forms = {base64.b64encode(value).decode()}
        try:
            text = value.decode()
            forms |= {text, text.strip(), json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]}
        except UnicodeDecodeError:
            pass
        with self._lock:
            self._known = {
                **self._known,
                **{form: secret.ref for form in forms if len(form) >= SHORTEST_SOUGHT},
            }

    def found_in(self, text: str) -> str | None:
        """Which secret stands in a text, in words; None if none does."""
        if _PRIVATE_KEY in text or _KUBECONFIG_KEY in text:
            return "a private key"
        for form, ref in self._known.items():
            if form in text:
                return f"the value of secret {ref!r}"
        return None

    def redact(self, text: str) -> str:
        """The text with all known values struck out."""
        if not self._known and _PRIVATE_KEY not in text:
            return text
        for form in self._known:
            if form in text:
                text = text.replace(form, MASK)
        return text if _PRIVATE_KEY not in text else MASK
