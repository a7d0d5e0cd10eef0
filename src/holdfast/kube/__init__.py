"""Kubernetes clients that survive a bad server: `resilient` calls, and helpers that say what they did.

    from holdfast import resilient
    core = resilient(CoreV1Api(client))      # the same type, the same methods

    from holdfast.kube import Objects, api_client, pod, pod_ready
    objects = Objects(api_client(path))
    objects.ensure(pod("hello", "busybox"), namespace="default")

Names are loaded when they are first used: importing this package does not import `kubernetes`.
Not here: Docker, gateways, steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast import lazy

if TYPE_CHECKING:
    from holdfast.kube.builders import docker_registry_secret, env_secret, job, pod
    from holdfast.kube.client import api_client, async_api_client
    from holdfast.kube.conditions import (
        Sight,
        condition,
        deleted,
        job_done,
        namespace_active,
        pod_done,
        pod_ready,
        rollout_done,
    )
    from holdfast.kube.objects import AsyncObjects, Objects
    from holdfast.kube.outcome import Done, Outcome, classify, describe, outcome_of
    from holdfast.kube.proxy import resilient
    from holdfast.kube.result import Result
    from holdfast.kube.telemetry import opentelemetry, prometheus

__all__ = [
    "AsyncObjects",
    "Done",
    "Objects",
    "Outcome",
    "Result",
    "Sight",
    "api_client",
    "async_api_client",
    "classify",
    "condition",
    "deleted",
    "describe",
    "docker_registry_secret",
    "env_secret",
    "job",
    "job_done",
    "namespace_active",
    "opentelemetry",
    "outcome_of",
    "pod",
    "pod_done",
    "pod_ready",
    "prometheus",
    "resilient",
    "rollout_done",
]

_HOMES: dict[str, str] = {
    **dict.fromkeys(("docker_registry_secret", "env_secret", "job", "pod"), "builders"),
    **dict.fromkeys(("api_client", "async_api_client"), "client"),
    **dict.fromkeys(("Sight", "condition", "deleted", "job_done", "namespace_active"), "conditions"),
    **dict.fromkeys(("pod_done", "pod_ready", "rollout_done"), "conditions"),
    **dict.fromkeys(("AsyncObjects", "Objects"), "objects"),
    **dict.fromkeys(("Done", "Outcome", "classify", "describe", "outcome_of"), "outcome"),
    **dict.fromkeys(("opentelemetry", "prometheus"), "telemetry"),
    "Result": "result",
    "resilient": "proxy",
}


__getattr__ = lazy.names(globals(), _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
