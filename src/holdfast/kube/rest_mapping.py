"""Maps kinds to REST paths, and checks the manifests and names that callers pass in.

Common kinds are known; others are looked up through the discovery API. Errors name the invalid field and
never quote values of Secrets. The server validates the rest of a manifest.
"""

from __future__ import annotations

import json
import re
import weakref
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from holdfast.errors import ApiRequestRejectedError, ArgumentTypeError, InvalidArgumentError
from holdfast.kube.client import run_sync
from holdfast.kube.failures import http_status
from holdfast.kube.rest_client import ApiRequest
from holdfast.kube.retry_table import Verb
from holdfast.kube.transport import DEFAULT_TIMEOUT, ApiSession, open_session
from holdfast.retry import exponential

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

    from holdfast.retry import Policy


# kind: (API version, plural, lives in a namespace)
_BUILTIN_KINDS: dict[str, tuple[str, str, bool]] = {
    "ConfigMap": ("v1", "configmaps", True),
    "Endpoints": ("v1", "endpoints", True),
    "Event": ("v1", "events", True),
    "Namespace": ("v1", "namespaces", False),
    "Node": ("v1", "nodes", False),
    "PersistentVolume": ("v1", "persistentvolumes", False),
    "PersistentVolumeClaim": ("v1", "persistentvolumeclaims", True),
    "Pod": ("v1", "pods", True),
    "Secret": ("v1", "secrets", True),
    "Service": ("v1", "services", True),
    "ServiceAccount": ("v1", "serviceaccounts", True),
    "DaemonSet": ("apps/v1", "daemonsets", True),
    "Deployment": ("apps/v1", "deployments", True),
    "ReplicaSet": ("apps/v1", "replicasets", True),
    "StatefulSet": ("apps/v1", "statefulsets", True),
    "CronJob": ("batch/v1", "cronjobs", True),
    "Job": ("batch/v1", "jobs", True),
    "Lease": ("coordination.k8s.io/v1", "leases", True),
    "Ingress": ("networking.k8s.io/v1", "ingresses", True),
    "NetworkPolicy": ("networking.k8s.io/v1", "networkpolicies", True),
    "ClusterRole": ("rbac.authorization.k8s.io/v1", "clusterroles", False),
    "ClusterRoleBinding": ("rbac.authorization.k8s.io/v1", "clusterrolebindings", False),
    "Role": ("rbac.authorization.k8s.io/v1", "roles", True),
    "RoleBinding": ("rbac.authorization.k8s.io/v1", "rolebindings", True),
    "StorageClass": ("storage.k8s.io/v1", "storageclasses", False),
    "CustomResourceDefinition": ("apiextensions.k8s.io/v1", "customresourcedefinitions", False),
}
API_VERSIONS: dict[str, str] = {kind: row[0] for kind, row in _BUILTIN_KINDS.items()}


@dataclass(frozen=True, slots=True)
class RestMapping:
    """The REST collection of one kind."""

    root: str
    plural: str
    namespaced: bool

    def path(self, namespace: str | None, name: str | None = None) -> str:
        """The path of a collection or an object; without a namespace, of the namespace `default`."""
        scope = f"/namespaces/{namespace or 'default'}" if self.namespaced else ""
        return f"{self.root}{scope}/{self.plural}" + (f"/{name}" if name else "")

    def list_path(self, namespace: str | None) -> str:
        """The path of a collection; without a namespace, of all namespaces."""
        return self.path(namespace) if namespace else f"{self.root}/{self.plural}"


# The server reports a CustomResourceDefinition as established before it lists the kind: ask again for 1.5 s.
# Without the budget, which counts failures of the server.
_LOOKUP_RETRIES: dict[str, Any] = {"attempts": 5, "backoff": exponential(0.1, jitter=0.0), "budget": None}
_discovered: weakref.WeakKeyDictionary[Any, dict[tuple[str, str], RestMapping]] = weakref.WeakKeyDictionary()


class _KindNotFoundError(ApiRequestRejectedError):
    """The server does not list the kind."""


def api_root(api_version: str) -> str:
    """Return the path of an API version, such as `/api/v1` or `/apis/apps/v1`."""
    return f"/api/{api_version}" if "/" not in api_version else f"/apis/{api_version}"


async def find_mapping(session: ApiSession, reference: ObjectReference) -> RestMapping:
    """Find the mapping of a kind; the result of a discovery request is cached per client."""
    row = _BUILTIN_KINDS.get(reference.kind)
    if row is not None and row[0] == reference.api_version:
        return RestMapping(api_root(row[0]), row[1], row[2])
    discovered = _discovered.setdefault(session.api_client, {})
    key = (reference.api_version, reference.kind)
    if key not in discovered:
        policy = session.policy.replace(
            retry_on=_KindNotFoundError, operation=f"look up {reference.kind}", **_LOOKUP_RETRIES
        )
        discovered.update(await session.run(policy, partial(_discover, session, reference)))
    return discovered[key]


async def _discover(session: ApiSession, reference: ObjectReference) -> dict[tuple[str, str], RestMapping]:
    root = api_root(reference.api_version)
    try:
        response = await session.request("look up", reference, ApiRequest(Verb.READ, root, "api_resources"))
    except ApiRequestRejectedError as error:
        if error.cause is None or http_status(error.cause) != HTTPStatus.NOT_FOUND:
            raise
        response = {}
    mappings = _parse_api_resources(reference.api_version, root, response)
    if (reference.api_version, reference.kind) not in mappings:
        raise _KindNotFoundError(
            f"{reference.kind}: the server has no such kind in {reference.api_version}",
            hint="Install its CustomResourceDefinition, or correct apiVersion and kind.",
        )
    return mappings


def _parse_api_resources(api_version: str, root: str, response: Any) -> dict[tuple[str, str], RestMapping]:
    mappings: dict[tuple[str, str], RestMapping] = {}
    resources = response.get("resources") if isinstance(response, dict) else None
    for resource in resources if isinstance(resources, list) else []:
        if not isinstance(resource, dict):
            continue
        name, kind = resource.get("name"), resource.get("kind")
        # Names with a slash, such as `pods/status`, are subresources.
        if isinstance(name, str) and isinstance(kind, str) and "/" not in name:
            mappings[api_version, kind] = RestMapping(root, name, bool(resource.get("namespaced")))
    return mappings


_MODEL_NAME = re.compile(r"(?:Core|Events|Discovery)?V[0-9]+(?:(?:alpha|beta)[0-9]+)?([A-Z]\w+)")
# Names and namespaces become segments of the request path: a slash, a percent sign or `..` could address
# another resource. Colons occur in names of RBAC objects.
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.:]*[a-z0-9])?")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_MAX_NAME_LENGTH = 253


@dataclass(frozen=True, slots=True)
class ObjectReference:
    """The identity of an object, or of a collection if it has no name."""

    api_version: str
    kind: str
    name: str | None = None
    namespace: str | None = None

    def __str__(self) -> str:
        if self.name is None:
            return f"{self.kind} in {self.namespace}" if self.namespace else self.kind
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"

    def with_name(self, name: str | None) -> ObjectReference:
        return replace(self, name=name)

    def with_type(self, item: dict[str, Any]) -> dict[str, Any]:
        """An item of a list with kind and apiVersion, which the server omits there."""
        return {**item, "kind": self.kind, "apiVersion": self.api_version}


def object_reference(
    kind: str, name: str, namespace: str | None = None, api_version: str | None = None
) -> ObjectReference:
    """Check the identity of an object; common kinds need no API version."""
    if not isinstance(kind, str) or not kind:
        raise ArgumentTypeError("kind", "must be a string such as 'Pod'")
    version = api_version or API_VERSIONS.get(kind)
    if version is None:
        raise InvalidArgumentError("api_version", f"is required for the kind {kind}")
    if not isinstance(version, str):
        raise ArgumentTypeError("api_version", "must be a string such as 'apps/v1'")
    return ObjectReference(
        version, kind, _validate_name("name", name), _validate_namespace("namespace", namespace)
    )


def collection_reference(kind: str, namespace: str | None, api_version: str | None) -> ObjectReference:
    """Check the identity of a collection."""
    return object_reference(kind, "any", namespace, api_version).with_name(None)


def parse_new_manifest(
    value: Any, namespace: str | None, to_json: Any
) -> tuple[dict[str, Any], ObjectReference]:
    """`parse_manifest` for an object that does not exist yet."""
    body, where = parse_manifest(value, namespace, to_json)
    if body["metadata"].get("resourceVersion"):
        raise InvalidArgumentError("manifest.metadata.resourceVersion", "must not be set for a new object")
    return body, where


def parse_manifest(value: Any, namespace: str | None, to_json: Any) -> tuple[dict[str, Any], ObjectReference]:
    """Return an object as JSON, and its identity. `to_json` converts models of the official client."""
    body = _dict_to_json(value, to_json) if isinstance(value, dict) else _model_to_json(value, to_json)
    kind, version = body.get("kind"), body.get("apiVersion")
    if not isinstance(kind, str) or not kind:
        raise InvalidArgumentError("manifest.kind", "is missing")
    version = version or API_VERSIONS.get(kind)
    if not isinstance(version, str):
        raise InvalidArgumentError("manifest.apiVersion", f"is missing and not known for the kind {kind}")
    metadata = body.get("metadata")
    if not isinstance(metadata, dict):
        raise InvalidArgumentError("manifest.metadata", "is missing")
    for field in ("labels", "annotations"):
        if not isinstance(metadata.get(field) or {}, dict):
            raise InvalidArgumentError(f"manifest.metadata.{field}", "must be a mapping")
    resolved = _resolve_namespace(metadata, namespace)
    name, base = metadata.get("name"), metadata.get("generateName")
    if not name and not base:
        raise InvalidArgumentError("manifest.metadata.name", "is missing")
    if name and base and not str(name).startswith(str(base)):
        raise InvalidArgumentError("manifest.metadata", "name and generateName contradict each other")
    _validate_name("manifest.metadata.name" if name else "manifest.metadata.generateName", name or base)
    _validate_secret(kind, body)
    body = {
        **body,
        "apiVersion": version,
        "metadata": {**metadata, **({"namespace": resolved} if resolved else {})},
    }
    return body, ObjectReference(version, kind, name, resolved)


def _dict_to_json(value: dict[str, Any], to_json: Any) -> dict[str, Any]:
    try:
        body: dict[str, Any] = to_json(value)
        json.dumps(body)
    except (TypeError, ValueError, AttributeError, RecursionError):
        # Not chained: the original message may quote a value of a Secret.
        raise InvalidArgumentError("manifest", "cannot be serialized as JSON") from None
    return body


def _model_to_json(value: Any, to_json: Any) -> dict[str, Any]:
    match = _MODEL_NAME.fullmatch(type(value).__name__)
    if match is None or not hasattr(value, "metadata"):
        raise ArgumentTypeError("manifest", f"must be a dict or a model, not {type(value).__name__}")
    body = to_json(value)
    return {**body, "kind": body.get("kind") or match[1]}


def _resolve_namespace(metadata: dict[str, Any], namespace: str | None) -> str | None:
    own = metadata.get("namespace")
    if own and namespace and own != namespace:
        raise InvalidArgumentError("namespace", "contradicts manifest.metadata.namespace")
    return _validate_namespace("namespace", own or namespace)


def _validate_namespace(argument: str, namespace: Any) -> str | None:
    """Check a namespace, which becomes part of the request path."""
    if namespace is None:
        return None
    if not isinstance(namespace, str) or not _NAMESPACE.fullmatch(namespace):
        raise InvalidArgumentError(argument, f"{str(namespace)[:60]!r} is not a valid namespace")
    return namespace


def _validate_name(argument: str, name: Any) -> str:
    if not isinstance(name, str) or not name:
        raise InvalidArgumentError(argument, "is missing")
    if len(name) > _MAX_NAME_LENGTH or not _NAME.fullmatch(name.rstrip("-.") or "-"):
        raise InvalidArgumentError(argument, f"{name[:60]!r} is not a valid name")
    return name


def _validate_secret(kind: str, body: dict[str, Any]) -> None:
    if kind != "Secret":
        return
    for field in ("data", "stringData"):
        if not isinstance(body.get(field) or {}, dict):
            raise InvalidArgumentError(f"manifest.{field}", "must be a mapping")
    duplicates = set(body.get("data") or {}) & set(body.get("stringData") or {})
    if duplicates:
        raise InvalidArgumentError(
            "manifest.stringData", f"has the key {min(duplicates)!r}, which is also in manifest.data"
        )


def fetch_openapi(
    api_client: ApiClient, api_version: str, policy: Policy | None = None, *, timeout: float = DEFAULT_TIMEOUT
) -> dict[str, Any]:
    """Fetch the OpenAPI v3 document of one API version, such as `v1` or `apps/v1`."""
    session = open_session(api_client, policy=policy, timeout=timeout)
    request = ApiRequest(Verb.READ, f"/openapi/v3{api_root(api_version)}", "openapi", returns_object=False)
    reference = ObjectReference(api_version, "API")
    return run_sync(session.request("read the OpenAPI document of", reference, request))
