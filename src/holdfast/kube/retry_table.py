"""Verbs of API calls, and the table of what follows a failure: verb by failure class.

The official client names its methods `<verb>_<scope>_<resource>`; the effect of a PATCH or PUT depends on its
body. docs/reference/kubernetes-retries.md explains the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from http import HTTPStatus
from typing import Any

from holdfast.kube.failures import FailureClass, classify, http_status
from holdfast.retry import Budget, Policy, exponential


class Verb(Enum):
    """The effect of a request, with regard to repeating it."""

    READ = "read"
    CREATE = "create"
    QUERY = "query"
    """POST that stores nothing: access reviews, token requests, dry runs"""
    EVICT = "evict"
    INVOKE = "invoke"
    """POST that must happen once: bindings of pods to nodes, and writes whose response the caller reads"""
    REPLACE = "replace"
    """PUT with a resourceVersion: the server rejects a repetition"""
    OVERWRITE = "overwrite"
    """PUT without a resourceVersion"""
    PATCH = "patch"
    """merge patches and server-side apply: idempotent"""
    PATCH_ONCE = "patch-once"
    """JSON patches that add to lists, remove or test, and patches with a resourceVersion"""
    DELETE = "delete"
    DELETE_COLLECTION = "delete-collection"

    # `Enum.__hash__` is a Python function; every call looks up its verb.
    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True)
class ApiMethod:
    """The verb and resource of a method of an API class."""

    verb: Verb
    resource: str
    """the rest of the name, such as `namespaced_pod`; few enough values for a metric label"""

    @property
    def is_sensitive(self) -> bool:
        """Whether bodies of this resource may contain secrets."""
        return "secret" in self.resource or "token" in self.resource


_VERB_BY_PREFIX = {
    "read": Verb.READ,
    "list": Verb.READ,
    "get": Verb.READ,
    "log": Verb.READ,
    "create": Verb.CREATE,
    "replace": Verb.REPLACE,
    "patch": Verb.PATCH,
    "delete": Verb.DELETE,
}
INFO_SUFFIX = "_with_http_info"
STREAM_SUFFIX = "_without_preload_content"
# Bindings of pods to nodes, not role bindings.
_BINDINGS = {"namespaced_binding", "namespaced_pod_binding"}


def parse_method_name(name: str) -> ApiMethod | None:
    """Parse a method name; None for exec, proxies and methods that make no request."""
    first, _, rest = name.removesuffix(INFO_SUFFIX).removesuffix(STREAM_SUFFIX).partition("_")
    verb = _VERB_BY_PREFIX.get(first)
    if verb is None or not rest:
        return None
    if verb is Verb.CREATE:
        verb = _create_verb(rest)
    elif verb is Verb.DELETE and rest.startswith("collection_"):
        verb = Verb.DELETE_COLLECTION
    return ApiMethod(verb, rest)


def _create_verb(resource: str) -> Verb:
    if resource.endswith(("_review", "_token")):
        return Verb.QUERY
    if resource.endswith("_eviction"):
        return Verb.EVICT
    return Verb.INVOKE if resource in _BINDINGS else Verb.CREATE


def effective_verb(verb: Verb, body: Any, *, dry_run: bool = False) -> Verb:
    """The verb of a call with this body."""
    if dry_run and verb is not Verb.READ:
        return Verb.QUERY
    if verb is Verb.REPLACE:
        return Verb.REPLACE if resource_version(body) else Verb.OVERWRITE
    if verb is Verb.PATCH:
        return Verb.PATCH if _is_idempotent_patch(body) else Verb.PATCH_ONCE
    return verb


def _is_idempotent_patch(body: Any) -> bool:
    if isinstance(body, list):
        return all(_is_idempotent_operation(each) for each in body)
    # A serialized patch cannot be inspected. A patch with a resourceVersion changes that version, so that its
    # repetition is a conflict.
    return not isinstance(body, str | bytes) and not resource_version(body)


UID_PATH = "/metadata/uid"
VERSION_PATH = "/metadata/resourceVersion"


def _is_idempotent_operation(operation: Any) -> bool:
    if not isinstance(operation, dict):
        return False
    op, path = operation.get("op"), str(operation.get("path", ""))
    last = path.rpartition("/")[2]
    # An index or "-" inserts into a list each time. A test of the uid, which an object keeps, has the same
    # result each time.
    is_member = last not in {"", "-"} and not last.isdigit()
    return op == "replace" or path == UID_PATH or (op == "add" and is_member)


NO_METADATA = object()


def metadata_field(body: Any, key: str, attribute: str) -> Any:
    """A metadata field of a dict or of a model of the official client.

    None if it is not set; NO_METADATA for a model without metadata.
    """
    if isinstance(body, dict):
        metadata = body.get("metadata")
        return metadata.get(key) if isinstance(metadata, dict) else None
    metadata = getattr(body, "metadata", None)
    return NO_METADATA if metadata is None else getattr(metadata, attribute, None)


def resource_version(body: Any) -> str | None:
    """The resourceVersion of a model or dict."""
    version = metadata_field(body, "resourceVersion", "resource_version")
    return version if isinstance(version, str) and version else None


# Verbs that are repeated after an ambiguous failure. Reads and merge patches have the same effect again. A
# repeated create, replace or delete detects that an earlier attempt was applied (see `idempotency`).
_REPEATABLE_VERBS = {Verb.READ, Verb.QUERY, Verb.CREATE, Verb.REPLACE, Verb.PATCH, Verb.DELETE}


def is_retryable(verb: Verb, error: Exception) -> bool | None:
    """Whether a call with this verb is repeated after this error; None if not, and without a response.

    | failure | verbs |
    | --- | --- |
    | not sent, rejected | all |
    | ambiguous | those whose repetition is safe |
    | definite | none |
    """
    if verb is Verb.EVICT and http_status(error) == HTTPStatus.TOO_MANY_REQUESTS:
        # The disruption budget does not allow the eviction; only the caller knows how long to retry.
        return False
    failure = classify(error)
    if failure is FailureClass.AMBIGUOUS:
        return True if verb in _REPEATABLE_VERBS else None
    return failure is not FailureClass.DEFINITE


DEFAULT_POLICY = Policy(attempts=4, backoff=exponential(0.2, cap=10.0))
# All retries to one server in this process share one token bucket.
_BUDGET_RATE, _BUDGET_BURST = 50.0, 100
_budgets: dict[str, Budget] = {}


def budget_for_host(host: str) -> Budget:
    """The budget shared by all clients of one server in this process."""
    # `setdefault` is atomic: threads that open the first sessions at the same time share one budget.
    budget = _budgets.get(host)
    return _budgets.setdefault(host, Budget(_BUDGET_RATE, burst=_BUDGET_BURST)) if budget is None else budget
