"""Secrets by reference: what may be said of them, and the guard that keeps their values out of stores.

Not here: where a secret comes from. A step reads it again, by its reference, whenever it needs it.
"""

from __future__ import annotations

import base64
import json
import threading
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import quote, quote_plus

from holdfast.errors import SecretLeakError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from msgspec import Raw

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
    """The secrets that a run has seen: finds their values in texts that are about to be kept, or are already.

    `kept` are the results of steps, by name; `leaked` names those that turned out to hold a secret.
    """

    def __init__(self, kept: Mapping[str, bytes | Raw] | None = None) -> None:
        self._known: dict[str, str] = {}
        self._kept = {} if kept is None else kept
        self._lock = threading.Lock()
        self.leaked: set[str] = set()

    def learn(self, secret: Secret) -> None:
        """Know a value from now on; raises if a step has returned it while nobody knew that it is one."""
        if len(secret.reveal()) < SHORTEST_SOUGHT:
            return
        with self._lock:
            new = {form: secret.ref for form in _forms(secret.reveal()) if form not in self._known}
            self._known = {**self._known, **new}
        if new:
            kept = [(name, bytes(raw).decode(errors="replace")) for name, raw in list(self._kept.items())]
            self.leaked |= {name for name, text in kept if any(form in text for form in new)}
        if self.leaked:
            names = ", ".join(map(repr, sorted(self.leaked)))
            raise SecretLeakError(
                f"what step {names} returned holds the value of a secret, which was not known to be one"
                f" before {secret.ref!r} was read; it is struck from the store",
                hint="Let the step that returns it know the secret (`ctx.secret`, or an input), and return"
                " where it is found.",
            )

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


def _forms(value: bytes) -> set[str]:
    """How a value may stand in a text: as it is, and as JSON, base64 and addresses write it."""
    forms = {coded(value).decode().rstrip("=") for coded in (base64.b64encode, base64.urlsafe_b64encode)}
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return forms
    forms |= {text, text.strip(), quote(text), quote(text, safe=""), quote_plus(text)}
    for _ in range(2):  # a result is JSON, and may hold a text that is JSON
        forms |= {json.dumps(form, ensure_ascii=plain)[1:-1] for form in forms for plain in (True, False)}
    return {form for form in forms if len(form) >= SHORTEST_SOUGHT}
