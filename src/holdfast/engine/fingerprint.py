"""Fingerprints: a keyed digest of just what a step reads, and of what it needs.

The fingerprint of a step contains those of its needs, so a change cascades to dependants and nowhere else.
Not here: the code of a step. Editing a step must not strand a half-done run; `version` is there to ask for
it.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.engine.secret import Secret, Vault
from holdfast.errors import WorkflowError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.engine.step import Step

_SIZE = 12
_SHORT = 6


class Fingerprinter:
    """Digests under the key of one store; secrets enter as their reference and a digest."""

    def __init__(self, key: bytes, vault: Vault) -> None:
        # Copied for each digest: a key is dear to take in.
        self._keyed = blake2b(digest_size=_SIZE, key=key[:64])
        self._keyed_short = blake2b(digest_size=_SHORT, key=key[:64])
        self._vault = vault
        self._encode = msgspec.json.Encoder(order="deterministic", enc_hook=self._secret).encode

    def of(self, step: Step, inputs: Mapping[str, Any], needs: Sequence[str]) -> str:
        """The fingerprint of a step, from its inputs and the fingerprints of its needs."""
        try:
            body = self._encode((step.name, step.version, inputs, needs))
        except (TypeError, ValueError, RecursionError) as error:
            raise self._refusal(step, inputs, error) from error
        digest = self._keyed.copy()
        digest.update(body)
        return digest.hexdigest()

    def parts(self, inputs: Mapping[str, Any]) -> dict[str, str]:
        """A short digest of each input, to say later which one changed."""
        return {name: self._short(self._encode(value)) for name, value in inputs.items()}

    def result(self, raw: bytes) -> str:
        """A short digest of a stored result, to see whether it came out the same."""
        return self._short(raw)

    def _short(self, body: bytes) -> str:
        digest = self._keyed_short.copy()
        digest.update(body)
        return digest.hexdigest()

    def _secret(self, value: object) -> object:
        if not isinstance(value, Secret):
            raise TypeError(f"{type(value).__name__} is neither JSON nor a Secret")
        self._vault.learn(value)
        return {"secret": value.ref, "digest": self._short(value.reveal())}

    def _refusal(self, step: Step, inputs: Mapping[str, Any], error: Exception) -> WorkflowError:
        for name, value in inputs.items():
            try:
                self._encode(value)
            except (TypeError, ValueError, RecursionError):
                return WorkflowError(f"input {name!r} of step {step.name!r} cannot be fingerprinted: {error}")
        return WorkflowError(f"inputs of step {step.name!r} cannot be fingerprinted: {error}")


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """The names of inputs that came, went or changed."""
    return sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
