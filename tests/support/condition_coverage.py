"""Which conditions and reasons of the published API the tests of a file have observed.

A reason counts when a test created its situation and then waited for it in the object's status on a real API
server.
"""

from __future__ import annotations

import pytest

_SANDBOX_CONDITIONS = {
    "Ready": (
        "True DependenciesReady", "False DependenciesNotReady", "False SandboxSuspended",
        "False PodSucceeded", "False PodFailed", "False SandboxExpired", "False MultiplePods",
        "False ReconcilerError", "False InvalidConfiguration",
    ),
    "Suspended": (
        "False NotSuspended", "True PodTerminated", "False PodTerminating", "False PodNotOwned",
        "Unknown PodStateUnknown",
    ),
    "PodScheduled": ("True PodScheduled", "Unknown PodSchedulingUnknown"),
    "Finished": ("True PodSucceeded", "True PodFailed"),
}  # fmt: skip
_CLAIM_READY_CONDITIONS = (
    "True DependenciesReady", "False TemplateNotFound", "False WarmPoolNotFound", "False ReconcilerError",
    "False InvalidMetadata", "False EnvVarsInjectionRejected",
    "False VolumeClaimTemplatesError", "False ClaimExpired", "False SandboxNotReady",
)  # fmt: skip

SANDBOX_CONDITIONS = {("Sandbox", kind, said) for kind, rows in _SANDBOX_CONDITIONS.items() for said in rows}
CLAIM_CONDITIONS = {("SandboxClaim", "Ready", said) for said in _CLAIM_READY_CONDITIONS}


def observed_conditions_of_file(ns, request):
    """What the tests of the asking test's file have waited for and got; only where all of them have run."""
    asked = {item.originalname for item in request.session.items if item.path == request.node.path}
    written = {name for name in vars(request.module) if name.startswith("test_")}
    if asked != written:
        pytest.skip(
            f"only some tests of this file were selected: without {', '.join(sorted(written - asked))}"
        )
    return ns.observed_conditions
