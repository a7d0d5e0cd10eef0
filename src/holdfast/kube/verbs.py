"""From a client method's name and arguments to what the call does to the cluster.

The official client names its methods `<verb>_<scope>_<resource>`; what a PATCH or PUT does depends on its
body. Not here: what follows from a verb (`policy_table`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any


class Verb(Enum):
    """What a request does, as far as making it twice is concerned."""

    READ = "read"
    CREATE = "create"
    ASK = "ask"
    """POST that stores nothing: access reviews, token requests, dry runs"""
    EVICT = "evict"
    ACT = "act"
    """POST that does something once: bindings, proxied calls, exec"""
    REPLACE = "replace"
    """PUT with a resourceVersion: the server refuses it if it was done already"""
    OVERWRITE = "overwrite"
    """PUT without one"""
    PATCH = "patch"
    """merge patches and server-side apply: twice is the same as once"""
    PATCH_ONCE = "patch-once"
    """JSON patches that add to lists, remove or test, and patches bound to a resourceVersion"""
    DELETE = "delete"
    DELETE_MANY = "delete-many"


@dataclass(frozen=True, slots=True)
class Method:
    """One method of an API class, taken apart."""

    verb: Verb
    resource: str
    """`namespaced_pod`, `node`, …: what stands behind the verb; few enough values for a metric"""

    @property
    def sensitive(self) -> bool:
        """Whether bodies of this resource must not be shown."""
        return "secret" in self.resource or "token" in self.resource


_FIRST_WORDS = {
    "read": Verb.READ,
    "list": Verb.READ,
    "get": Verb.READ,
    "log": Verb.READ,
    "create": Verb.CREATE,
    "replace": Verb.REPLACE,
    "patch": Verb.PATCH,
    "delete": Verb.DELETE,
}
_SUFFIX = "_with_http_info"
# Of pods to nodes; role bindings are objects like any other.
_BINDINGS = {"namespaced_binding", "namespaced_pod_binding"}


def method_of(name: str) -> Method | None:
    """What the method called `name` does; None for what is no request, and for exec and proxies."""
    first, _, rest = name.removesuffix(_SUFFIX).partition("_")
    verb = _FIRST_WORDS.get(first)
    if verb is None or not rest:
        return None
    if verb is Verb.CREATE:
        verb = _kind_of_create(rest)
    elif verb is Verb.DELETE and rest.startswith("collection_"):
        verb = Verb.DELETE_MANY
    return Method(verb, rest)


def _kind_of_create(resource: str) -> Verb:
    if resource.endswith(("_review", "_token")):
        return Verb.ASK
    if resource.endswith("_eviction"):
        return Verb.EVICT
    return Verb.ACT if resource in _BINDINGS else Verb.CREATE


def verb_of_call(verb: Verb, body: Any, *, dry_run: bool = False) -> Verb:
    """The verb of one call, now that its body is known."""
    if dry_run and verb is not Verb.READ:
        return Verb.ASK
    if verb is Verb.REPLACE:
        return Verb.REPLACE if resource_version(body) else Verb.OVERWRITE
    if verb is Verb.PATCH:
        return Verb.PATCH if _is_repeatable_patch(body) else Verb.PATCH_ONCE
    return verb


def _is_repeatable_patch(body: Any) -> bool:
    if isinstance(body, list):
        return all(_is_repeatable_operation(each) for each in body)
    return not isinstance(body, str | bytes) and not resource_version(body)


def _is_repeatable_operation(operation: Any) -> bool:
    if not isinstance(operation, dict):
        return False
    last = str(operation.get("path", "")).rpartition("/")[2]
    # An index or "-" inserts into a list, once more with each repetition.
    return operation.get("op") == "replace" or (
        operation.get("op") == "add" and bool(last) and last != "-" and not last.isdigit()
    )


def resource_version(body: Any) -> str | None:
    """The resourceVersion that a body is bound to: of a model, or of a dict."""
    if isinstance(body, dict):
        metadata = body.get("metadata")
        version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    else:
        version = getattr(getattr(body, "metadata", None), "resource_version", None)
    return version if isinstance(version, str) and version else None
