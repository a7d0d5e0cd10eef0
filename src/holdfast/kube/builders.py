"""Builds manifests of common objects as dicts: pods, jobs, registry secrets and environment secrets."""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING, Any

from holdfast.errors import ArgumentTypeError, InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_ENV_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")


def pod(
    name: str,
    image: str,
    *,
    command: Sequence[str] | None = None,
    env: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    restart_policy: str = "Never",
) -> dict[str, Any]:
    """The manifest of a pod with one container.

    Args:
        name: The name of the pod; a name that ends in a dash is a prefix, as in `generateName`.
        image: The image of the container.
        command: Replaces the entrypoint of the image.
        env: Environment variables.
        labels: Labels of the pod.
        restart_policy: `Never`, `OnFailure` or `Always`.

    Raises:
        InvalidArgumentError: An argument is missing or has the wrong type.
    """
    if not isinstance(image, str) or not image:
        raise InvalidArgumentError("image", "is missing")
    if isinstance(command, str):
        raise ArgumentTypeError("command", "must be a list of strings, not one string")
    container: dict[str, Any] = {"name": "main", "image": image}
    if command:
        container["command"] = list(command)
    if env:
        container["env"] = [{"name": key, "value": value} for key, value in env.items()]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _metadata(name, labels),
        "spec": {"restartPolicy": restart_policy, "containers": [container]},
    }


def job(name: str, image: str, *, backoff_limit: int = 0, **pod_options: Any) -> dict[str, Any]:
    """A job that runs one pod to completion; accepts the options of `pod`."""
    template = pod(name, image, **pod_options)
    labels = template["metadata"].get("labels")
    labelled = {"metadata": {"labels": dict(labels)}} if labels else {}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(name, pod_options.get("labels")),
        "spec": {"backoffLimit": backoff_limit, "template": {**labelled, "spec": template["spec"]}},
    }


def docker_registry_secret(name: str, *, server: str, username: str, password: str) -> dict[str, Any]:
    """Credentials for an image registry, for `imagePullSecrets`."""
    for argument, value in (("server", server), ("username", username), ("password", password)):
        if not isinstance(value, str) or not value:
            raise InvalidArgumentError(argument, "is missing")
    # The kubelet splits `auth` at the first colon.
    if ":" in username:
        raise InvalidArgumentError("username", "must not contain a colon")
    auth = base64.b64encode(f"{username}:{password}".encode()).decode()
    config = {"auths": {server: {"username": username, "password": password, "auth": auth}}}
    return _secret(name, "kubernetes.io/dockerconfigjson", {".dockerconfigjson": json.dumps(config)})


def env_secret(name: str, values: Mapping[str, str]) -> dict[str, Any]:
    """A secret whose keys are environment variables, for `envFrom`."""
    if not values:
        raise InvalidArgumentError("values", "is empty")
    for key, value in values.items():
        if not isinstance(key, str) or not _ENV_NAME.fullmatch(key):
            raise InvalidArgumentError("values", f"{key!r} is not a valid environment variable name")
        if not isinstance(value, str):
            raise ArgumentTypeError("values", f"the value of {key} must be a string")
    return _secret(name, "Opaque", values)


def _secret(name: str, kind: str, values: Mapping[str, str]) -> dict[str, Any]:
    data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
    metadata = _metadata(name, None)
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": kind, "data": data}


def _metadata(name: str, labels: Mapping[str, str] | None) -> dict[str, Any]:
    if not isinstance(name, str) or not name:
        raise InvalidArgumentError("name", "is missing")
    # A name that ends in a dash is a prefix.
    name_field = {"generateName": name} if name.endswith("-") else {"name": name}
    return {**name_field, **({"labels": dict(labels)} if labels else {})}
