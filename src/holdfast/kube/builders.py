"""Manifests of the objects that are made most often: pods, jobs, registry and environment secrets.

Plain dicts, to be changed before they are sent. Not here: sending them (`objects`).
"""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING, Any

from holdfast.errors import ArgumentError, ArgumentKindError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_VARIABLE = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")


def pod(
    name: str,
    image: str,
    *,
    command: Sequence[str] | None = None,
    env: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    restart: str = "Never",
) -> dict[str, Any]:
    """A pod of one container."""
    if not isinstance(image, str) or not image:
        raise ArgumentError("image", "is missing")
    if isinstance(command, str):
        raise ArgumentKindError("command", "must be a list of words, not one string")
    container: dict[str, Any] = {"name": "main", "image": image}
    if command:
        container["command"] = list(command)
    if env:
        container["env"] = [{"name": key, "value": value} for key, value in env.items()]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _metadata(name, labels),
        "spec": {"restartPolicy": restart, "containers": [container]},
    }


def job(name: str, image: str, *, retries: int = 0, **pod_values: Any) -> dict[str, Any]:
    """A job that runs one pod to its end; takes the values of `pod`."""
    template = pod(name, image, **pod_values)
    labels = template["metadata"].get("labels")
    labelled = {"metadata": {"labels": dict(labels)}} if labels else {}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(name, pod_values.get("labels")),
        "spec": {"backoffLimit": retries, "template": {**labelled, "spec": template["spec"]}},
    }


def docker_registry_secret(name: str, *, server: str, username: str, password: str) -> dict[str, Any]:
    """Credentials for an image registry, as `imagePullSecrets` wants them."""
    for argument, value in (("server", server), ("username", username), ("password", password)):
        if not isinstance(value, str) or not value:
            raise ArgumentError(argument, "is missing")
    if ":" in username:
        raise ArgumentError("username", "must not hold a colon")
    auth = base64.b64encode(f"{username}:{password}".encode()).decode()
    config = {"auths": {server: {"username": username, "password": password, "auth": auth}}}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _metadata(name, None),
        "type": "kubernetes.io/dockerconfigjson",
        "data": {".dockerconfigjson": base64.b64encode(json.dumps(config).encode()).decode()},
    }


def env_secret(name: str, values: Mapping[str, str]) -> dict[str, Any]:
    """A secret whose keys are environment variables, for `envFrom`."""
    if not values:
        raise ArgumentError("values", "is empty")
    for key, value in values.items():
        if not isinstance(key, str) or not _VARIABLE.fullmatch(key):
            raise ArgumentError("values", f"{key!r} is no name for an environment variable")
        if not isinstance(value, str):
            raise ArgumentKindError("values", f"the value of {key} must be a string")
    data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _metadata(name, None),
        "type": "Opaque",
        "data": data,
    }


def _metadata(name: str, labels: Mapping[str, str] | None) -> dict[str, Any]:
    if not isinstance(name, str) or not name:
        raise ArgumentError("name", "is missing")
    # As with `generateName`: a name that ends in a dash is a beginning.
    named = {"generateName": name} if name.endswith("-") else {"name": name}
    return {**named, **({"labels": dict(labels)} if labels else {})}
