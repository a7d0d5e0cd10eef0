"""Names of the published sandbox API: groups, labels, annotations, condition types and reasons.

All values are contracts with other clients and controllers of the API; do not change them.
"""

from __future__ import annotations

from enum import StrEnum

GROUP = "agents.x-k8s.io"
EXTENSIONS_GROUP = "extensions.agents.x-k8s.io"
VERSION = "v1beta1"
API_VERSION = f"{GROUP}/{VERSION}"
EXTENSIONS_API_VERSION = f"{EXTENSIONS_GROUP}/{VERSION}"
# Namespace of the published installation: its Lease and its routers.
PUBLISHED_NAMESPACE = "agent-sandbox-system"

# Labels and annotations of the published API.

# Label on the pod, PVCs and Service of a sandbox; the controller selects them by it.
NAME_HASH_LABEL = f"{GROUP}/sandbox-name-hash"
# Label that allows a sandbox to adopt an object without a controller.
ADOPTABLE_LABEL = f"{GROUP}/adoptable"
# Annotation on a sandbox whose pod does not have the name of the sandbox.
POD_NAME_ANNOTATION = f"{GROUP}/pod-name"
# Annotations on a pod: the keys copied from its template, so that keys removed there are removed here.
PROPAGATED_LABELS_ANNOTATION = f"{GROUP}/propagated-labels"
PROPAGATED_ANNOTATIONS_ANNOTATION = f"{GROUP}/propagated-annotations"

# Annotation on a sandbox: the SandboxTemplate it was created from.
TEMPLATE_REF_ANNOTATION = f"{GROUP}/sandbox-template-ref"
# Label on a warm sandbox: the hash of its template's spec at creation.
TEMPLATE_HASH_LABEL = f"{GROUP}/sandbox-pod-template-hash"
# Label on a pod whose sandbox was created from a template: the hash of the template's name.
TEMPLATE_REF_HASH_LABEL = f"{GROUP}/sandbox-template-ref-hash"
# Label on a warm sandbox: the hash of its pool's name.
WARM_POOL_LABEL = f"{GROUP}/warm-pool-sandbox"
# Label on a pool's sandbox: the hash of the fields that it took from its template.
TEMPLATE_FIELDS_HASH_LABEL = f"{GROUP}/sandbox-template-hash"
# Label on a SandboxClaim, a sandbox and its pod: the program that created it.
CREATED_BY_LABEL = f"{GROUP}/created-by"
# Annotation on a SandboxClaim and its sandbox: W3C trace context as JSON.
TRACE_CONTEXT_ANNOTATION = "opentelemetry.io/trace-context"
# Label on a sandbox: `warm` if it came from a pool, `cold` if it was created for its SandboxClaim.
LAUNCH_TYPE_LABEL = f"{GROUP}/launch-type"
# Label on a bound sandbox and on its pod: the UID of the SandboxClaim.
SANDBOX_CLAIM_UID_LABEL = f"{GROUP}/claim-uid"
# Annotation on a SandboxClaim: the warm sandbox that it adopts. Older controllers used a label of this key.
BOUND_SANDBOX_ANNOTATION = f"{GROUP}/sandbox-name"
# Annotations on a SandboxClaim: when a controller saw it first, and when it became ready first.
FIRST_OBSERVED_ANNOTATION = f"{GROUP}/controller-first-observed-at"
FIRST_READY_ANNOTATION = f"{GROUP}/claim-first-ready-at"

# Labels and annotations of holdfast.

# Label: the ID that a sandbox keeps as long as its name and workspace exist.
SANDBOX_ID_LABEL = "holdfast.dev/sandbox-id"
# Label on all objects that holdfast creates.
MANAGED_BY_LABEL = "holdfast.dev/managed-by"
# Annotation on a sandbox: `Recreate`, or `Keep` (default), as the published controller does.
FAILED_PODS_ANNOTATION = "holdfast.dev/failed-pods"
# Annotation on a sandbox: the number of consecutive failed pods.
FAILURE_COUNT_ANNOTATION = "holdfast.dev/failures"
# Annotation on a warm sandbox: how many of its predecessors ended in a row.
REPLACEMENT_COUNT_ANNOTATION = "holdfast.dev/replaced"
# Annotation on a sandbox: seconds without use before the controller suspends it.
IDLE_SUSPEND_AFTER_ANNOTATION = "holdfast.dev/idle-suspend-after"
# Annotation on a bound sandbox: what it took over from its SandboxClaim; see holdfast.sandbox.claim.edits.
APPLIED_SANDBOX_CLAIM_ANNOTATION = "holdfast.dev/from-claim"
# Annotation on a sandbox: when a client last used it, written by the gateway's API server.
LAST_USED_ANNOTATION = "holdfast.dev/last-used"


class OperatingMode(StrEnum):
    """`spec.operatingMode` of a Sandbox."""

    RUNNING = "Running"
    SUSPENDED = "Suspended"


class ShutdownPolicy(StrEnum):
    """`spec.shutdownPolicy`: what happens to the Sandbox object at its shutdown time."""

    DELETE = "Delete"
    RETAIN = "Retain"


class ConditionType(StrEnum):
    """Condition types of sandboxes, SandboxClaims and warm pools."""

    READY = "Ready"
    SUSPENDED = "Suspended"
    POD_SCHEDULED = "PodScheduled"
    FINISHED = "Finished"
    # holdfast's own. These two exist only with status False.
    NETWORK_POLICY_ENFORCED = "holdfast.dev/NetworkPolicyEnforced"
    EDITS_APPLIED = "holdfast.dev/EditsFollowed"
    # Exists with status True while holdfast knows more than the published conditions say.
    EXPLANATION = "holdfast.dev/Explanation"


class SandboxReason(StrEnum):
    """Reasons of a sandbox's conditions."""

    DEPENDENCIES_READY = "DependenciesReady"
    DEPENDENCIES_NOT_READY = "DependenciesNotReady"
    SANDBOX_SUSPENDED = "SandboxSuspended"
    POD_SUCCEEDED = "PodSucceeded"
    POD_FAILED = "PodFailed"
    SANDBOX_EXPIRED = "SandboxExpired"
    MULTIPLE_PODS = "MultiplePods"
    RECONCILER_ERROR = "ReconcilerError"
    INVALID_CONFIGURATION = "InvalidConfiguration"
    NOT_SUSPENDED = "NotSuspended"
    POD_TERMINATED = "PodTerminated"
    POD_TERMINATING = "PodTerminating"
    POD_NOT_OWNED = "PodNotOwned"
    POD_STATE_UNKNOWN = "PodStateUnknown"
    POD_SCHEDULED = "PodScheduled"
    POD_SCHEDULING_UNKNOWN = "PodSchedulingUnknown"


class SandboxClaimReason(StrEnum):
    """Reasons of a SandboxClaim's conditions, in addition to those it copies from its sandbox."""

    TEMPLATE_NOT_FOUND = "TemplateNotFound"
    WARM_POOL_NOT_FOUND = "WarmPoolNotFound"
    ADOPTION_CONFLICT = "AdoptionConflict"
    SANDBOX_CREATE_PENDING = "SandboxCreatePending"
    INVALID_METADATA = "InvalidMetadata"
    ENV_VARS_INJECTION_REJECTED = "EnvVarsInjectionRejected"
    VOLUME_CLAIM_TEMPLATES_ERROR = "VolumeClaimTemplatesError"
    CLAIM_EXPIRED = "ClaimExpired"
    SANDBOX_MISSING = "SandboxMissing"
    SANDBOX_NOT_READY = "SandboxNotReady"


class HoldfastReason(StrEnum):
    """Reasons of holdfast's own condition types."""

    POLICY_NAME_CONFLICT = "PolicyNameConflict"
    NOT_ENFORCED = "NotEnforced"
    EDIT_IGNORED = "EditIgnored"
    PREVIOUS_OBJECT_TERMINATING = "PreviousObjectTerminating"
