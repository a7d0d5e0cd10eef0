"""The words of the published sandbox API: groups, labels, annotations, conditions and reasons.

They are a contract with other people's clients and controllers: nothing here may be renamed. Not here: what
holdfast makes of them.
"""

from __future__ import annotations

from enum import StrEnum

GROUP = "agents.x-k8s.io"
EXTENSIONS_GROUP = "extensions.agents.x-k8s.io"
VERSION = "v1beta1"
API_VERSION = f"{GROUP}/{VERSION}"
EXTENSIONS_API_VERSION = f"{EXTENSIONS_GROUP}/{VERSION}"

NAME_HASH = f"{GROUP}/sandbox-name-hash"
"""Label on pods, Services and claims of a sandbox: how they are found."""
ADOPTABLE = f"{GROUP}/adoptable"
"""Label with which an object without an owner may be taken over."""
POD_NAME = f"{GROUP}/pod-name"
"""Annotation of a sandbox whose pod has another name than itself."""
PROPAGATED_LABELS = f"{GROUP}/propagated-labels"
PROPAGATED_ANNOTATIONS = f"{GROUP}/propagated-annotations"
"""Annotations of a pod: the keys that came from its template, so that a key that is gone there goes here."""

TEMPLATE_REF = f"{GROUP}/sandbox-template-ref"
"""Annotation of a sandbox: the template that it was made from."""
TEMPLATE_HASH = f"{GROUP}/sandbox-pod-template-hash"
"""Label of a sandbox in a pool: what its template said when it was made."""
TEMPLATE_REF_HASH = f"{GROUP}/sandbox-template-ref-hash"
"""Label of a pod whose sandbox was made from a template: the hash of the template's name."""
WARM_POOL = f"{GROUP}/warm-pool-sandbox"
"""Label of a sandbox that waits in a pool: the hash of the pool's name."""
LAUNCH_TYPE = f"{GROUP}/launch-type"
"""Label of a sandbox: `warm` where it came from a pool, `cold` where it was made for its claim."""
CLAIM_UID = f"{GROUP}/claim-uid"
"""Label of a claimed sandbox and of its pod: the uid of the claim."""
CLAIMED_NAME = f"{GROUP}/sandbox-name"
"""Annotation of a claim: the sandbox that it got."""

SANDBOX_ID = "holdfast.dev/sandbox-id"
"""Label of what the gateway's API makes, ours: the id by which a sandbox is known all its life."""
MANAGED_BY = "holdfast.dev/managed-by"
"""Label, ours: made through holdfast, whoever owns it now."""
FAILED_PODS = "holdfast.dev/failed-pods"
"""Annotation of a sandbox, ours: `Recreate` (the default) or `Keep`."""
FAILURES = "holdfast.dev/failures"
"""Annotation of a sandbox, ours: how many of its pods failed in a row."""
REPLACED = "holdfast.dev/replaced"
"""Annotation of a sandbox that waits in a pool, ours: how many ended in a row in whose place it is."""
IDLE_SUSPEND_AFTER = "holdfast.dev/idle-suspend-after"
"""Annotation of a sandbox, ours: seconds without use after which it is suspended."""
FROM_CLAIM = "holdfast.dev/from-claim"
"""Annotation of a claimed sandbox, ours: what it has from its claim, so that edits of that can follow."""
LAST_USED = "holdfast.dev/last-used"
"""Annotation of a sandbox, ours: when somebody used it last, noted by whoever let them in."""


class Mode(StrEnum):
    """What a sandbox is asked to do."""

    RUNNING = "Running"
    SUSPENDED = "Suspended"


class Shutdown(StrEnum):
    """What becomes of a sandbox itself when its time is over."""

    DELETE = "Delete"
    RETAIN = "Retain"


class Condition(StrEnum):
    """The types of a sandbox's conditions."""

    READY = "Ready"
    SUSPENDED = "Suspended"
    POD_SCHEDULED = "PodScheduled"
    FINISHED = "Finished"
    NETWORK_POLICY_ENFORCED = "holdfast.dev/NetworkPolicyEnforced"
    """ours, and only there to say that it is not so"""
    EDITS_FOLLOWED = "holdfast.dev/EditsFollowed"
    """ours, of claims, and only there to say that it is not so"""


class Reason(StrEnum):
    """The reasons that a sandbox's conditions give."""

    DEPENDENCIES_READY = "DependenciesReady"
    DEPENDENCIES_NOT_READY = "DependenciesNotReady"
    SANDBOX_SUSPENDED = "SandboxSuspended"
    POD_SUCCEEDED = "PodSucceeded"
    POD_FAILED = "PodFailed"
    SANDBOX_EXPIRED = "SandboxExpired"
    MULTIPLE_PODS = "MultiplePods"
    RECONCILER_ERROR = "ReconcilerError"
    NOT_SUSPENDED = "NotSuspended"
    POD_TERMINATED = "PodTerminated"
    POD_TERMINATING = "PodTerminating"
    POD_NOT_OWNED = "PodNotOwned"
    POD_STATE_UNKNOWN = "PodStateUnknown"
    POD_SCHEDULED = "PodScheduled"
    POD_SCHEDULING_UNKNOWN = "PodSchedulingUnknown"


class ClaimReason(StrEnum):
    """The reasons that a claim's conditions give, beside those that it mirrors from its sandbox."""

    TEMPLATE_NOT_FOUND = "TemplateNotFound"
    WARM_POOL_NOT_FOUND = "WarmPoolNotFound"
    ADOPTION_CONFLICT = "AdoptionConflict"
    SANDBOX_CREATE_PENDING = "SandboxCreatePending"
    INVALID_METADATA = "InvalidMetadata"
    ENV_REJECTED = "EnvVarsInjectionRejected"
    CLAIM_TEMPLATES_ERROR = "VolumeClaimTemplatesError"
    CLAIM_EXPIRED = "ClaimExpired"
    SANDBOX_MISSING = "SandboxMissing"
    SANDBOX_NOT_READY = "SandboxNotReady"
