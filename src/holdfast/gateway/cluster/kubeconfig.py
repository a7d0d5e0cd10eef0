"""Kubeconfigs: the gateway's on this machine, and the user's that it can be merged into.

The gateway's is the node's admin kubeconfig with the published address. Files are written as a whole with
mode 0600; a merge never changes an entry of another cluster.

Callers that ask one question send a single HTTPS request with these credentials: it loads no Kubernetes
client, is never retried, and has the timeout `timeouts.glance`. Steps that write or wait use `Objects`.
"""

from __future__ import annotations

import base64
import os
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast import home
from holdfast.errors import CorruptFileError, DiskFullError, TemporaryError
from holdfast.gateway.spec import kubeconfig_context
from holdfast.kube import https_get
from holdfast.retry import Policy, constant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.gateway.context import GatewayContext
    from holdfast.kube import HttpsResponse
    from holdfast.pki import ClientIdentity

_MAX_RESPONSE_BYTES = 16 << 20  # a page of a hundred objects fits
_SECTIONS = ("clusters", "users", "contexts")
# How long another program may hold the lock of the user's kubeconfig.
_LOCK_POLICY = Policy(attempts=None, deadline=5.0, backoff=constant(0.1), retry_on=FileExistsError)


class KubeCredentials(msgspec.Struct, frozen=True, kw_only=True):
    """Address and PEM credentials of an API server."""

    server: str
    ca: bytes
    certificate: bytes
    key: bytes

    # Without the key: a repr may reach a traceback or a log.
    def __repr__(self) -> str:
        return f"KubeCredentials(server={self.server!r})"


def build_host_kubeconfig(node_kubeconfig: bytes, *, name: str, server: str) -> bytes:
    """Return the node's admin kubeconfig with another server address and the gateway's context name.

    Raises:
        TemporaryError: The node has not finished writing its kubeconfig.
    """
    try:
        source = _parse_yaml(node_kubeconfig)
        cluster, user = dict(source["clusters"][0]["cluster"]), dict(source["users"][0]["user"])
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise TemporaryError(f"gateway {name}: the node's kubeconfig is not complete yet") from error
    cluster["server"] = server
    context = kubeconfig_context(name)
    return _dump_yaml({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": context, "cluster": cluster}],
        "users": [{"name": context, "user": user}],
        "contexts": [{"name": context, "context": {"cluster": context, "user": context}}],
        "current-context": context,
    })  # fmt: skip


def merge_into(path: Path, kubeconfig: bytes, *, name: str) -> None:
    """Merge a gateway's entries into another kubeconfig and make its context the current one.

    Raises:
        CorruptFileError: One of the two files is damaged or not writable; nothing was changed.
        DiskFullError: The disk is full; nothing was changed.
        TemporaryError: Another program has locked the file; nothing was changed.
    """
    server, context = parse_credentials(kubeconfig, name).server, kubeconfig_context(name)
    ours = _parse_yaml(build_host_kubeconfig(kubeconfig, name=name, server=server))
    with _edit_kubeconfig(path, "merged into") as theirs:
        for section in _SECTIONS:
            theirs[section] = _other_entries(theirs, section, context) + ours[section]
        theirs.setdefault("apiVersion", "v1")
        theirs.setdefault("kind", "Config")
        theirs["current-context"] = context


def merge_notes(name: str, kubeconfig: Path) -> tuple[str, ...]:
    """A note if the user's kubeconfig has entries of a gateway that differ from the gateway's own file."""
    path, context = user_kubeconfig_path(), kubeconfig_context(name)
    try:
        content = path.read_bytes()
        # Parsing takes longer than this search; most users have not merged anything.
        if context.encode() not in content:
            return ()
        theirs, ours = _parse_sections(content), _parse_yaml(kubeconfig.read_bytes())
        merged = [entry for entry in theirs.get("contexts") or [] if entry.get("name") == context]
        is_current = all(ours[section][0] in theirs.get(section, ()) for section in ("clusters", "users"))
    except (OSError, ValueError, LookupError, TypeError):
        return ()  # not a kubeconfig: nothing was merged into it
    if not merged or is_current:
        return ()
    return (f"{path}: {context} is outdated; run `holdfast kubeconfig {name} --merge` to update it",)


def remove_from(path: Path, *, name: str) -> bool:
    """Remove a gateway's entries from another kubeconfig; False if there are none.

    Raises:
        HoldfastError: The file cannot be changed, for the same reasons as in `merge_into`.
    """
    context = kubeconfig_context(name)
    try:
        theirs = _parse_sections(path.read_bytes())
    except (OSError, ValueError):
        return False  # not a kubeconfig: nothing was merged into it
    if not any(entry.get("name") == context for section in _SECTIONS for entry in theirs.get(section) or []):
        return False
    with _edit_kubeconfig(path, "changed") as theirs:
        for section in _SECTIONS:
            theirs[section] = _other_entries(theirs, section, context)
        if theirs.get("current-context") == context:
            theirs["current-context"] = ""
    return True


@contextmanager
def _edit_kubeconfig(path: Path, action: str) -> Iterator[dict[str, Any]]:
    """Yield the content of a kubeconfig, and write it back unless the block raises."""
    # kubectl and kind create the same file while they change a kubeconfig: no change is lost.
    lock = path.with_name(f"{path.name}.lock")
    try:
        home.ensure_private_dir(path.parent)
        _LOCK_POLICY.call(lock.touch, 0, exist_ok=False)
        try:
            target = _writable_target(path)
            content = _parse_sections(target.read_bytes()) if target.exists() else {}
            yield content
            # Replaced as a whole: a kill leaves the old or the new file, never a part of one.
            home.write_atomic(target, _dump_yaml(content))
        finally:
            lock.unlink()
    except FileExistsError as error:
        raise TemporaryError(
            f"{path}: another program is changing it: {lock} exists",
            hint=f"Run the same command again. If no program is changing the file, run `rm {lock}` first.",
        ) from error
    except (OSError, ValueError) as error:
        if getattr(error, "errno", None) in home.NO_SPACE_ERRNOS:
            raise DiskFullError(f"{path}: no space left on its disk; it was not changed") from error
        raise CorruptFileError(
            f"{path}: cannot be {action}: {getattr(error, 'strerror', None) or error}",
            hint="Repair or move that file, or choose another one with KUBECONFIG; it was not changed.",
        ) from error


def _writable_target(path: Path) -> Path:
    """Resolve links; reject a file of another user and a read-only one. The new file gets mode 0600."""
    if path.is_symlink() and not path.exists():
        raise ValueError("broken symbolic link")
    # `write_atomic` renames a file onto the path; on a symbolic link that would replace the link itself.
    target = path.resolve()
    if target.exists():
        status = target.stat()
        # The new file belongs to this user: `sudo holdfast` would take the kubeconfig away from its owner.
        if status.st_uid != os.geteuid():
            raise ValueError("owned by another user")
        # A rename needs write access to the directory only, so it would replace a read-only file too.
        if not status.st_mode & stat.S_IWUSR:
            raise ValueError("read-only")
    return target


def _other_entries(theirs: dict[str, Any], section: str, context: str) -> list[dict[str, Any]]:
    return [entry for entry in theirs.get(section) or [] if entry.get("name") != context]


def _parse_sections(data: bytes) -> dict[str, Any]:
    """Parse a kubeconfig and check that its sections are lists of entries; an empty file is valid."""
    parsed = _parse_yaml(data) if data.strip() else {}
    for section in _SECTIONS:
        entries = parsed.get(section) or []
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise ValueError(f"{section} is not a list of entries")
    return parsed


def parse_credentials(kubeconfig: bytes, name: str) -> KubeCredentials:
    """Parse a gateway's kubeconfig of `build_host_kubeconfig`.

    Raises:
        CorruptFileError: The credentials are missing or damaged.
    """
    try:
        parsed = _parse_yaml(kubeconfig)
        cluster, user = parsed["clusters"][0]["cluster"], parsed["users"][0]["user"]
        return KubeCredentials(
            server=cluster["server"],
            ca=base64.b64decode(cluster["certificate-authority-data"]),
            certificate=base64.b64decode(user["client-certificate-data"]),
            key=base64.b64decode(user["client-key-data"]),
        )
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise CorruptFileError(
            f"kubeconfig of gateway {name}: no usable credentials",
            hint=f"Run `holdfast up {name}` to write it again.",
        ) from error


def kubernetes_get(
    gateway: GatewayContext, path: str, credentials: KubeCredentials | None = None
) -> HttpsResponse:
    """GET a path of the gateway's Kubernetes API; by default with the kubeconfig of this machine.

    Raises:
        ApiUnreachableError: The API server does not answer; a retry may succeed.
        ApiRefusedError: The credentials or the server certificate are not accepted.
        CorruptFileError: The kubeconfig of this machine is damaged.
        FileNotFoundError: This machine has no kubeconfig of the gateway.
    """
    # Read for each request: `ensure_tunnel` changes the address, and the node renews its certificates.
    credentials = credentials or parse_credentials(gateway.files.kubeconfig.read_bytes(), gateway.name)
    return https_get(
        credentials.server,
        path,
        ca=credentials.ca,
        certificate=credentials.certificate,
        key=credentials.key,
        timeout=gateway.settings.timeouts.glance,
        max_bytes=_MAX_RESPONSE_BYTES,
    )


def get_gateway_info(gateway: GatewayContext, identity: ClientIdentity) -> bytes:
    """GET the description of the gateway from its own API."""
    client, url = identity.client, gateway.gateway_api_url
    credentials = KubeCredentials(server=url, ca=identity.ca, certificate=client.certificate, key=client.key)
    return kubernetes_get(gateway, "/v1/gateway", credentials).body


def _parse_yaml(data: bytes) -> dict[str, Any]:
    import yaml

    try:
        parsed = yaml.load(data, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 (safe, and in C if possible)
    except yaml.YAMLError as error:
        raise ValueError("not YAML") from error
    if not isinstance(parsed, dict):
        raise ValueError("not a kubeconfig")  # noqa: TRY004 (callers handle one kind of error)
    return parsed


def _dump_yaml(value: dict[str, Any]) -> bytes:
    import yaml

    return bytes(yaml.dump(value, sort_keys=False).encode())


def user_kubeconfig_path() -> Path:
    """The kubeconfig of kubectl: the first of KUBECONFIG, or `~/.kube/config`."""
    first = os.environ.get("KUBECONFIG", "").split(os.pathsep)[0]
    return Path(first).expanduser() if first else Path.home() / ".kube" / "config"
