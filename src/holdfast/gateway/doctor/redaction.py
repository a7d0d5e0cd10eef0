"""Hide secrets in texts and JSON values before they leave this machine.

A secret is recognised by its name (`password=…`), by its shape (keys, tokens, credentials in URLs), or
because its value is known. In doubt a value is hidden: a missing detail can be requested later, a leaked
secret cannot be revoked everywhere.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from holdfast.workflow import MIN_REDACTED_LENGTH, encoded_forms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

HIDDEN = "<hidden>"
_OMITTED_KINDS = ("Secret", "SecretList", "ConfigMap", "ConfigMapList")

# Substrings of a name, compared without case and separators.
_SECRET_SUBSTRINGS = (
    "password", "passwd", "passphrase", "secret", "token", "credential", "apikey", "privatekey", "accesskey",
    "clientkey", "signingkey", "dockerconfig", "authorization", "cookie", "bearer", "webhook",
)  # fmt: skip

# Whole words of a name: `DB_PASS`, but not `bypass`.
_SECRET_WORDS = {
    "pass", "pwd", "pat", "auth", "auths", "dsn", "jwt", "otp", "psk", "sas", "sig", "signature", "creds",
}  # fmt: skip

_KEY_SUFFIXES = {"data", "pem", "b64", "base64", "file", "value"}
_PUBLIC_KEY_WORDS = {"public", "topology", "sort", "cache", "partition", "foreign", "primary", "label"}
_WORD_PATTERN = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Whether a variable, field or flag of this name holds a secret."""
    squeezed = re.sub(r"[^a-z0-9]", "", name.lower())
    if any(part in squeezed for part in _SECRET_SUBSTRINGS):
        return True
    words = [word.lower() for word in _WORD_PATTERN.findall(name)]
    return bool(_SECRET_WORDS & set(words)) or _is_key_name(words)


def _is_key_name(words: list[str]) -> bool:
    """`TLS_KEY` and `client-key-data`, but not a plain `key`, which is a common field name."""
    while words and words[-1] in _KEY_SUFFIXES:
        words = words[:-1]
    return len(words) > 1 and words[-1] in ("key", "keys") and not _PUBLIC_KEY_WORDS & set(words)


_PEM_END = re.compile(r"-----END [^-\n]{0,80}-----")
_PEM_LINE = re.compile(r"[A-Za-z0-9+/=]{0,100}\r?")


def _redact_pem_tails(text: str) -> str:
    """Hide the ends of keys whose beginnings are missing, as in the last lines of a log."""
    parts = _PEM_END.split(text)
    for index, part in enumerate(parts[:-1]):
        lines = part.split("\n")
        while lines and _PEM_LINE.fullmatch(lines[-1]):
            lines.pop()
        parts[index] = "\n".join([*lines, HIDDEN])
    return "".join(parts)


def _hide_named_value(match: re.Match[str]) -> str:
    """Replace what follows the groups of a match, if its group `name` is the name of a secret."""
    return "".join([*match.groups(), HIDDEN]) if is_secret_name(match["name"]) else match[0]


_ASSIGNMENT = re.compile(r"(?<![\w.-])([\w.-]++)\\*[\"']?[ \t]*(?::=|=>|=|:)[ \t]*")
_VALUE = re.compile(
    r"""  "(?:[^"\\]|\\.)*"[^\s,;&}\])]*
        | '(?:[^'\\]|\\.|'\\'')*'[^\s,;&}\])]*
        | [^\n]+""",
    re.VERBOSE,
)


def _redact_assignments(text: str) -> str:
    """Hide the value of every `name=value` with a secret name; an unquoted value ends with the line."""
    clean: list[str] = []
    at = 0
    while (match := _ASSIGNMENT.search(text, at)) is not None:
        clean.append(text[at : match.end()])
        at = match.end()
        # After a backslash the first letter belongs to an escaped newline (`\\n`) of JSON within the text.
        name = match[1][1:] if text[max(0, match.start() - 1)] == "\\" else match[1]
        value = _VALUE.match(text, at) if is_secret_name(name) else None
        if value is not None:
            clean.append(HIDDEN)
            at = value.end()
    return "".join([*clean, text[at:]])


def _redact_random_word(match: re.Match[str]) -> str:
    """Hide long words of capitals, small letters and digits; digests and paths do not mix all three."""
    word = match[0]
    kinds = (any(map(str.isupper, word)), any(map(str.islower, word)), any(map(str.isdigit, word)))
    return HIDDEN if all(kinds) else word


def _rule(
    pattern: str, replacement: str | Callable[[re.Match[str]], str] = HIDDEN, flags: int = 0
) -> Callable[[str], str]:
    return partial(re.compile(pattern, flags).sub, replacement)


# The rules for texts, in this order; each takes a text and returns it without the secrets it recognises.
# Blocks come before assignments: an unquoted value ends with its line, and the rest of a key would remain.
_RULES: tuple[Callable[[str], str], ...] = (
    # Keys and certificates: complete, without their end, and without their beginning.
    _rule(r"-----BEGIN [^-\n]{0,80}-----(?:(?!-----BEGIN ).)*?-----END [^-\n]{0,80}-----", flags=re.DOTALL),
    _rule(r"-----BEGIN [^-\n]{0,80}-----(?:[A-Za-z0-9+/=\s]|\\[nr])*"),
    _redact_pem_tails,
    # Credentials in URLs and headers.
    _rule(
        r"(?i)\b([a-z][a-z0-9+.-]{0,20}:(?:\\?/){2})(?:[^\s/@:\"']*:[^\s\"']*@|[^\s/@\"':]+@)",
        rf"\1{HIDDEN}@",
    ),
    _rule(
        r"(?i)\b((?:proxy-)?authorization|(?:set-)?cookie2?|x-[\w-]{0,40}(?:token|auth|key)[\w-]{0,40})"
        r"\\*[\"']?\s*[:=][^\n]*",
        rf"\1: {HIDDEN}",
    ),
    # Values with a secret name: YAML blocks, environment variables of pods, assignments and flags.
    _rule(
        r"(?<![\w.-])(?P<name>[\w.-]++)(\\*[\"']?[ \t]*:[ \t]*[|>][+-]?\d?[ \t]*\n[ \t]+)[^\n]*"
        r"(?:\n[ \t]+[^\n]*)*",
        _hide_named_value,
    ),
    _rule(
        r"""(?i)(\bname\\*["']?\s*:\s*\\*["']?)(?P<name>[\w.-]{1,100})(\\*["']?\s*,?\s*\\*["']?value\\*["']?\s*:\s*)[^\n]*""",
        _hide_named_value,
    ),
    _redact_assignments,
    _rule(r"(?<![\w-])(--?)(?P<name>[A-Za-z][\w.-]{0,100})([ \t]+)\S[^\n]*", _hide_named_value),
    _rule(r"(?<![\w-])(-u|--user|--proxy-user)([ \t=]+)\S+:[^\n]*", rf"\1\2{HIDDEN}"),
    _rule(r"(?i)\b(password|passwd|passphrase)([ \t]+(?:is[ \t]+)?)[^\s:=][^\n]*", rf"\1\2{HIDDEN}"),
    _rule(r"(?i)\b(bearer|basic|negotiate|digest|token)([ \t]+)[A-Za-z0-9._~+/=-]{6,}", rf"\1\2{HIDDEN}"),
    # Tokens by their shape.
    _rule(r"eyJ[A-Za-z0-9_+/=.-]{10,}"),  # base64 of JSON: JWTs, registry logins
    _rule(r"\b(?:gh[pousr]_|github_pat_|glpat-|xox[a-z]-|sk-|npm_|pypi-|hf_|AIza|ya29\.)[\w.-]{10,}"),
    _rule(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}"),
    _rule(r"\b[a-z0-9]{6}\.[a-z0-9]{16}\b"),  # a kubeadm bootstrap token
    _rule(r"(?<![A-Za-z0-9+/_=-])[A-Za-z0-9+/_-]{32,}={0,2}", _redact_random_word),
)


class Redactor:
    """Hide everything that looks like a secret, and known secrets in every encoding."""

    def __init__(self, known_secrets: Iterable[str] = ()) -> None:
        # Each word of a secret as well: a text may wrap or join its lines.
        parts = {part for secret in known_secrets for part in (secret, secret.strip(), *secret.split())}
        forms = (encoded_forms(part.encode()) for part in parts if len(part) >= MIN_REDACTED_LENGTH)
        self._known_secrets = sorted(set().union(*forms), key=len, reverse=True)

    def redact_text(self, text: str) -> str:
        """Return the text with its secrets replaced."""
        # Known values first, the longest first: replacing a part of a secret would leave the rest of it.
        for secret in self._known_secrets:
            text = text.replace(secret, HIDDEN)
        for rule in _RULES:
            text = rule(text)
        return text

    def redact_value(self, value: Any) -> Any:
        """Return a JSON value with its secrets replaced; Secrets and ConfigMaps keep only their names."""
        if isinstance(value, dict):
            return self._redact_mapping(value)
        if isinstance(value, list | tuple):
            return self._redact_sequence(value)
        return self._redact_string(value) if isinstance(value, str) else value

    def _redact_mapping(self, value: dict[Any, Any]) -> dict[str, Any]:
        if value.get("kind") in _OMITTED_KINDS:
            name = (value.get("metadata") or {}).get("name", "")
            return {"kind": value["kind"], "metadata": {"name": self.redact_text(str(name))}}
        named = is_secret_name(str(value.get("name", "")))
        clean: dict[str, Any] = {}
        for key, inner in value.items():
            hides = is_secret_name(str(key)) or (named and key == "value")
            # A key can be a secret itself, as in a map by token.
            clean[self.redact_text(str(key))] = _hide_value(inner) if hides else self.redact_value(inner)
        return clean

    def _redact_sequence(self, value: Sequence[Any]) -> list[Any]:
        """Redact a list; in a command line, the word after `--password` is a secret."""
        return [
            _hide_value(inner) if _is_secret_flag(before) else self.redact_value(inner)
            for before, inner in zip((None, *value), value, strict=False)
        ]

    def _redact_string(self, text: str) -> str:
        if text[:1] in ("{", "["):  # JSON inside of a JSON string, as in annotations
            with suppress(ValueError, RecursionError):
                return json.dumps(self.redact_value(json.loads(text)))
        return self.redact_text(text)


def _is_secret_flag(word: Any) -> bool:
    is_flag = isinstance(word, str) and word.startswith("-") and "=" not in word
    return is_flag and is_secret_name(word.lstrip("-"))


def _hide_value(value: Any) -> Any:
    """Hide a value, but not whether it is set; a boolean is not a secret."""
    return value if value is None or isinstance(value, bool) else HIDDEN
