"""Secrets of a gateway and their use in sandboxes, without their values.

A secret NAME is the Kubernetes Secret `holdfast-secret-NAME` with a label. The prefix and the label keep
other Secrets of the namespace out of reach: a request can name neither the gateway's own Secrets nor those of
other programs. A pod refers to the Secret by name, so that no object but the Secret contains the values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.api import MANAGED_BY_LABEL, MAX_SECRET_BYTES, EnvVarName, SandboxSecret
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

SECRET_LABEL = "holdfast.dev/secret"  # noqa: S105 (a label)
"""Label of a Secret that users manage through the gateway: the name of the secret."""
_OBJECT_PREFIX = "holdfast-secret-"
# Readable for every user of the sandbox, writable for nobody.
_FILE_MODE = 0o444


def secret_object_name(name: str) -> str:
    """Name of the Kubernetes Secret of a secret."""
    return _OBJECT_PREFIX + name


def secret_manifest(name: str, data: Mapping[str, str], *, namespace: str) -> dict[str, Any]:
    """Build the Kubernetes Secret of a secret; `data` has the values encoded with base64."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {
            "name": secret_object_name(name),
            "namespace": namespace,
            "labels": {SECRET_LABEL: name, MANAGED_BY_LABEL: "holdfast"},
        },
        "data": dict(data),
    }


def is_managed_secret(secret: Mapping[str, Any]) -> bool:
    """Whether a Kubernetes Secret is the secret of its name, and not one of another program."""
    metadata = secret["metadata"]
    name = (metadata.get("labels") or {}).get(SECRET_LABEL)
    return name is not None and metadata["name"] == secret_object_name(name)


def env_sources(secrets: Sequence[SandboxSecret]) -> list[dict[str, Any]]:
    """Return the `envFrom` of the container: all keys of the secrets without a path."""
    return [
        {"secretRef": {"name": secret_object_name(secret.name)}} for secret in secrets if secret.path is None
    ]


def secret_mounts(secrets: Sequence[SandboxSecret]) -> list[dict[str, Any]]:
    """Return the volume mounts of the container."""
    # No subPath: such a mount does not follow updates of the Secret.
    return [
        {"name": name, "mountPath": secret.path, "readOnly": True} for name, secret in _with_volumes(secrets)
    ]


def secret_volumes(secrets: Sequence[SandboxSecret]) -> list[dict[str, Any]]:
    """Return the volumes of the pod."""
    return [
        {
            "name": name,
            "secret": {"secretName": secret_object_name(secret.name), "defaultMode": _FILE_MODE},
        }
        for name, secret in _with_volumes(secrets)
    ]


def _with_volumes(secrets: Sequence[SandboxSecret]) -> list[tuple[str, SandboxSecret]]:
    mounted = [secret for secret in secrets if secret.path is not None]
    return [(f"secret-{number}", secret) for number, secret in enumerate(mounted)]


def used_secrets(sandbox: Mapping[str, Any]) -> list[SandboxSecret]:
    """Return the secrets that a sandbox uses, from its pod template."""
    pod = sandbox["spec"]["podTemplate"]["spec"]
    container: Mapping[str, Any] = next(iter(pod.get("containers") or ()), {})
    references = [(source.get("secretRef") or {}).get("name") for source in container.get("envFrom") or ()]
    used = [SandboxSecret(name=name) for name in _managed_names(references)]
    paths = {mount.get("name"): mount.get("mountPath") for mount in container.get("volumeMounts") or ()}
    for volume in pod.get("volumes") or ():
        names = _managed_names([(volume.get("secret") or {}).get("secretName")])
        used += [SandboxSecret(name=name, path=paths.get(volume["name"])) for name in names]
    return used


def _managed_names(references: Iterable[str | None]) -> list[str]:
    return [
        reference.removeprefix(_OBJECT_PREFIX)
        for reference in references
        if reference is not None and reference.startswith(_OBJECT_PREFIX)
    ]


def check_secret_uses(secrets: Sequence[SandboxSecret]) -> None:
    """Check the secrets of a request, before any access to them.

    Raises:
        UsageError: a secret is listed twice, or two are mounted at the same path or inside each other.
    """
    for number, secret in enumerate(secrets):
        for other in secrets[:number]:
            if secret == other:
                raise UsageError(f"secrets: {format_secret_use(secret)}: listed twice", hint="List it once.")
            if secret.path and other.path and _is_nested(secret.path, other.path):
                raise UsageError(
                    f"secrets: {format_secret_use(secret)}: overlaps {format_secret_use(other)}",
                    hint="Mount each secret at a directory of its own.",
                )


def _is_nested(path: str, other: str) -> bool:
    shorter, longer = sorted((f"{path}/", f"{other}/"), key=len)
    return longer.startswith(shorter)


def format_secret_use(secret: SandboxSecret) -> str:
    """Format the use of a secret as NAME or NAME:/path."""
    return secret.name if secret.path is None else f"{secret.name}:{secret.path}"


def parse_secret_use(text: str, source: str = "secret") -> SandboxSecret:
    """Parse NAME or NAME:/path.

    Args:
        text: the text.
        source: the option or argument that it comes from, for the message.

    Raises:
        UsageError: the name or the path is not valid.
    """
    name, colon, path = text.partition(":")
    try:
        return msgspec.convert({"name": name} | ({"path": path} if colon else {}), SandboxSecret)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"{source} {text!r}: not NAME or NAME:/path",
            hint="Write the name of a secret; for files add an absolute path that hides no system directory.",
        ) from error


def check_secret_size(data: Mapping[str, bytes]) -> None:
    """Check the size of all values together.

    Raises:
        UsageError: they are larger than a Kubernetes Secret may be.
    """
    size = sum(len(key) + len(value) for key, value in data.items())
    if size > MAX_SECRET_BYTES:
        raise UsageError(
            f"secret: {size} bytes, more than the limit of {MAX_SECRET_BYTES}",
            hint="Split it into several secrets, or copy large files into the workspace.",
        )


def env_problem(key: str, value: bytes) -> str:
    """Explain why a key of a secret cannot be an environment variable; empty if it can."""
    try:
        msgspec.convert(key, EnvVarName)
    except msgspec.ValidationError:
        return f"key {key!r} is not a valid environment variable name"
    try:
        is_text = "\0" not in value.decode()
    except UnicodeDecodeError:
        is_text = False
    return "" if is_text else f"the value of key {key!r} is not text"
