"""The host's kubeconfig of a gateway: made from the node's own, pointed at the published port.

Written 0600 and as a whole; merged into another file only on request, and never over a foreign entry.
"""

from __future__ import annotations

import base64
import os
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast import home
from holdfast.errors import DamagedFileError, TemporaryError
from holdfast.gateway.identity import context_name

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_SECTIONS = ("clusters", "users", "contexts")


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """What it takes to talk to the API server, as PEM."""

    server: str
    ca: bytes
    certificate: bytes
    key: bytes


def for_host(node_kubeconfig: bytes, *, name: str, server: str) -> bytes:
    """The node's admin kubeconfig with the host's address and the gateway's names in it."""
    try:
        source = _yaml(node_kubeconfig)
        cluster, user = dict(source["clusters"][0]["cluster"]), dict(source["users"][0]["user"])
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise TemporaryError("the node's kubeconfig is not complete yet") from error
    cluster["server"] = server
    context = context_name(name)
    merged = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": context, "cluster": cluster}],
        "users": [{"name": context, "user": user}],
        "contexts": [{"name": context, "context": {"cluster": context, "user": context}}],
        "current-context": context,
    }
    return _dump(merged)


def merge_into(path: Path, kubeconfig: bytes, *, name: str) -> None:
    """Put a gateway's entries into another kubeconfig; every other entry stays as it is."""
    ours, context = _own(kubeconfig, name), context_name(name)
    with _told(path, "merged into"):
        target = _ours_to_write(path)
        theirs = _sections(target.read_bytes()) if target.exists() else {}
        for section in _SECTIONS:
            theirs[section] = _others(theirs, section, context) + ours[section]
        theirs.setdefault("apiVersion", "v1")
        theirs.setdefault("kind", "Config")
        theirs["current-context"] = context
        home.write_atomic(target, _dump(theirs))


def _own(kubeconfig: bytes, name: str) -> dict[str, Any]:
    """The gateway's own kubeconfig, with something in each of its sections."""
    why = ""
    try:
        ours = _sections(kubeconfig)
    except ValueError as error:
        ours, why = {}, str(error)
    missing = [section for section in _SECTIONS if not ours.get(section)]
    if missing:
        raise DamagedFileError(
            f"the kubeconfig of gateway {name} is damaged: {why or f'it has no {missing[0]}'}; "
            "nothing was merged",
            hint=f"`holdfast up {name}` writes it anew.",
        )
    return ours


def remove_from(path: Path, *, name: str) -> bool:
    """Take a gateway's entries out of another kubeconfig; False when there were none."""
    if not holds(path, name=name):
        return False
    context = context_name(name)
    with _told(path, "changed"):
        target = _ours_to_write(path)
        theirs = _sections(target.read_bytes())
        for section in _SECTIONS:
            theirs[section] = _others(theirs, section, context)
        if theirs.get("current-context") == context:
            theirs["current-context"] = ""
        home.write_atomic(target, _dump(theirs))
    return True


def holds(path: Path, *, name: str) -> bool:
    """Whether another kubeconfig has entries of a gateway; one that cannot be read counts as having none."""
    try:
        theirs = _sections(path.read_bytes())
    except (OSError, ValueError):
        return False
    context = context_name(name)
    return any(len(_others(theirs, part, context)) != len(theirs.get(part) or []) for part in _SECTIONS)


@contextmanager
def _told(path: Path, what: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise DamagedFileError(
            f"{path} cannot be {what}: {getattr(error, 'strerror', None) or error}",
            hint="Mend or move that file, or name another with KUBECONFIG; it was not changed.",
        ) from error


def _ours_to_write(path: Path) -> Path:
    """The file itself, behind any link; replacing one whole must not give it another owner or unlock it."""
    if path.is_symlink() and not path.exists():
        raise ValueError("it is a link that leads nowhere")
    target = path.resolve()
    if target.exists():
        found = target.stat()
        if found.st_uid != os.geteuid():
            raise ValueError("it belongs to another user")
        if not found.st_mode & stat.S_IWUSR:
            raise ValueError("it is read-only")
    return target


def _others(theirs: dict[str, Any], section: str, context: str) -> list[dict[str, Any]]:
    return [entry for entry in theirs.get(section) or [] if entry.get("name") != context]


def _sections(data: bytes) -> dict[str, Any]:
    """A kubeconfig with lists of named entries where they belong; an empty file is an empty one."""
    parsed = _yaml(data) if data.strip() else {}
    for section in _SECTIONS:
        entries = parsed.get(section) or []
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise ValueError(f"its {section} are no list of entries")
    return parsed


def credentials(kubeconfig: bytes) -> Credentials:
    """The certificates inside a kubeconfig that `for_host` made."""
    try:
        parsed = _yaml(kubeconfig)
        cluster, user = parsed["clusters"][0]["cluster"], parsed["users"][0]["user"]
        return Credentials(
            server=cluster["server"],
            ca=base64.b64decode(cluster["certificate-authority-data"]),
            certificate=base64.b64decode(user["client-certificate-data"]),
            key=base64.b64decode(user["client-key-data"]),
        )
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise DamagedFileError(
            "the kubeconfig has no usable credentials", hint="Run `holdfast up` again: it is written anew."
        ) from error


def _yaml(data: bytes) -> dict[str, Any]:
    import yaml

    try:
        parsed = yaml.load(data, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 (a safe loader, in C where there is one)
    except yaml.YAMLError as error:
        raise ValueError("it is not YAML") from error
    if not isinstance(parsed, dict):
        raise ValueError("it is not a kubeconfig")  # noqa: TRY004 (callers handle one kind)
    return parsed


def _dump(value: dict[str, Any]) -> bytes:
    import yaml

    return bytes(yaml.dump(value, sort_keys=False).encode())


def default_target() -> Path:
    """The kubeconfig that kubectl reads: the first of KUBECONFIG, or the one in the home directory."""
    from pathlib import Path

    first = os.environ.get("KUBECONFIG", "").split(os.pathsep)[0]
    return Path(first).expanduser() if first else Path.home() / ".kube" / "config"
