"""Secrets by reference, and the redactor that keeps their values out of stores, events and logs.

A step reads a secret from its origin whenever it needs it; only the reference is stored.
"""

from __future__ import annotations

import base64
import json
import threading
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import quote, quote_plus

from holdfast.errors import SecretLeakError

if TYPE_CHECKING:
    from msgspec import Raw

# Shorter values are not searched for: they occur in almost any text.
MIN_REDACTED_LENGTH = 6

# Private keys are recognized by their form, even if no step has registered them as secrets.
_PRIVATE_KEY_MARKER = "PRIVATE KEY-----"
_KUBECONFIG_KEY_MARKER = '"client-key-data"'
MASK = "•••"


class Secret:
    """A value that must not be stored, with the reference under which it can be read again."""

    __slots__ = ("_value", "ref")

    def __init__(self, ref: str, value: str | bytes) -> None:
        self.ref = ref
        self._value = value.encode() if isinstance(value, str) else bytes(value)

    def reveal(self) -> bytes:
        """Return the value."""
        return self._value

    def text(self) -> str:
        """Return the value as text."""
        return self._value.decode()

    def __repr__(self) -> str:
        return f"Secret({self.ref!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self!r} must not be pickled")


class SecretRedactor:
    """Finds and masks the values of all secrets that a run has seen.

    Args:
        results: encoded results of steps; `leaked_steps` names those that contain a secret.
    """

    def __init__(self, results: dict[str, Raw] | None = None) -> None:
        self._refs_by_form: dict[str, str] = {}
        self._results = {} if results is None else results
        self._lock = threading.Lock()
        self.leaked_steps: set[str] = set()

    def add(self, secret: Secret) -> None:
        """Register a secret. Raises `SecretLeakError` if a step has already returned its value."""
        if len(secret.reveal()) < MIN_REDACTED_LENGTH:
            return
        with self._lock:
            new = {
                form: secret.ref for form in encoded_forms(secret.reveal()) if form not in self._refs_by_form
            }
            known = {**self._refs_by_form, **new}
            # Replaced, not updated: redact() iterates over the dict without taking the lock. Longest first: a
            # form that is a part of another one would leave the rest of the other one unmasked.
            self._refs_by_form = {form: known[form] for form in sorted(known, key=len, reverse=True)}
            # A step may have returned the value before it was registered: search the earlier results too.
            results = list(self._results.items()) if new else []
            texts = [(name, bytes(raw).decode(errors="replace")) for name, raw in results]
            self.leaked_steps |= {name for name, text in texts if any(form in text for form in new)}
        if self.leaked_steps:
            names = ", ".join(map(repr, sorted(self.leaked_steps)))
            raise SecretLeakError(
                f"the result of step {names} contains the value of secret {secret.ref!r}, registered"
                " later; the result is deleted from the store",
                hint="Register the secret in the step that returns it (`ctx.secret`, or an input), and return"
                " its location instead.",
            )

    def store_result(self, step: str, raw: Raw) -> None:
        """Make a result available to readers. Raises `SecretLeakError` if it contains a secret."""
        # With the lock: a secret that another thread registers now is found either here or by `add`.
        with self._lock:
            secret = self._find_secret(bytes(raw).decode(errors="replace"))
            if secret is not None:
                self.leaked_steps.add(step)
                raise SecretLeakError(f"step {step!r} returned {secret}; secrets are not stored")
            self._results[step] = raw

    def _find_secret(self, text: str) -> str | None:
        """Describe the first secret in a text; None if it contains none."""
        if _PRIVATE_KEY_MARKER in text or _KUBECONFIG_KEY_MARKER in text:
            return "a private key"
        for form, ref in self._refs_by_form.items():
            if form in text:
                return f"the value of secret {ref!r}"
        return None

    def redact(self, text: str) -> str:
        """Return the text with all registered values masked."""
        if not self._refs_by_form and _PRIVATE_KEY_MARKER not in text:
            return text
        for form in self._refs_by_form:
            if form in text:
                text = text.replace(form, MASK)
        # The whole text is masked: a truncated key has no end that could be searched for.
        return text if _PRIVATE_KEY_MARKER not in text else MASK


def encoded_forms(value: bytes) -> set[str]:
    """Return the value as it may occur in a text: plain, and encoded as JSON, base64 and URL."""
    # Without padding, because some encoders omit it.
    forms = {encode(value).decode().rstrip("=") for encode in (base64.b64encode, base64.urlsafe_b64encode)}
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return forms
    forms |= {text, text.strip(), quote(text), quote(text, safe=""), quote_plus(text)}
    for _ in range(2):  # a result is JSON, and may contain a string that is JSON
        forms |= {json.dumps(form, ensure_ascii=escape)[1:-1] for form in forms for escape in (True, False)}
    return {form for form in forms if len(form) >= MIN_REDACTED_LENGTH}
