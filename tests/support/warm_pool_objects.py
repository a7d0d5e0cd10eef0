"""Templates, warm pools, SandboxClaims and warm sandboxes, and one reconcile of a SandboxClaim."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

from holdfast.sandbox import ObservedSandboxClaim, reconcile_sandbox_claim
from holdfast.sandbox.from_template import warm_sandbox as warm_sandbox_manifest

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
EXTENSIONS = "extensions.agents.x-k8s.io/v1beta1"
TIMES = {
    "agents.x-k8s.io/controller-first-observed-at": "2026-01-01T12:00:00.000000000Z",
    "agents.x-k8s.io/claim-first-ready-at": "2026-01-01T12:00:00.000000000Z",
}
"""annotations of a SandboxClaim that was ready before"""


def template(**spec):
    container = {"name": "main", "image": "app:1", "env": [{"name": "LANG", "value": "C"}]}
    return {
        "apiVersion": EXTENSIONS,
        "kind": "SandboxTemplate",
        "metadata": {"name": "t", "namespace": "ns", "uid": "t-1"},
        "spec": {"podTemplate": {"spec": {"containers": [container, {"name": "side", "image": "x"}]}}} | spec,
    }


def pool(**spec):
    return {
        "apiVersion": EXTENSIONS,
        "kind": "SandboxWarmPool",
        "metadata": {"name": "p", "namespace": "ns", "uid": "pool-1", "generation": 2},
        "spec": {"sandboxTemplateRef": {"name": "t"}, "replicas": 2} | spec,
    }


def claim(**spec):
    return {
        "apiVersion": EXTENSIONS,
        "kind": "SandboxClaim",
        "metadata": {
            "name": "c",
            "namespace": "ns",
            "uid": "claim-1",
            "generation": 1,
            "annotations": dict(TIMES),
        },
        "spec": {"warmPoolRef": {"name": "p"}} | spec,
    }


def warm_sandbox(name, *, ready=True, template_object=None, owner=None, age=0, finished=False):
    made = warm_sandbox_manifest(name, owner or pool(), template_object or template())
    made["metadata"] |= {
        "uid": f"uid-{name}",
        "resourceVersion": "7",
        "creationTimestamp": (NOW - timedelta(seconds=age)).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    conditions = [
        {
            "type": "Ready",
            "status": "True" if ready else "False",
            "reason": "DependenciesReady",
            "message": "m",
        }
    ]
    if finished:
        over = {"type": "Finished", "status": "True", "reason": "PodFailed", "message": "over"}
        conditions.append({**over, "lastTransitionTime": NOW.strftime("%Y-%m-%dT%H:%M:%SZ")})
    made["status"] = {"conditions": conditions, "podIPs": ["10.0.0.3"]}
    return made


def name_sequence():
    numbers = itertools.count(1)
    return lambda: f"p-{next(numbers)}"


def reconcile_claim(
    claim_object, *sandboxes, pool_object=None, template_object=None, now=NOW, label_domains=()
):
    """One reconcile; by default, labels of every domain are allowed."""
    return reconcile_sandbox_claim(
        ObservedSandboxClaim(
            sandbox_claim=claim_object,
            pool=pool() if pool_object is None else pool_object,
            template=template() if template_object is None else template_object,
            sandboxes=sandboxes,
            now=now,
            label_domains=label_domains,
        )
    )


def ready_condition(decision):
    (found,) = [one for one in decision.status["conditions"] if one["type"] == "Ready"]
    return found["status"], found["reason"]
