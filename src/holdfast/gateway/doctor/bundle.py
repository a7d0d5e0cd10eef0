"""The archive of `doctor --bundle`: findings, versions, settings, logs, objects and runs, redacted.

Collectors choose fields explicitly: Secrets, ConfigMaps, annotations, commands and environment variables of
pods are never collected. Every part passes through the redactor (redaction.py) before it is written.
"""

from __future__ import annotations

import base64
import io
import os
import platform
import sys
import tarfile
import time
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast import __version__, home
from holdfast.api import format_timestamp
from holdfast.containers import translate_errors
from holdfast.errors import HoldfastError, PermanentError, UsageError
from holdfast.events import StepFinished, StepProgress, StepStarted
from holdfast.gateway.doctor.checks import read_store
from holdfast.gateway.doctor.facts import FactUnavailable
from holdfast.gateway.doctor.redaction import Redactor
from holdfast.gateway.node import read_node_logs
from holdfast.gateway.settings import explain_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.events import EventBus
    from holdfast.gateway.doctor.facts import GatewayFacts
    from holdfast.gateway.doctor.findings import DoctorReport

    Collector = Callable[[GatewayFacts], Any]

BUNDLE_DIR = "holdfast-bundle"
# The first member of every bundle; it identifies a file as a bundle.
CONTENTS_MEMBER = f"{BUNDLE_DIR}/contents.json"

_STEP, _TITLE = "bundle", "Bundle"
_LOG_LINES = 500
_MAX_RUNS = 20
_MAX_EVENTS = 500
_ENGINE_INFO_KEYS = (
    "ServerVersion", "OperatingSystem", "OSType", "Architecture", "KernelVersion", "CgroupVersion",
    "CgroupDriver", "Driver", "NCPU", "MemTotal", "SecurityOptions", "SystemTime", "Containers", "Images",
)  # fmt: skip
_METADATA_KEYS = (
    "name", "namespace", "uid", "labels", "creationTimestamp", "deletionTimestamp", "ownerReferences",
)  # fmt: skip
_EVENT_KEYS = (
    "type", "reason", "message", "involvedObject", "count", "series", "firstTimestamp", "lastTimestamp",
    "eventTime",
)  # fmt: skip
_MAX_SECRET_CHARACTERS = 64 * 1024


def _collect_versions(_facts: GatewayFacts) -> dict[str, str]:
    return {"holdfast": __version__, "python": sys.version, "platform": platform.platform()}


def _inspect(kind: str, facts: GatewayFacts) -> Any:
    """Inspect the gateway's volume or network."""
    with translate_errors(f"reading the {kind}", facts.engine.address):
        return getattr(facts.engine.client, f"inspect_{kind}")(facts.gateway.object_name)


def _collect_log(component: str | None, facts: GatewayFacts) -> str:
    _ = facts.container_inspect  # raises FactUnavailable without a container
    return "\n".join(read_node_logs(facts.gateway, component=component, tail=_LOG_LINES, follow=False))


def _collect_objects(plural: str, spec_keys: tuple[str, ...], facts: GatewayFacts) -> list[dict[str, Any]]:
    return [_summarize(obj, spec_keys) for obj in facts.list_objects(f"/api/v1/{plural}")]


def _summarize(obj: dict[str, Any], spec_keys: tuple[str, ...]) -> dict[str, Any]:
    spec = obj.get("spec") or {}
    summary = {
        "metadata": _select(obj["metadata"], _METADATA_KEYS),
        "spec": _select(spec, spec_keys),
        "status": obj.get("status"),
    }
    if "containers" in spec:
        containers = (*(spec.get("initContainers") or ()), *spec["containers"])
        summary["containers"] = [_select(item, ("name", "image", "resources")) for item in containers]
    return summary


def _collect_events(facts: GatewayFacts) -> list[dict[str, Any]]:
    events = sorted(facts.list_objects("/api/v1/events"), key=_last_occurrence)
    return [_select(event, _EVENT_KEYS) for event in events[-_MAX_EVENTS:]]


def _last_occurrence(event: dict[str, Any]) -> str:
    """The time of the newest occurrence; such times are sorted as text."""
    last = (event.get("series") or {}).get("lastObservedTime") or event.get("lastTimestamp")
    return str(last or event.get("eventTime") or event["metadata"].get("creationTimestamp"))


def _select(obj: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: obj[key] for key in keys if key in obj}


_PV_SPEC_KEYS = (
    "capacity", "claimRef", "hostPath", "local", "nodeAffinity", "persistentVolumeReclaimPolicy",
    "storageClassName",
)  # fmt: skip
_PVCS, _PVC_SPEC_KEYS = "persistentvolumeclaims", ("resources", "storageClassName", "volumeName")

# The files of a bundle and their collectors, which return a text or a JSON value.
COLLECTORS: dict[str, Collector] = {
    "versions.json": _collect_versions,
    "settings.json": lambda facts: explain_settings(facts.resolved),
    "metadata.json": lambda facts: facts.gateway.metadata,
    "runs.json": lambda facts: read_store(facts)[0][:_MAX_RUNS],
    "engine/info.json": lambda facts: _select(facts.engine_info, _ENGINE_INFO_KEYS),
    "engine/container.json": lambda facts: facts.container_inspect,
    "engine/volume.json": partial(_inspect, "volume"),
    "engine/network.json": partial(_inspect, "network"),
    "logs/node.log": partial(_collect_log, None),
    "cluster/nodes.json": partial(_collect_objects, "nodes", ("taints", "unschedulable")),
    "cluster/pods.json": partial(_collect_objects, "pods", ("nodeName",)),
    "cluster/volumes.json": partial(_collect_objects, "persistentvolumes", _PV_SPEC_KEYS),
    f"cluster/{_PVCS}.json": partial(_collect_objects, _PVCS, _PVC_SPEC_KEYS),
    "cluster/events.json": _collect_events,
}


def check_bundle_path(path: Path) -> None:
    """Refuse a path where a bundle cannot or must not be written.

    Raises:
        UsageError: The directory is missing or not writable, or the path is not an earlier bundle.
    """
    if not path.parent.is_dir():
        raise UsageError(
            f"{path.parent}: no such directory", hint="Create the directory, or choose another file."
        )
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise UsageError(f"{path.parent}: directory is not writable", hint="Choose another file.")
    if path.is_dir():
        raise UsageError(f"{path}: is a directory", hint=f"Name a file: {path / 'bundle.tar.gz'}")
    if (path.exists() or path.is_symlink()) and not _is_holdfast_bundle(path):
        raise UsageError(
            f"{path}: exists and is not a holdfast bundle; it was not changed",
            hint="Choose another file. Only an earlier bundle is overwritten.",
        )


def write_bundle(path: Path, facts: GatewayFacts, report: DoctorReport, bus: EventBus) -> tuple[str, ...]:
    """Collect, redact and write all parts, readable for the owner only.

    Returns:
        The names of the files in the bundle. Parts that cannot be collected are listed in contents.json.

    Raises:
        PermanentError: The file cannot be written.
    """
    started = time.monotonic()
    bus.emit(StepStarted(step=_STEP, title=_TITLE))
    # Every part is redacted in memory: no secret is written to the disk, not even temporarily.
    redactor = Redactor(_known_secrets(facts))
    parts: dict[str, bytes] = {"findings.json": _encode_part(report, redactor)}
    missing: dict[str, str] = {}
    components = facts.gateway.contract.components if facts.name is not None else ()
    logs = {f"logs/{component}.log": partial(_collect_log, component) for component in components}
    collectors: dict[str, Collector] = {**COLLECTORS, **logs}
    for index, (name, collect) in enumerate(collectors.items()):
        bus.emit(StepProgress(step=_STEP, message=name, fraction=index / len(collectors)))
        try:
            parts[name] = _encode_part(collect(facts), redactor)
        except (HoldfastError, FactUnavailable) as error:
            missing[name] = redactor.redact_text(str(error))
        except Exception as error:  # noqa: BLE001 (one part that fails must not prevent the others)
            missing[name] = redactor.redact_text(f"{type(error).__name__}: {error}")
    contents = {
        "gateway": facts.name, "created_at": format_timestamp(datetime.now(UTC)),
        "files": sorted(parts), "missing": missing,
    }  # fmt: skip
    # The contents come first: `_is_holdfast_bundle` reads only the first member.
    archive = _pack_archive({"contents.json": _encode_part(contents, redactor), **parts})
    try:
        # With mode 0600: redaction cannot recognise every secret.
        home.write_atomic(path, archive)
    except OSError as error:
        raise PermanentError(f"{path}: {error.strerror}", hint="Choose another file.") from error
    note = f"{len(parts)} files in {path}"
    bus.emit(StepFinished(step=_STEP, title=_TITLE, seconds=time.monotonic() - started, note=note))
    return tuple(sorted(parts))


def _encode_part(value: Any, redactor: Redactor) -> bytes:
    if isinstance(value, str):
        return redactor.redact_text(value).encode()
    redacted = redactor.redact_value(msgspec.to_builtins(value))
    return msgspec.json.format(msgspec.json.encode(redacted), indent=2)


def _pack_archive(parts: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in parts.items():
            member = tarfile.TarInfo(f"{BUNDLE_DIR}/{name}")
            member.size, member.mode, member.mtime = len(content), 0o600, int(time.time())
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def _is_holdfast_bundle(path: Path) -> bool:
    try:
        with tarfile.open(path, mode="r:gz") as archive:
            first = archive.next()
    except (OSError, tarfile.TarError, EOFError):
        return False
    return first is not None and first.name == CONTENTS_MEMBER


def _known_secrets(facts: GatewayFacts) -> Iterator[str]:
    """Yield the secrets stored on this machine; the redactor hides them wherever they occur."""
    settings = facts.resolved.settings
    for reference in (*settings.registries.credentials.values(), settings.proxy.credentials or ""):
        # Not `read_login`, which rejects a file that other users can read: its login has to be hidden too.
        kind, _, name = reference.partition(":")
        login = os.environ.get(name, "") if kind == "env" else _read_text(Path(name))
        yield from (login, login.partition(":")[2])
    if facts.name is None:
        return
    files = facts.gateway.files
    # Every generation: a log may quote a key from before a renewal.
    for path in files.mtls.glob("*/*.key"):
        yield from _pem_lines(_read_text(path))
    for line in _read_text(files.kubeconfig).splitlines():
        name, _, value = line.strip().partition(": ")
        if name in ("client-key-data", "token", "password"):
            yield value
            with suppress(ValueError):
                yield from _pem_lines(base64.b64decode(value, validate=True).decode(errors="replace"))


def _pem_lines(text: str) -> list[str]:
    """The lines of a PEM key: a log may quote only some of them."""
    return [line for line in text.splitlines() if not line.startswith("-----")]


def _read_text(path: Path) -> str:
    """The beginning of a file; empty if it cannot be read."""
    # With a limit: a setting may name a device such as /dev/zero.
    with suppress(OSError), path.open(errors="replace") as file:
        return file.read(_MAX_SECRET_CHARACTERS)
    return ""
