"""Labels and annotations that nobody may bring along: others act on them, or they open a way to others.

One rule for all who ask for a pod, be it by the gateway's API or by a claim. Not here: who is told so
(creation.py, claim_metadata.py, mistakes.py).
"""

from __future__ import annotations

from holdfast.sandbox.api import GROUP

_OWNERS = {
    GROUP: "the sandbox API's",
    "holdfast.dev": "holdfast's",
    "kubernetes.io": "Kubernetes'",
    "k8s.io": "Kubernetes'",
}
_EXEMPT_ANNOTATIONS = frozenset({"cluster-autoscaler.kubernetes.io/safe-to-evict"})
"""What the published API leaves to whoever asks, though its domain is Kubernetes' own."""
_ROUTER = ("app", "sandbox-router")
"""The label that a template's usual network policy lets in."""
_LONGEST_SHOWN = 100


def why_reserved(key: str) -> str:
    """Whose the domain of a label's key is, or one above it, in words; empty where it is anybody's."""
    domain, slash, _ = key.partition("/")
    for each, owner in _OWNERS.items() if slash else ():
        if f".{domain.lower()}".endswith(f".{each}"):
            return f"{each} is {owner} own domain"
    return ""


def why_reserved_annotation(key: str) -> str:
    """The same for an annotation's key."""
    return "" if key in _EXEMPT_ANNOTATIONS else why_reserved(key)


def is_router(key: str, value: str) -> bool:
    """Whether a label makes a pod look like the router, which every sandbox of a template lets in."""
    return (key.lower(), value.lower()) == _ROUTER


def shortened(key: str) -> str:
    """A key as people are told of it: one of any length may have been given."""
    return key if len(key) <= _LONGEST_SHOWN else f"{key[:_LONGEST_SHOWN]}…"


def in_one_line(key: str) -> str:
    """The same, and quoted where it holds what is no text to show: a line break, or worse."""
    shown = shortened(key)
    return shown if shown.isprintable() else repr(shown)
