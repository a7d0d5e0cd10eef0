"""Our CRDs against the published ones, fact by fact, as a real server holds them.

A line is a field: its path, `!` where it must be given, its type, and what else is asked of it. What a pod, a
claim for a disk and a network rule may say is the cluster's own affair: there the line names its kind, and
it counts only while no field of that kind is missing. Mistakes and rules by what they do: test_crds.py.
"""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(180)]

GROUP, EXTENSIONS = "agents.x-k8s.io", "extensions.agents.x-k8s.io"

CONDITIONS = """
status.conditions array
status.conditions[] object
status.conditions[].lastTransitionTime! string date-time
status.conditions[].message! string maxLength=32768
status.conditions[].observedGeneration integer int64 minimum=0
status.conditions[].reason! string maxLength=1024 minLength=1 pattern
status.conditions[].status! string False|True|Unknown
status.conditions[].type! string maxLength=316 pattern
"""
CLAIMS = """
spec.volumeClaimTemplates array atomic
spec.volumeClaimTemplates[] object
spec.volumeClaimTemplates[].metadata object
spec.volumeClaimTemplates[].metadata.annotations map of string
spec.volumeClaimTemplates[].metadata.labels map of string
spec.volumeClaimTemplates[].metadata.name string
spec.volumeClaimTemplates[].spec! PersistentVolumeClaimSpec
"""
TEMPLATE_FIELDS = f"""
{CLAIMS}
spec.podTemplate! object
spec.podTemplate.metadata object
spec.podTemplate.metadata.annotations map of string
spec.podTemplate.metadata.labels map of string
spec.podTemplate.spec! PodSpec
spec.service boolean
"""
FIELDS = {
    "Sandbox": f"""
spec! object rules=1
{TEMPLATE_FIELDS}
spec.operatingMode string Running|Suspended default=Running
spec.shutdownPolicy string Delete|Retain default=Retain
spec.shutdownTime string date-time
status object
{CONDITIONS}
status.nodeName string
status.podIPs array
status.podIPs[] string
status.selector string
status.service string
status.serviceFQDN string
""",
    "SandboxTemplate": f"""
spec! object
{TEMPLATE_FIELDS}
spec.envVarsInjectionPolicy string Allowed|Disallowed|Overrides default=Disallowed
spec.networkPolicy object
spec.networkPolicy.egress array
spec.networkPolicy.egress[] NetworkPolicyEgressRule
spec.networkPolicy.ingress array
spec.networkPolicy.ingress[] NetworkPolicyIngressRule
spec.networkPolicyManagement string Managed|Unmanaged default=Managed
spec.volumeClaimTemplatesPolicy string Allowed|Disallowed|Overrides default=Disallowed
""",
    "SandboxWarmPool": """
spec! object
spec.replicas integer int32 default=1 minimum=0
spec.sandboxTemplateRef! object
spec.sandboxTemplateRef.name! string
spec.updateStrategy object
spec.updateStrategy.type string OnReplenish|Recreate default=OnReplenish
status object
status.observedGeneration integer int64 minimum=0
status.readyReplicas integer int32
status.replicas integer int32
status.selector string
""",
    "SandboxClaim": f"""
spec! object
{CLAIMS}
spec.additionalPodMetadata object
spec.additionalPodMetadata.annotations map of string
spec.additionalPodMetadata.labels map of string
spec.env array atomic
spec.env[] object
spec.env[].containerName string
spec.env[].name! string
spec.env[].value! string
spec.lifecycle object
spec.lifecycle.shutdownPolicy string Delete|DeleteForeground|Retain default=Retain
spec.lifecycle.shutdownTime string date-time
spec.lifecycle.ttlSecondsAfterFinished integer int32 minimum=0
spec.warmPoolRef! object
spec.warmPoolRef.name! string
status object
{CONDITIONS}
status.sandbox object
status.sandbox.name string
status.sandbox.podIPs array
status.sandbox.podIPs[] string
""",
}
# What the published ones do not have: a pool says there what the server refuses it.
HOLDFAST_FIELDS = {"SandboxWarmPool": CONDITIONS}

READY = ".status.conditions[?(@.type=='Ready')]"
AGE = ("Age", "date", ".metadata.creationTimestamp")
CRD_METADATA = {
    "Sandbox": {
        "names": (GROUP, "sandboxes", "sandbox", ["sandbox"], "SandboxList"),
        "columns": [("Ready", "string", f"{READY}.status"), ("Reason", "string", f"{READY}.reason"), AGE],
        "subresources": {"status": {}},
    },
    "SandboxTemplate": {
        "names": (
            EXTENSIONS, "sandboxtemplates", "sandboxtemplate", ["sandboxtemplate"], "SandboxTemplateList",
        ),
        "columns": [],
        "subresources": {},
    },
    "SandboxWarmPool": {
        "names": (EXTENSIONS, "sandboxwarmpools", "sandboxwarmpool", ["swp"], "SandboxWarmPoolList"),
        "columns": [
            ("Ready", "integer", ".status.readyReplicas"), ("Desired", "integer", ".spec.replicas"), AGE
        ],
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
    },
    "SandboxClaim": {
        "names": (EXTENSIONS, "sandboxclaims", "sandboxclaim", ["sandboxclaim"], "SandboxClaimList"),
        "columns": [
            ("Ready", "string", f"{READY}.status"), ("Sandbox", "string", ".status.sandbox.name"),
            ("Reason", "string", f"{READY}.reason"), AGE,
        ],
        "subresources": {"status": {}},
    },
}  # fmt: skip
EMBEDDED_KUBERNETES_TYPES = {
    "PodSpec": "io.k8s.api.core.v1.", "PersistentVolumeClaimSpec": "io.k8s.api.core.v1.",
    "NetworkPolicyIngressRule": "io.k8s.api.networking.v1.",
    "NetworkPolicyEgressRule": "io.k8s.api.networking.v1.",
}  # fmt: skip
BOUNDS = ("default", "minimum", "maximum", "maxLength", "minLength", "maxItems", "minItems")


@pytest.fixture(scope="module")
def openapi_schemas(openapi_documents):
    """The fields of the cluster's own kinds, to know them by."""
    schemas = {name: one for part in openapi_documents for name, one in part["components"]["schemas"].items()}
    return {
        frozenset(schemas[prefix + name]["properties"]): name
        for name, prefix in EMBEDDED_KUBERNETES_TYPES.items()
    }


@pytest.fixture(scope="module")
def stored_crds(made):
    """Each definition as the server holds it, by its kind."""
    objects, definitions = made
    names = [definition["metadata"]["name"] for definition in definitions]
    found = [objects.get("CustomResourceDefinition", name)["spec"] for name in names]
    return {one["names"]["kind"]: one for one in found}


def schema_facts(schema, path, whole, *, needed=False):
    """A schema as the lists above have it."""
    own = whole.get(frozenset(schema.get("properties", ())))
    yield f"{path}{'!' if needed else ''} {own or field_facts(schema)}"
    if own:
        return
    for name, one in schema.get("properties", {}).items():
        yield from schema_facts(one, f"{path}.{name}", whole, needed=name in schema.get("required", ()))
    if "items" in schema:
        yield from schema_facts(schema["items"], f"{path}[]", whole)


def field_facts(schema):
    words = [schema.get("type", "anything"), schema.get("format"), "|".join(sorted(schema.get("enum", ())))]
    if "additionalProperties" in schema:
        words[0] = f"map of {schema['additionalProperties']['type']}"
    if schema.get("x-kubernetes-list-type") not in (None, "atomic"):
        words.append(f"list-type={schema['x-kubernetes-list-type']}")
    elif "x-kubernetes-list-type" in schema:
        words.append("atomic")
    words += [f"{key}={schema[key]}" for key in BOUNDS if key in schema]
    words += [word for word in ("pattern", "nullable") if word in schema]
    if "x-kubernetes-validations" in schema:
        words.append(f"rules={len(schema['x-kubernetes-validations'])}")
    return " ".join(word for word in words if word)


def parse_field_list(text):
    return {line for line in text.splitlines() if line}


@pytest.mark.parametrize("kind", FIELDS)
def test_fields_match_published_schema_exactly(stored_crds, openapi_schemas, kind):
    [version] = stored_crds[kind]["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    assert schema["required"] == ["spec"]
    found = {
        line
        for name in sorted(set(schema["properties"]) - {"apiVersion", "kind", "metadata"})
        for line in schema_facts(
            schema["properties"][name], name, openapi_schemas, needed=name in schema["required"]
        )
    }
    assert found == parse_field_list(FIELDS[kind]) | parse_field_list(HOLDFAST_FIELDS.get(kind, ""))


@pytest.mark.parametrize("kind", CRD_METADATA)
def test_names_columns_and_subresources_match_published(stored_crds, kind):
    spec, about = stored_crds[kind], CRD_METADATA[kind]
    [version] = spec["versions"]
    names = spec["names"]
    assert (spec["scope"], version["name"], version["served"], version["storage"]) == (
        "Namespaced", "v1beta1", True, True,
    )  # fmt: skip
    assert about["names"] == (
        spec["group"], names["plural"], names["singular"], names["shortNames"], names["listKind"],
    )  # fmt: skip
    columns = version.get("additionalPrinterColumns", [])
    assert [(one["name"], one["type"], one["jsonPath"]) for one in columns] == about["columns"]
    assert version.get("subresources", {}) == about["subresources"]
