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
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast import __version__, home
from holdfast.containers import translate_errors
from holdfast.errors import HoldfastError, PermanentError, UsageError
from holdfast.events import StepFinished, StepProgress, StepStarted
from holdfast.gateway.doctor.checks import read_store
from holdfast.gateway.doctor.facts import FactUnavailable
from holdfast.gateway.doctor.redaction import Redactor
from holdfast.gateway.node import read_node_logs
from holdfast.gateway.registries import read_login
from holdfast.gateway.settings import explain_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

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
_EVENT_KEYS = ("type", "reason", "message", "involvedObject", "count", "firstTimestamp", "lastTimestamp")


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
    return [_select(event, _EVENT_KEYS) for event in facts.list_objects("/api/v1/events")[-_MAX_EVENTS:]]


def _select(obj: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: obj[key] for key in keys if key in obj}


_PV_SPEC_KEYS = (
    "capacity", "claimRef", "hostPath", "local", "nodeAffinity", "persistentVolumeReclaimPolicy",
    "storageClassName",
)  # fmt: skip
_PVC_SPEC_KEYS = ("resources", "storageClassName", "volumeName")

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
    "cluster/claims.json": partial(_collect_objects, "persistentvolumeclaims", _PVC_SPEC_KEYS),
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
        "gateway": facts.name, "made_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "files": sorted(parts), "missing": missing,
    }  # fmt: skip
    archive = _pack_archive({"contents.json": _encode_part(contents, redactor), **parts})
    try:
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
    registries = facts.resolved.settings.registries
    for host in registries.credentials:
        with suppress(HoldfastError):
            login = read_login(registries, host)
            if login is not None:
                text = login.text()
                yield from (text, text.partition(":")[2])
    if facts.name is None:
        return
    files = facts.gateway.files
    for path in (files.kubeconfig, *files.mtls.glob("*/*.key")):
        with suppress(OSError):
            yield from _extract_secrets(path.read_text(errors="replace"))


def _extract_secrets(text: str) -> Iterator[str]:
    """Yield the lines of a PEM key, or the keys, tokens and passwords of a kubeconfig."""
    for line in text.splitlines():
        name, colon, value = line.strip().partition(": ")
        if not colon:
            if not line.startswith("-----"):
                yield line.strip()
        elif name in ("client-key-data", "token", "password"):
            yield value
            with suppress(ValueError):
                decoded = base64.b64decode(value, validate=True).decode(errors="replace")
                yield from (row for row in decoded.splitlines() if not row.startswith("-----"))
