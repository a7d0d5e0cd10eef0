# ruff: noqa: E501 (texts of the contract stay in one piece)
"""Rows of the contract about SandboxClaims."""

from __future__ import annotations

import re

from tests.conformance.rows_sandboxes import REFUSAL, conditions_of
from tests.conformance.scenarios_claims import ALLOWED, FIRST_OBSERVED, FIRST_READY, TRACE
from tests.conformance.table import Row, annotation, label, owner, said, value

from holdfast.sandbox import name_hash

UID = "agents.x-k8s.io/claim-uid"
LAUNCH = "agents.x-k8s.io/launch-type"
NAME = "agents.x-k8s.io/sandbox-name"
CREATED_BY = "agents.x-k8s.io/created-by"
REF_HASH = "agents.x-k8s.io/sandbox-template-ref-hash"
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{1,9}Z")
ANNOTATIONS = "2 annotations"
PASS = "8 one pass"
ADOPTION = "8 adoption"
COLD = "8 cold start"
METADATA = "8 additionalPodMetadata"
READY = "8 Ready"
REJECTED = "False EnvVarsInjectionRejected: environment variable injection rejected: "
VOLUMES = "False VolumeClaimTemplatesError: failed to merge volume claim templates: "
ERROR = "False ReconcilerError: Error seen: "


def has_time(what, key):
    return lambda seen: bool(TIME.fullmatch(annotation(what, key)(seen) or ""))


def invalid(kind, key, why):
    return f'False InvalidMetadata: invalid additionalPodMetadata: failed to validate {kind} "{key}": {why}'


def starts(observe, text):
    """Compare only the beginning: the words after it are those of another program."""
    return lambda seen: (observe(seen) or "")[: len(text)]


def condition(seen, what, kind):
    return next((row for row in seen[what]["status"]["conditions"] if row["type"] == kind), None)


def same_condition(kind, *fields):
    """Whether claim and sandbox have the same values in a condition."""

    def observe(seen):
        mine, theirs = condition(seen, "finished", kind), condition(seen, "sandbox", kind)
        return [mine[field] == theirs[field] for field in fields]

    return observe


def pod_template(what, field, key):
    return value(what, "spec", "podTemplate", "metadata", field, key)


CLAIM_ROWS = [
    Row(ANNOTATIONS, "controller-first-observed-at", "warm-claim", has_time("claim", FIRST_OBSERVED), True),
    Row(ANNOTATIONS, "claim-first-ready-at", "warm-claim", has_time("claim", FIRST_READY), True),
    Row(
        ANNOTATIONS,
        "claim-first-ready-at after a cold start",
        "cold-claim",
        has_time("claim", FIRST_READY),
        True,
    ),
    Row(
        ANNOTATIONS,
        "sandbox-name",
        "warm-claim",
        lambda seen: annotation("ready", NAME)(seen) == seen["ready"]["status"]["sandbox"]["name"],
        True,
    ),
    Row(
        ANNOTATIONS,
        "claim-first-ready-at where the write was missed",
        "missed-annotation",
        annotation("claim", FIRST_READY),
        "unknown",
    ),
    Row(ANNOTATIONS, "no sandbox-name for cold starts", "cold-claim", annotation("claim", NAME), None),
    Row(ANNOTATIONS, "sandbox-name label is moved", "begun-adoption", label("forgets", NAME), None),
    Row(
        ANNOTATIONS,
        "trace context is copied",
        "warm-claim",
        annotation("sandbox", TRACE),
        '{"traceparent":"x"}',
    ),
    Row(
        ANNOTATIONS,
        "trace context is copied at a cold start",
        "cold-claim",
        annotation("sandbox", TRACE),
        '{"traceparent":"x"}',
    ),
    Row(
        PASS,
        "begun adoption is completed",
        "begun-adoption",
        lambda seen: seen["bound"]["status"]["sandbox"]["name"] == seen["name"],
        True,
    ),
    Row(
        PASS,
        "name that is gone is forgotten",
        "begun-adoption",
        lambda seen: annotation("forgets", NAME)(seen) == seen["ready"]["status"]["sandbox"]["name"],
        True,
    ),
    Row(
        PASS,
        "metadata is checked before pool and template",
        "bad-metadata",
        starts(said("key", "Ready"), "False InvalidMetadata"),
        "False InvalidMetadata",
    ),
    Row(PASS, "template edits reach the pod", "warm-claim", label("edited", "new"), "1"),
    Row(PASS, "edits of the claim reach the pod", "warm-claim", label("relabelled", f"{ALLOWED}/a"), "2"),
    Row(
        PASS,
        "deleted sandbox is replaced",
        "replaced-sandbox",
        lambda seen: seen["again"]["status"]["sandbox"]["name"],
        "replaced",
    ),
    Row(PASS, "Finished is removed with its sandbox", "replaced-sandbox", said("again", "Finished"), None),
    Row(
        PASS,
        "Finished is the sandbox's",
        "replaced-sandbox",
        same_condition("Finished", "lastTransitionTime", "observedGeneration", "reason", "message"),
        [True] * 4,
    ),
    Row(
        PASS,
        "conditions are sorted",
        "replaced-sandbox",
        lambda seen: [row["type"] for row in seen["finished"]["status"]["conditions"]],
        ["Finished", "Ready"],
    ),
    Row(PASS, "status.sandbox", "warm-claim", value("ready", "status", "sandbox", "podIPs"), ["10.9.0.1"]),
    Row(PASS, "Retain clears status.sandbox", "expired-claims", value("retained", "status", "sandbox"), None),
    Row(PASS, "Retain deletes the sandbox", "expired-claims", lambda seen: seen["sandbox"], None),
    Row(PASS, "Delete deletes the claim", "expired-claims", lambda seen: seen["deleted"], None),
    Row(
        PASS,
        "ttl after Finished",
        "finished-claims",
        said("retained", "Ready"),
        "False ClaimExpired: Claim expired. Sandbox cleanup initiated.",
    ),
    Row(
        PASS,
        "Finished stays while expired",
        "finished-claims",
        said("retained", "Finished"),
        "True PodSucceeded: Pod completed successfully",
    ),
    Row(PASS, "ttl with Delete", "finished-claims", lambda seen: seen["deleted"], None),
    Row(
        PASS,
        "DeleteForeground waits for sandbox and pod",
        "foreground-expiry",
        lambda seen: seen["during"],
        [True, True],
    ),
    Row(
        PASS,
        "a sandbox of another owner is not deleted",
        "foreign-expiry",
        lambda seen: seen["sandbox"] is not None,
        True,
    ),
    Row(ADOPTION, "owner", "warm-claim", owner("sandbox"), ("SandboxClaim", "warm-claim", True, True)),
    Row(
        ADOPTION,
        "pool label is removed",
        "warm-claim",
        label("sandbox", "agents.x-k8s.io/warm-pool-sandbox"),
        None,
    ),
    Row(
        ADOPTION,
        "pool label leaves the pod",
        "warm-claim",
        label("edited", "agents.x-k8s.io/warm-pool-sandbox"),
        None,
    ),
    Row(
        ADOPTION,
        "template hash is removed",
        "warm-claim",
        label("sandbox", "agents.x-k8s.io/sandbox-template-hash"),
        None,
    ),
    Row(
        ADOPTION,
        "old template hash is removed",
        "warm-claim",
        label("sandbox", "agents.x-k8s.io/sandbox-pod-template-hash"),
        None,
    ),
    Row(ADOPTION, "launch-type", "warm-claim", label("sandbox", LAUNCH), "warm"),
    Row(
        ADOPTION,
        "claim-uid",
        "warm-claim",
        lambda seen: label("sandbox", UID)(seen) == seen["claim"]["metadata"]["uid"],
        True,
    ),
    Row(
        ADOPTION,
        "claim-uid of the podTemplate",
        "warm-claim",
        lambda seen: pod_template("sandbox", "labels", UID)(seen) == seen["claim"]["metadata"]["uid"],
        True,
    ),
    Row(
        ADOPTION,
        "claim-uid of the pod",
        "warm-claim",
        lambda seen: label("edited", UID)(seen) == seen["claim"]["metadata"]["uid"],
        True,
    ),
    Row(ADOPTION, "created-by", "warm-claim", label("sandbox", CREATED_BY), "python-client"),
    Row(ADOPTION, "created-by of the pod", "warm-claim", label("edited", CREATED_BY), "python-client"),
    Row(ADOPTION, "template label stays", "warm-claim", label("sandbox", REF_HASH), name_hash("warm")),
    Row(
        ADOPTION,
        "safe-to-evict is removed",
        "warm-claim",
        pod_template("sandbox", "annotations", "cluster-autoscaler.kubernetes.io/safe-to-evict"),
        None,
    ),
    Row(ADOPTION, "metadata of the claim", "warm-claim", pod_template("sandbox", "annotations", "note"), "x"),
    Row(ADOPTION, "other labels of the claim are not copied", "warm-claim", label("sandbox", "mine"), None),
    Row(ADOPTION, "node with most waiting sandboxes", "balanced-choice", lambda seen: seen["node"], "two"),
    Row(
        ADOPTION,
        "cold start after 2 s without podIPs",
        "unready-members",
        label("sandbox", LAUNCH),
        "cold",
    ),
    Row(COLD, "name and owner", "cold-claim", owner("sandbox"), ("SandboxClaim", "cold-claim", True, True)),
    Row(COLD, "launch-type", "cold-claim", label("sandbox", LAUNCH), "cold"),
    Row(
        COLD,
        "claim-uid",
        "cold-claim",
        lambda seen: label("sandbox", UID)(seen) == seen["claim"]["metadata"]["uid"],
        True,
    ),
    Row(COLD, "template label", "cold-claim", label("sandbox", REF_HASH), name_hash("cold")),
    Row(
        COLD,
        "template annotation",
        "cold-claim",
        annotation("sandbox", "agents.x-k8s.io/sandbox-template-ref"),
        "cold",
    ),
    Row(COLD, "created-by", "cold-claim", label("sandbox", CREATED_BY), "go-client"),
    Row(COLD, "other labels of the claim are not copied", "cold-claim", label("sandbox", "mine"), None),
    Row(
        COLD,
        "env replaces in place",
        "cold-claim",
        lambda seen: [one["name"] for one in seen["pod"]["spec"]["containers"][0]["env"]],
        ["A", "B"],
    ),
    Row(
        COLD,
        "volume claim templates replace in place",
        "cold-claim",
        lambda seen: [one["metadata"]["name"] for one in seen["sandbox"]["spec"]["volumeClaimTemplates"]],
        ["first", "data", "extra"],
    ),
    Row(
        COLD,
        "service account token",
        "cold-claim",
        value("pod", "spec", "automountServiceAccountToken"),
        False,
    ),
    Row(
        COLD,
        "default DNS",
        "cold-claim",
        value("pod", "spec", "dnsConfig", "nameservers"),
        ["8.8.8.8", "1.1.1.1"],
    ),
    Row(COLD, "dnsPolicy", "cold-claim", value("pod", "spec", "dnsPolicy"), "None"),
    Row(
        COLD,
        "claim templates before env",
        "refused-claims",
        starts(said("r-order", "Ready"), "False VolumeClaimTemplatesError"),
        "False VolumeClaimTemplatesError",
    ),
    Row(
        METADATA,
        "invalid key",
        "bad-metadata",
        starts(said("key", "Ready"), invalid("label", "a b", 'invalid label key: "a b": ')),
        invalid("label", "a b", 'invalid label key: "a b": '),
    ),
    Row(
        METADATA,
        "router label",
        "bad-metadata",
        said("router", "Ready"),
        invalid(
            "label",
            "App",
            'restricted system label value: "App"="Sandbox-Router" is not allowed in AdditionalPodMetadata',
        ),
    ),
    Row(
        METADATA,
        "label without domain",
        "bad-metadata",
        said("prefix", "Ready"),
        invalid(
            "label",
            "team",
            "label \"team\" must have a domain prefix (e.g. 'sandbox.users.io/my-label') to prevent opting into unintended policy domains",
        ),
    ),
    Row(
        METADATA,
        "label of another domain",
        "bad-metadata",
        said("domain", "Ready"),
        invalid("label", "example.com/team", 'label domain "example.com" is not in the allowlist'),
    ),
    Row(
        METADATA,
        "invalid value",
        "bad-metadata",
        starts(
            said("value", "Ready"),
            invalid("label", f"{ALLOWED}/a", 'invalid label value: "x y" does not match allowed pattern: '),
        ),
        invalid("label", f"{ALLOWED}/a", 'invalid label value: "x y" does not match allowed pattern: '),
    ),
    Row(
        METADATA,
        "annotation of Kubernetes",
        "bad-metadata",
        said("annotation", "Ready"),
        invalid(
            "annotation",
            "a.k8s.io/b",
            'restricted system domain: "a.k8s.io/b" is not allowed in AdditionalPodMetadata',
        ),
    ),
    Row(METADATA, "domain below the allowed one", "good-metadata", label("pod", f"a.{ALLOWED}/team"), "blue"),
    Row(
        METADATA,
        "safe-to-evict",
        "good-metadata",
        annotation("pod", "cluster-autoscaler.kubernetes.io/safe-to-evict"),
        "false",
    ),
    Row(METADATA, "annotation without domain", "good-metadata", annotation("pod", "plain"), "1"),
    Row(
        METADATA,
        "conflict with the template",
        "refused-claims",
        said("r-conflict", "Ready"),
        f'{ERROR}metadata override conflict: label "{ALLOWED}/tier" is defined in template with value "theirs", but claim requests "mine"',
    ),
    Row(
        READY,
        "pool missing",
        "missing-parts",
        said("pool", "Ready"),
        'False WarmPoolNotFound: SandboxWarmPool "later" not found',
    ),
    Row(
        READY,
        "template missing",
        "missing-parts",
        said("template", "Ready"),
        'False TemplateNotFound: SandboxTemplate "later-template" not found',
    ),
    Row(
        READY,
        "template missing, bound with metadata",
        "missing-parts",
        said("lost", "Ready"),
        'False TemplateNotFound: failed to get template for metadata propagation: SandboxTemplate "later-template" not found',
    ),
    Row(
        READY,
        "status.sandbox is kept through errors",
        "missing-parts",
        value("lost", "status", "sandbox", "name"),
        "early",
    ),
    Row(
        READY,
        "env not allowed",
        "refused-claims",
        said("r-env", "Ready"),
        f"{REJECTED}environment variable injection is not allowed by the template policy",
    ),
    Row(
        READY,
        "envFrom",
        "refused-claims",
        said("r-env-from", "Ready"),
        f'{REJECTED}container "main" uses EnvFrom sources; Allowed policy cannot safely prevent overriding EnvFrom-provided variables',
    ),
    Row(
        READY,
        "env override",
        "refused-claims",
        said("r-override", "Ready"),
        f'{ERROR}environment variable override is not allowed by the template policy for variable "A"',
    ),
    Row(
        READY,
        "env of a missing container",
        "refused-claims",
        said("r-container", "Ready"),
        f'{ERROR}target container "none" not found in template for environment variable "B"',
    ),
    Row(
        READY,
        "claim templates not allowed",
        "refused-claims",
        said("r-volumes", "Ready"),
        f"{VOLUMES}volume claim templates are disallowed by the template",
    ),
    Row(
        READY,
        "claim template overrides",
        "refused-claims",
        said("r-same-volume", "Ready"),
        f'{VOLUMES}overriding volume claim templates is forbidden by the template: cannot override template volume "data"',
    ),
    Row(
        READY,
        "claim template without name",
        "refused-claims",
        said("r-nameless", "Ready"),
        f"{VOLUMES}claim: invalid volume claim templates: name at index 1 is empty",
    ),
    Row(
        READY,
        "claim template twice",
        "refused-claims",
        said("r-twice", "Ready"),
        f'{VOLUMES}claim: invalid volume claim templates: duplicate name "o"',
    ),
    Row(
        READY,
        "claim templates of the template",
        "refused-claims",
        said("r-template", "Ready"),
        'False VolumeClaimTemplatesError: invalid volume claim templates in template: invalid volume claim templates: duplicate name "data"',
    ),
    Row(
        READY,
        "sandbox of others has the name",
        "taken-name",
        said("refused", "Ready"),
        f'{ERROR}sandbox "taken-name" is not controlled by claim "taken-name". Please use a different claim name or delete the sandbox manually',
    ),
    Row(
        READY,
        "expired",
        "expired-claims",
        said("retained", "Ready"),
        "False ClaimExpired: Claim expired. Sandbox cleanup initiated.",
    ),
    Row(
        READY,
        "sandbox expired",
        "replaced-sandbox",
        said("sandbox-expired", "Ready"),
        "False SandboxExpired: Underlying Sandbox resource has expired independently of the Claim.",
    ),
    Row(READY, "mirrored", "warm-claim", said("ready", "Ready"), "True DependenciesReady: Pod is Ready"),
    Row(
        READY,
        "transition time of the sandbox",
        "replaced-sandbox",
        same_condition("Ready", "lastTransitionTime", "reason", "message"),
        [True] * 3,
    ),
    Row(
        READY,
        "sandbox missing",
        "passing-reasons",
        lambda seen: "False SandboxMissing: Sandbox does not exist" in seen["texts"],
        True,
    ),
    Row(
        READY,
        "sandbox without Ready",
        "passing-reasons",
        lambda seen: "False SandboxNotReady: Sandbox is not ready" in seen["texts"],
        True,
    ),
    Row(
        READY,
        "expired, sandbox of another owner",
        "foreign-expiry",
        said("claim", "Ready"),
        'False ClaimExpired: Claim expired. sandbox not owned by this claim: sandbox "not-mine" is not owned by claim "not-owner"; deletion skipped.',
    ),
    Row(
        READY,
        "sandbox create error",
        "refused-writes",
        said("claim", "Ready"),
        f'{ERROR}sandbox create error: sandboxes.agents.x-k8s.io "refused-claim" is forbidden: {REFUSAL}',
    ),
    Row(READY, "only published conditions", "warm-claim", conditions_of("ready"), {"Ready"}),
]
