"""Takes objects from callers: dicts or models of the official client, checked before anything is sent.

What cannot be meant is refused with one error that names the field; no value is ever quoted. Not here:
whether the server will like the object.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import Any

from holdfast.errors import ArgumentError, ArgumentKindError
from holdfast.kube.kinds import API_VERSIONS

_MODEL = re.compile(r"(?:Core|Events|Discovery)?V[0-9]+(?:(?:alpha|beta)[0-9]+)?([A-Z]\w+)")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.:]*[a-z0-9])?")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_LONGEST_NAME = 253


@dataclass(frozen=True, slots=True)
class Target:
    """Which object: its kind, its name, and where it lives."""

    api_version: str
    kind: str
    name: str | None = None
    namespace: str | None = None

    def __str__(self) -> str:
        place = f"{self.namespace}/" if self.namespace else ""
        return f"{self.kind} {place}{self.name or '(no name yet)'}"

    def named(self, name: str | None) -> Target:
        return replace(self, name=name)


def target(kind: str, name: str, namespace: str | None = None, api_version: str | None = None) -> Target:
    """Name an object; the API version of common kinds is known."""
    if not isinstance(kind, str) or not kind:
        raise ArgumentKindError("kind", "must be the kind of an object, such as 'Pod'")
    version = api_version or API_VERSIONS.get(kind)
    if version is None:
        raise ArgumentError("api_version", f"must be given for the kind {kind}")
    if not isinstance(version, str):
        raise ArgumentKindError("api_version", "must be text, such as 'apps/v1'")
    return Target(version, kind, _checked_name("name", name), _checked_namespace("namespace", namespace))


def fresh_manifest(value: Any, namespace: str | None, plain: Any) -> tuple[dict[str, Any], Target]:
    """The same of an object that is to be made: one that carries a version is not new."""
    body, where = manifest(value, namespace, plain)
    if body["metadata"].get("resourceVersion"):
        raise ArgumentError(
            "manifest.metadata.resourceVersion", "belongs to an object that is there; leave it out"
        )
    return body, where


def manifest(value: Any, namespace: str | None, plain: Any) -> tuple[dict[str, Any], Target]:
    """An object as plain JSON, and which one it is. `plain` turns a model into JSON."""
    body = _from_dict(value, plain) if isinstance(value, dict) else _from_model(value, plain)
    kind, version = body.get("kind"), body.get("apiVersion")
    if not isinstance(kind, str) or not kind:
        raise ArgumentError("manifest.kind", "is missing")
    version = version or API_VERSIONS.get(kind)
    if not isinstance(version, str):
        raise ArgumentError("manifest.apiVersion", f"is missing, and not known for the kind {kind}")
    metadata = body.get("metadata")
    if not isinstance(metadata, dict):
        raise ArgumentError("manifest.metadata", "is missing, and with it the name")
    for field in ("labels", "annotations"):
        if not isinstance(metadata.get(field) or {}, dict):
            raise ArgumentError(f"manifest.metadata.{field}", "must be names and their values")
    place = _place(metadata, namespace)
    name, base = metadata.get("name"), metadata.get("generateName")
    if not name and not base:
        raise ArgumentError("manifest.metadata.name", "is missing")
    if name and base and not str(name).startswith(str(base)):
        raise ArgumentError("manifest.metadata", "name and generateName contradict each other")
    _checked_name("manifest.metadata.name" if name else "manifest.metadata.generateName", name or base)
    _check_secret(kind, body)
    body = {
        **body,
        "apiVersion": version,
        "metadata": {**metadata, **({"namespace": place} if place else {})},
    }
    return body, Target(version, kind, name, place)


def _from_dict(value: dict[str, Any], plain: Any) -> dict[str, Any]:
    try:
        body: dict[str, Any] = plain(value)
        json.dumps(body)
    except (TypeError, ValueError, AttributeError, RecursionError):
        raise ArgumentError("manifest", "holds something that cannot be written as JSON") from None
    return body


def _from_model(value: Any, plain: Any) -> dict[str, Any]:
    match = _MODEL.fullmatch(type(value).__name__)
    if match is None or not hasattr(value, "metadata"):
        raise ArgumentKindError("manifest", f"must be an object of Kubernetes, not {type(value).__name__}")
    body = plain(value)
    return {**body, "kind": body.get("kind") or match[1]}


def _place(metadata: dict[str, Any], namespace: str | None) -> str | None:
    own = metadata.get("namespace")
    if own and namespace and own != namespace:
        raise ArgumentError("namespace", "contradicts manifest.metadata.namespace")
    return _checked_namespace("namespace", own or namespace)


def _checked_namespace(argument: str, namespace: Any) -> str | None:
    """The namespace goes into the path as it is, so it must be nothing but a name."""
    if namespace is None:
        return None
    if not isinstance(namespace, str) or not _NAMESPACE.fullmatch(namespace):
        raise ArgumentError(argument, f"{str(namespace)[:60]!r} is no name for a namespace")
    return namespace


def _checked_name(argument: str, name: Any) -> str:
    if not isinstance(name, str) or not name:
        raise ArgumentError(argument, "is missing")
    if len(name) > _LONGEST_NAME or not _NAME.fullmatch(name.rstrip("-.") or "-"):
        raise ArgumentError(argument, f"{name[:60]!r} is no name for an object")
    return name


def _check_secret(kind: str, body: dict[str, Any]) -> None:
    if kind != "Secret":
        return
    for field in ("data", "stringData"):
        if not isinstance(body.get(field) or {}, dict):
            raise ArgumentError(f"manifest.{field}", "must be keys and their values")
    both = set(body.get("data") or {}) & set(body.get("stringData") or {})
    if both:
        raise ArgumentError("manifest.stringData", f"contradicts manifest.data on the key {min(both)!r}")
