"""Metrics and events of the published API, derived from the writes of the controller.

Names, labels, reasons and notes are contracts with dashboards.
"""

from __future__ import annotations

import asyncio
import logging
import platform
import secrets
from collections import Counter as Tally
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily

from holdfast import __version__
from holdfast.api import (
    CREATED_BY_LABEL,
    FIRST_OBSERVED_ANNOTATION,
    FIRST_READY_ANNOTATION,
    GROUP,
    LAUNCH_TYPE_LABEL,
    TEMPLATE_REF_ANNOTATION,
    ConditionType,
    SandboxClaimReason,
    SandboxReason,
    parse_optional_timestamp,
)
from holdfast.errors import HoldfastError
from holdfast.sandbox import (
    Adopt,
    Create,
    Delete,
    Patch,
    bound_sandbox_name,
    controller_of,
    find_condition,
    has_condition,
    normalized_creator,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from prometheus_client import CollectorRegistry

    from holdfast.controller.cache import ObjectCache
    from holdfast.kube import AsyncObjects
    from holdfast.sandbox import Action

log = logging.getLogger("holdfast.controller")

_CLAIM_BUCKETS = (100, 250, 500, 750, 1000, 1250, 1500, 2000, 2500, 5000, 10000, 30000, 60000, 120000, 240000)
_SANDBOX_BUCKETS = (
    50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000, 60000, 120000, 240000, 300000, 600000,
)  # fmt: skip
_LATENCIES = {
    "agent_sandbox_claim_startup_latency_ms": f"{GROUP}/webhook-first-observed-at",
    "agent_sandbox_claim_controller_startup_latency_ms": FIRST_OBSERVED_ANNOTATION,
    "agent_sandbox_client_claim_startup_latency_ms": f"{GROUP}/client-first-requested-at",
}
_SANDBOX_LABELS = (
    "namespace", "ready_condition", "expired", "launch_type", "sandbox_template", "owned_by", "created_by",
)  # fmt: skip
_REPORTERS = {
    "Sandbox": "sandbox-controller",
    "SandboxClaim": "sandboxclaim-controller",
    "SandboxWarmPool": "sandboxwarmpool-controller",
}
_MAX_QUEUED_EVENTS = 1000
_MAX_TRACKED = 4096
_MAX_NAME_LENGTH = 253


class PublishedTelemetry:
    """Observes the writes of the controller.

    Args:
        cache: Watched objects.
        objects: The API server, for events.
        registry: Registry of the metrics.
        clock: Current time.
    """

    def __init__(
        self,
        cache: ObjectCache,
        objects: AsyncObjects,
        registry: CollectorRegistry,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._cache, self._objects, self._clock = cache, objects, clock
        self._events: asyncio.Queue[dict[str, Any]] = asyncio.Queue(_MAX_QUEUED_EVENTS)
        self._measured: set[str] = set()
        self._failures: set[str] = set()
        self._held_pools: set[str] = set()
        labels = ("launch_type", "sandbox_template")
        self._claim_latencies = {
            annotation: Histogram(
                name, "Time to readiness.", labels, registry=registry, buckets=_CLAIM_BUCKETS
            )
            for name, annotation in _LATENCIES.items()
        }
        self._creation_latency = Histogram(
            "agent_sandbox_creation_latency_ms",
            "Time from the creation of a Sandbox to its readiness.",
            ("namespace", *labels),
            registry=registry,
            buckets=_SANDBOX_BUCKETS,
        )
        self._claims = Counter(
            "agent_sandbox_claim_creation_total",
            "SandboxClaims that got a sandbox.",
            ("namespace", "sandbox_template", "launch_type", "warmpool_name", "pod_condition", "created_by"),
            registry=registry,
        )
        _set_build_info(registry)
        registry.register(_SandboxCollector(cache))

    async def run(self) -> None:
        """Write events until cancelled. An event that the API server does not accept is lost."""
        while True:
            event = await self._events.get()
            try:
                await self._objects.create(event)
            except HoldfastError as error:
                log.info("event %s: %s", event["reason"], error.message)
            except Exception as error:  # noqa: BLE001 (an event must not end the controller)
                self._log_failure(error)

    def on_action(self, action: Action, reconciled: Mapping[str, Any]) -> None:
        """Observe an action that the API server accepted. Never raises: the write has happened."""
        try:
            self._observe_action(action, reconciled)
        except Exception as error:  # noqa: BLE001 (metrics must not end a reconciliation)
            self._log_failure(error)

    def on_status(self, obj: Mapping[str, Any], status: Mapping[str, Any]) -> None:
        """Observe a status that replaces that of an object. Never raises."""
        try:
            self._observe_status(obj, status)
        except Exception as error:  # noqa: BLE001 (metrics must not end a reconciliation)
            self._log_failure(error)

    def on_held_sandboxes(self, pool: Mapping[str, Any], count: int) -> None:
        """Observe how many unschedulable sandboxes a pool holds, and report when this begins and ends."""
        uid, was_held = pool["metadata"]["uid"], pool["metadata"]["uid"] in self._held_pools
        if bool(count) == was_held:
            return
        if not count:
            self._held_pools.discard(uid)
            self._emit(pool, "WarmPoolProgressing", "Reconciling", "Warm pool is progressing again")
            return
        if len(self._held_pools) > _MAX_TRACKED:
            self._held_pools.clear()
        self._held_pools.add(uid)
        note = (
            f"{count}/{pool['spec'].get('replicas', 1)} sandboxes are unschedulable past the 5m0s readiness "
            "grace period; holding them instead of replacing (replacements would be equally unschedulable)"
        )
        self._emit(pool, "WarmPoolNotProgressing", "Reconciling", note, kind="Warning")

    def _log_failure(self, error: Exception) -> None:
        """Log an unexpected error, once with its traceback."""
        text = repr(error)
        if text not in self._failures and len(self._failures) < _MAX_TRACKED:
            self._failures.add(text)
            log.error("metrics and events: %s", text, exc_info=error)

    def _observe_action(self, action: Action, reconciled: Mapping[str, Any]) -> None:
        if reconciled["kind"] != "SandboxClaim":
            return
        match action:
            case Create(manifest=manifest):
                name = manifest["metadata"]["name"]
                self._count_claim(reconciled, manifest, "cold")
                self._emit(reconciled, "SandboxProvisioned", "Provisioning", f'Created Sandbox "{name}"')
            case Adopt(target=target):
                sandbox = self._cache.get(*target.key) or {"metadata": {}}
                self._count_claim(reconciled, sandbox, "warm")
                note = f'Adopted warm pool Sandbox "{target.name}"'
                self._emit(reconciled, "SandboxAdopted", "Adoption", note)
            case Patch(patch=patch) if FIRST_READY_ANNOTATION in (patch.get("metadata") or {}).get(
                "annotations", {}
            ):
                self._measure_claim(reconciled, patch["metadata"]["annotations"][FIRST_READY_ANNOTATION])
            case Delete(target=target) if target.kind == "SandboxClaim":
                policy = (reconciled["spec"].get("lifecycle") or {}).get("shutdownPolicy", "Retain")
                self._emit(
                    reconciled, "ClaimExpired", "Deleting", f"Deleting Claim (ShutdownPolicy={policy})"
                )

    def _observe_status(self, obj: Mapping[str, Any], status: Mapping[str, Any]) -> None:
        old, new = (
            find_condition(obj, ConditionType.READY),
            find_condition({"status": status}, ConditionType.READY),
        )
        is_new_reason = new.get("reason") != old.get("reason")
        if is_new_reason and new.get("reason") == SandboxClaimReason.CLAIM_EXPIRED:
            self._emit(obj, "ClaimExpired", "Claim Expired", "Claim expired")
        if obj["kind"] != "Sandbox":
            return
        if is_new_reason and new.get("reason") == SandboxReason.MULTIPLE_PODS:
            self._emit(obj, "MultiplePods", "Reconciling", new["message"], kind="Warning")
        if new.get("status") == "True" and old.get("status") != "True":
            self._measure_sandbox(obj)

    def _count_claim(self, claim: Mapping[str, Any], sandbox: Mapping[str, Any], launch_type: str) -> None:
        self._claims.labels(
            claim["metadata"]["namespace"],
            _template(sandbox, "__unknown__"),
            launch_type,
            claim["spec"]["warmPoolRef"]["name"],
            "ready" if has_condition(sandbox, ConditionType.READY) else "not_ready",
            _creator(claim),
        ).inc()

    def _measure_claim(self, claim: Mapping[str, Any], ready: str) -> None:
        """Measure the first readiness of a SandboxClaim."""
        metadata = claim["metadata"]
        live = self._cache.get("SandboxClaim", metadata["namespace"], metadata["name"]) or claim
        sandbox = self._cache.get("Sandbox", metadata["namespace"], bound_sandbox_name(live)) or {
            "metadata": {}
        }
        end = parse_optional_timestamp(ready)
        for annotation, histogram in self._claim_latencies.items():
            start = parse_optional_timestamp((live["metadata"].get("annotations") or {}).get(annotation))
            if start is not None and end is not None:
                labels = _launch_type(sandbox), _template(sandbox, "__unknown__")
                histogram.labels(*labels).observe(max(0.0, (end - start).total_seconds() * 1000))

    def _measure_sandbox(self, sandbox: Mapping[str, Any]) -> None:
        """Measure the first readiness of a Sandbox that this process sees."""
        metadata = sandbox["metadata"]
        created = parse_optional_timestamp(metadata.get("creationTimestamp"))
        if created is None or metadata["uid"] in self._measured:
            return
        if len(self._measured) > _MAX_TRACKED:
            self._measured.clear()
        self._measured.add(metadata["uid"])
        labels = metadata["namespace"], _launch_type(sandbox), _template(sandbox, "unknown")
        milliseconds = (self._clock() - created).total_seconds() * 1000
        self._creation_latency.labels(*labels).observe(max(0.0, milliseconds))

    def _emit(
        self, about: Mapping[str, Any], reason: str, action: str, note: str, *, kind: str = "Normal"
    ) -> None:
        """Queue an event; with a full queue it is lost, because no reconciliation may wait for events."""
        metadata = about["metadata"]
        event = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {
                # The end of a long name may begin with a character that no name begins with.
                "name": f"{metadata['name']}.{secrets.token_hex(8)}"[-_MAX_NAME_LENGTH:].lstrip(".-"),
                "namespace": metadata["namespace"],
            },
            "eventTime": self._clock().strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "reportingController": _REPORTERS[about["kind"]],
            "reportingInstance": _REPORTERS[about["kind"]],
            "type": kind,
            "reason": reason,
            "action": action,
            "note": note,
            "regarding": {
                "apiVersion": about["apiVersion"],
                "kind": about["kind"],
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "uid": metadata["uid"],
            },
        }
        if not self._events.full():
            self._events.put_nowait(event)


class _SandboxCollector:
    """Counts the sandboxes of the cache at each scrape."""

    def __init__(self, cache: ObjectCache) -> None:
        self._cache = cache

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the gauge."""
        family = GaugeMetricFamily("agent_sandboxes", "Sandboxes.", labels=_SANDBOX_LABELS)
        for labels, count in Tally(map(_sandbox_labels, self._cache.iter_kind("Sandbox"))).items():
            family.add_metric(labels, count)
        yield family


def _sandbox_labels(sandbox: Mapping[str, Any]) -> tuple[str, ...]:
    ready, owner = find_condition(sandbox, ConditionType.READY), controller_of(sandbox) or {}
    kind = str(owner.get("kind"))
    return (
        sandbox["metadata"]["namespace"],
        str(ready.get("status") == "True").lower(),
        str(ready.get("reason") == SandboxReason.SANDBOX_EXPIRED).lower(),
        _launch_type(sandbox),
        _template(sandbox, "unknown"),
        kind if kind in ("SandboxClaim", "SandboxWarmPool") else "None",
        _creator(sandbox),
    )


def _set_build_info(registry: CollectorRegistry) -> None:
    names = ("git_version", "git_commit", "build_date", "go_version", "compiler", "platform")
    system = f"{platform.system()}/{platform.machine()}".lower()
    info = Gauge("agent_sandbox_build_info", "Version of the controller.", names, registry=registry)
    info.labels(__version__, "", "", "", platform.python_implementation(), system).set(1)


def _launch_type(sandbox: Mapping[str, Any]) -> str:
    value = (sandbox["metadata"].get("labels") or {}).get(LAUNCH_TYPE_LABEL)
    return value if value in ("warm", "cold") else "unknown"


def _template(sandbox: Mapping[str, Any], default: str) -> str:
    return str((sandbox["metadata"].get("annotations") or {}).get(TEMPLATE_REF_ANNOTATION) or default)


def _creator(obj: Mapping[str, Any]) -> str:
    return normalized_creator((obj["metadata"].get("labels") or {}).get(CREATED_BY_LABEL) or "")
