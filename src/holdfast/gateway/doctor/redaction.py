"""Takes secrets out of anything that leaves this machine: texts, and values as JSON has them.

By name (`password=…`), by shape (keys, tokens, logins in addresses), and by content where a secret is known.
In doubt it hides: a report that says too little is mended by a question. Not here: what is collected at all;
Secrets and ConfigMaps never are (bundle.py).
"""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from holdfast.gateway.doctor.secret_names import is_secret_name

if TYPE_CHECKING:
    from collections.abc import Iterable

HIDDEN = "<hidden>"

_SHORTEST_KNOWN = 6
"""A known secret that is shorter would take innocent words with it; its name has to give it away."""

_NEVER = ("Secret", "SecretList", "ConfigMap", "ConfigMapList")

# Keys and certificates: whole, cut off at the end, and cut off at the beginning, as the tail of a log is.
_PEM = re.compile(r"-----BEGIN [^-\n]{0,80}-----(?:(?!-----BEGIN ).)*?-----END [^-\n]{0,80}-----", re.DOTALL)
_PEM_HEAD = re.compile(r"-----BEGIN [^-\n]{0,80}-----(?:[A-Za-z0-9+/=\s]|\\[nr])*")
_PEM_END = re.compile(r"-----END [^-\n]{0,80}-----")
_PEM_LINE = re.compile(r"[A-Za-z0-9+/=]{0,100}\r?")

_ADDRESS_LOGIN = re.compile(
    r"(?i)\b([a-z][a-z0-9+.-]{0,20}:(?:\\?/){2})(?:[^\s/@:\"']*:[^\s\"']*@|[^\s/@\"':]+@)"
)
_HEADER = re.compile(
    r"(?i)\b((?:proxy-)?authorization|(?:set-)?cookie2?|x-[\w-]{0,40}(?:token|auth|key)[\w-]{0,40})"
    r"\\*[\"']?\s*[:=][^\n]*"
)
_SCHEME = re.compile(r"(?i)\b(bearer|basic|negotiate|digest|token)([ \t]+)[A-Za-z0-9._~+/=-]{6,}")
_SPOKEN = re.compile(r"(?i)\b(password|passwd|passphrase)([ \t]+(?:is[ \t]+)?)[^\s:=][^\n]*")
_LOGIN_FLAG = re.compile(r"(?<![\w-])(-u|--user|--proxy-user)([ \t=]+)\S+:[^\n]*")
_FLAG = re.compile(r"(?<![\w-])(--?)([A-Za-z][\w.-]{0,100})([ \t]+)\S[^\n]*")
_BLOCK = re.compile(
    r"(?<![\w.-])([\w.-]++)(\\*[\"']?[ \t]*:[ \t]*[|>][+-]?\d?[ \t]*\n)(?:[ \t]+[^\n]*(?:\n|$))+"
)
# Variables of pods: the name in one field, the secret in the next.
_ENTRY = re.compile(
    r"""(?i)(\bname\\*["']?\s*:\s*\\*["']?)([\w.-]{1,100})(\\*["']?\s*,?\s*\\*["']?value\\*["']?\s*:\s*)[^\n]*"""
)
_NAMED = re.compile(r"(?<![\w.-])([\w.-]++)\\*[\"']?[ \t]*(?::=|=>|=|:)[ \t]*")
_VALUE = re.compile(
    r"""  "(?:[^"\\]|\\.)*"[^\s,;&}\])]*
        | '(?:[^'\\]|\\.|'\\'')*'[^\s,;&}\])]*
        | [^\n]+""",
    re.VERBOSE,
)

_SHAPES = (
    re.compile(r"eyJ[A-Za-z0-9_+/=.-]{10,}"),  # JSON in base64: web tokens, registry logins
    re.compile(r"\b(?:gh[pousr]_|github_pat_|glpat-|xox[a-z]-|sk-|npm_|pypi-|hf_|AIza|ya29\.)[\w.-]{10,}"),
    re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}"),
    re.compile(r"\b[a-z0-9]{6}\.[a-z0-9]{16}\b"),  # a kubeadm bootstrap token
)
_LONG = re.compile(r"(?<![A-Za-z0-9+/_=-])[A-Za-z0-9+/_-]{32,}={0,2}")


class Redactor:
    """Hides what looks like a secret, and those that are known, in whatever form they come."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        forms = {form for secret in known for form in _forms(secret)}
        self._known = sorted(forms, key=len, reverse=True)

    def text(self, text: str) -> str:
        """A text without its secrets."""
        for secret in self._known:
            text = text.replace(secret, HIDDEN)
        for pattern in (_PEM, _PEM_HEAD):
            text = pattern.sub(HIDDEN, text)
        text = _without_tails(text)
        text = _ADDRESS_LOGIN.sub(rf"\1{HIDDEN}@", text)
        text = _HEADER.sub(rf"\1: {HIDDEN}", text)
        text = _BLOCK.sub(_named_block, text)
        text = _ENTRY.sub(_named_entry, text)
        text = _named_pairs(text)
        text = _FLAG.sub(_named_flag, text)
        for pattern in (_LOGIN_FLAG, _SPOKEN, _SCHEME):
            text = pattern.sub(rf"\1\2{HIDDEN}", text)
        for pattern in _SHAPES:
            text = pattern.sub(HIDDEN, text)
        return _LONG.sub(_mixed, text)

    def value(self, value: Any) -> Any:
        """A value of JSON without its secrets; Secrets and ConfigMaps lose all but their names."""
        if isinstance(value, dict):
            return self._mapping(value)
        if isinstance(value, list | tuple):
            return self._sequence(list(value))
        if isinstance(value, bytes):
            return self._leaf(value.decode(errors="replace"))
        return self._leaf(value) if isinstance(value, str) else value

    def _mapping(self, value: dict[Any, Any]) -> dict[str, Any]:
        if value.get("kind") in _NEVER:
            name = (value.get("metadata") or {}).get("name", "")
            return {"kind": value["kind"], "metadata": {"name": self.text(str(name))}}
        named = is_secret_name(str(value.get("name", "")))
        clean: dict[str, Any] = {}
        for key, inner in value.items():
            hides = is_secret_name(str(key)) or (named and key == "value")
            clean[self.text(str(key))] = _blank(inner) if hides else self.value(inner)
        return clean

    def _sequence(self, value: list[Any]) -> list[Any]:
        """Words of a command come as a list: the one after `--password` is what it says."""
        clean: list[Any] = []
        for index, inner in enumerate(value):
            before = value[index - 1] if index else None
            flag = isinstance(before, str) and before.startswith("-") and "=" not in before
            hides = flag and is_secret_name(str(before).lstrip("-"))
            clean.append(_blank(inner) if hides else self.value(inner))
        return clean

    def _leaf(self, text: str) -> str:
        if text[:1] in ("{", "["):  # JSON inside of JSON, as in annotations
            try:
                return json.dumps(self.value(json.loads(text)))
            except (ValueError, RecursionError):
                return self.text(text)
        return self.text(text)


def _blank(value: Any) -> Any:
    """Whether something is set is worth knowing, and a switch is no secret."""
    return value if value is None or isinstance(value, bool) else HIDDEN


def _forms(secret: str) -> Iterable[str]:
    """A secret as it may turn up: itself, its lines, quoted, in base64."""
    parts = {secret, secret.strip(), *secret.split()}
    for part in parts:
        if len(part) < _SHORTEST_KNOWN:
            continue
        yield part
        yield quote(part, safe="")
        yield json.dumps(part)[1:-1]
        yield base64.b64encode(part.encode()).decode().rstrip("=")
        yield base64.urlsafe_b64encode(part.encode()).decode().rstrip("=")


def _without_tails(text: str) -> str:
    """Without the ends of keys whose beginnings are not there, as in the last lines of a log."""
    parts = _PEM_END.split(text)
    for index, part in enumerate(parts[:-1]):
        lines = part.split("\n")
        while lines and _PEM_LINE.fullmatch(lines[-1]):
            lines.pop()
        parts[index] = "\n".join([*lines, HIDDEN])
    return "".join(parts)


def _named_block(match: re.Match[str]) -> str:
    name, middle = match.groups()
    return f"{name}{middle}  {HIDDEN}\n" if is_secret_name(name) else match[0]


def _named_entry(match: re.Match[str]) -> str:
    head, name, middle = match.groups()
    return f"{head}{name}{middle}{HIDDEN}" if is_secret_name(name) else match[0]


def _named_flag(match: re.Match[str]) -> str:
    dashes, name, space = match.groups()
    return f"{dashes}{name}{space}{HIDDEN}" if is_secret_name(name) else match[0]


def _named_pairs(text: str) -> str:
    """Every `name=value` whose name gives it away; a value that has no end of its own goes to the line's."""
    clean: list[str] = []
    at = 0
    while (match := _NAMED.search(text, at)) is not None:
        clean.append(text[at : match.end()])
        at = match.end()
        # After a backslash the first letter is the rest of an escaped line end, in JSON within a text.
        name = match[1][1:] if text[max(0, match.start() - 1)] == "\\" else match[1]
        value = _VALUE.match(text, at) if is_secret_name(name) else None
        if value is not None:
            clean.append(HIDDEN)
            at = value.end()
    return "".join([*clean, text[at:]])


def _mixed(match: re.Match[str]) -> str:
    """Long runs of capitals, small letters and digits are keys; digests and paths are not like that."""
    word = match[0]
    kinds = (any(map(str.isupper, word)), any(map(str.islower, word)), any(map(str.isdigit, word)))
    return HIDDEN if all(kinds) else word
