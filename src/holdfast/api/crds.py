"""The four CRDs of the published sandbox API, built for one cluster.

Names, fields, defaults, validation, printer columns and subresources match the published CRDs, so that
clients and controllers of either set work with the other. The schemas of embedded types (PodSpec,
PersistentVolumeClaimSpec, network policy rules) come from the cluster's own OpenAPI document: the API server
then validates them and names the invalid field, whatever its version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.api.constants import EXTENSIONS_GROUP, GROUP, VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping


def _object(required: tuple[str, ...] = (), /, **properties: Any) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    if required:
        schema["required"] = list(required)
    return schema | {"properties": properties}


def _enum(*values: str, default: str) -> dict[str, Any]:
    return {"type": "string", "enum": list(values), "default": default}


_STRING: dict[str, Any] = {"type": "string"}
_STRING_MAP: dict[str, Any] = {"type": "object", "additionalProperties": {"type": "string"}}
_TIME: dict[str, Any] = {"type": "string", "format": "date-time"}
_GENERATION = {"type": "integer", "format": "int64", "minimum": 0}
_NAME_REFERENCE = _object(("name",), name=_STRING)
_POD_METADATA = _object(labels=_STRING_MAP, annotations=_STRING_MAP)
_PVC_METADATA = _object(name=_STRING, labels=_STRING_MAP, annotations=_STRING_MAP)
_READY_CONDITION = ".status.conditions[?(@.type=='Ready')]"
_IP_LIST: dict[str, Any] = {"type": "array", "items": _STRING}
_DNS_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_CONDITIONS: dict[str, Any] = {
    "type": "array",
    "items": _object(
        ("lastTransitionTime", "message", "reason", "status", "type"),
        type={
            "type": "string",
            "maxLength": 316,
            "pattern": rf"^({_DNS_LABEL}(\.{_DNS_LABEL})*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
        },
        status={"type": "string", "enum": ["True", "False", "Unknown"]},
        reason={
            "type": "string",
            "minLength": 1,
            "maxLength": 1024,
            "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
        },
        message={"type": "string", "maxLength": 32768},
        observedGeneration=_GENERATION,
        lastTransitionTime=_TIME,
    ),
}
_IMMUTABLE_VOLUME_CLAIM_TEMPLATES: list[dict[str, str]] = [
    {
        "rule": "has(oldSelf.volumeClaimTemplates) ? has(self.volumeClaimTemplates) && "
        "oldSelf.volumeClaimTemplates == self.volumeClaimTemplates : !has(self.volumeClaimTemplates)",
        "message": "volumeClaimTemplates cannot be changed, added or removed",
        "fieldPath": ".volumeClaimTemplates",
    }
]


def build_crds(core: Mapping[str, Any], networking: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Build the manifests of the CRDs.

    Args:
        core: the API server's OpenAPI document at `/openapi/v3/api/v1`.
        networking: its document at `/openapi/v3/apis/networking.k8s.io/v1`.

    Returns:
        The CRDs of Sandbox, SandboxTemplate, SandboxWarmPool and SandboxClaim.
    """
    shared = _shared_spec_properties(core)
    return [
        _sandbox_crd(shared),
        _template_crd(shared, networking),
        _warm_pool_crd(),
        _sandbox_claim_crd(shared["volumeClaimTemplates"]),
    ]


def _shared_spec_properties(core: Mapping[str, Any]) -> dict[str, Any]:
    """Properties that Sandbox and SandboxTemplate have in common."""
    pod_spec = structural_schema(core, "io.k8s.api.core.v1.PodSpec")
    pvc_spec = structural_schema(core, "io.k8s.api.core.v1.PersistentVolumeClaimSpec")
    return {
        "podTemplate": _object(("spec",), metadata=_POD_METADATA, spec=pod_spec),
        "volumeClaimTemplates": {
            "type": "array",
            "x-kubernetes-list-type": "atomic",
            "items": _object(("spec",), metadata=_PVC_METADATA, spec=pvc_spec),
        },
        "service": {"type": "boolean"},
    }


def _sandbox_crd(shared: dict[str, Any]) -> dict[str, Any]:
    spec = _object(
        ("podTemplate",),
        **shared,
        shutdownTime=_TIME,
        shutdownPolicy=_enum("Delete", "Retain", default="Retain"),
        operatingMode=_enum("Running", "Suspended", default="Running"),
    )
    spec["x-kubernetes-validations"] = _IMMUTABLE_VOLUME_CLAIM_TEMPLATES
    status = _object(
        serviceFQDN=_STRING,
        service=_STRING,
        conditions=_CONDITIONS,
        selector=_STRING,
        podIPs=_IP_LIST,
        nodeName=_STRING,
    )
    crd = _crd(GROUP, "Sandbox", "sandboxes", "sandbox", spec, status)
    return _add_printer_columns(crd, Ready=f"{_READY_CONDITION}.status", Reason=f"{_READY_CONDITION}.reason")


def _template_crd(shared: dict[str, Any], networking: Mapping[str, Any]) -> dict[str, Any]:
    rule_type = "io.k8s.api.networking.v1.NetworkPolicy{}Rule"
    rules = {
        direction: {
            "type": "array",
            "items": structural_schema(networking, rule_type.format(direction.capitalize())),
        }
        for direction in ("ingress", "egress")
    }
    spec = _object(
        ("podTemplate",),
        **shared,
        networkPolicy=_object(**rules),
        networkPolicyManagement=_enum("Managed", "Unmanaged", default="Managed"),
        envVarsInjectionPolicy=_enum("Allowed", "Overrides", "Disallowed", default="Disallowed"),
        volumeClaimTemplatesPolicy=_enum("Disallowed", "Allowed", "Overrides", default="Disallowed"),
    )
    return _crd(EXTENSIONS_GROUP, "SandboxTemplate", "sandboxtemplates", "sandboxtemplate", spec, None)


def _warm_pool_crd() -> dict[str, Any]:
    count = {"type": "integer", "format": "int32"}
    spec = _object(
        ("sandboxTemplateRef",),
        replicas={**count, "minimum": 0, "default": 1},
        sandboxTemplateRef=_NAME_REFERENCE,
        updateStrategy=_object(type=_enum("Recreate", "OnReplenish", default="OnReplenish")),
    )
    status = _object(
        replicas=count,
        readyReplicas=count,
        selector=_STRING,
        observedGeneration=_GENERATION,
        # Not in the published CRD: exists only while the API server rejects the pool's sandboxes.
        conditions=_CONDITIONS,
    )
    crd = _crd(EXTENSIONS_GROUP, "SandboxWarmPool", "sandboxwarmpools", "swp", spec, status)
    crd["spec"]["versions"][0]["subresources"]["scale"] = {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    return _add_printer_columns(crd, "integer", Ready=".status.readyReplicas", Desired=".spec.replicas")


def _sandbox_claim_crd(volume_claim_templates: dict[str, Any]) -> dict[str, Any]:
    env_var = _object(("name", "value"), name=_STRING, value=_STRING, containerName=_STRING)
    lifecycle = _object(
        shutdownTime=_TIME,
        ttlSecondsAfterFinished={"type": "integer", "format": "int32", "minimum": 0},
        shutdownPolicy=_enum("Delete", "DeleteForeground", "Retain", default="Retain"),
    )
    spec = _object(
        ("warmPoolRef",),
        warmPoolRef=_NAME_REFERENCE,
        lifecycle=lifecycle,
        additionalPodMetadata=_POD_METADATA,
        env={"type": "array", "x-kubernetes-list-type": "atomic", "items": env_var},
        volumeClaimTemplates=volume_claim_templates,
    )
    status = _object(conditions=_CONDITIONS, sandbox=_object(name=_STRING, podIPs=_IP_LIST))
    crd = _crd(EXTENSIONS_GROUP, "SandboxClaim", "sandboxclaims", "sandboxclaim", spec, status)
    return _add_printer_columns(
        crd,
        Ready=f"{_READY_CONDITION}.status",
        Sandbox=".status.sandbox.name",
        Reason=f"{_READY_CONDITION}.reason",
    )


def _crd(
    group: str, kind: str, plural: str, short: str, spec: dict[str, Any], status: dict[str, Any] | None
) -> dict[str, Any]:
    schema = _object(("spec",), apiVersion=_STRING, kind=_STRING, metadata={"type": "object"}, spec=spec)
    version: dict[str, Any] = {"name": VERSION, "served": True, "storage": True}
    if status is not None:
        schema["properties"]["status"] = status
        version["subresources"] = {"status": {}}
    version["schema"] = {"openAPIV3Schema": schema}
    names = {
        "kind": kind,
        "listKind": f"{kind}List",
        "plural": plural,
        "singular": kind.lower(),
        "shortNames": [short],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]},
    }


def _add_printer_columns(crd: dict[str, Any], column_type: str = "string", **paths: str) -> dict[str, Any]:
    """Add the columns that `kubectl get` prints between the name and the age."""
    columns = [{"name": name, "type": column_type, "jsonPath": path} for name, path in paths.items()]
    age = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
    crd["spec"]["versions"][0]["additionalPrinterColumns"] = [*columns, age]
    return crd


_KEPT_KEYWORDS = (
    "type", "format", "enum", "pattern", "nullable", "minimum", "maximum", "minLength", "maxLength",
    "minItems", "maxItems", "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type",
    "x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields",
)  # fmt: skip
_REF_PREFIX = "#/components/schemas/"
_OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_NUMBER = r"(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
_QUANTITY_PATTERN = rf"^(\+|-)?{_NUMBER}(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?{_NUMBER}))?$"
_INT_OR_STRING: dict[str, Any] = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "x-kubernetes-int-or-string": True,
}
# Types whose OpenAPI schema is not a valid structural schema.
_SUBSTITUTES: dict[str, dict[str, Any]] = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": _INT_OR_STRING | {"pattern": _QUANTITY_PATTERN},
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": _INT_OR_STRING,
    _OBJECT_META: {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
}


def structural_schema(openapi: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Convert a type of an OpenAPI document to a structural schema for a CRD.

    The result has every reference resolved and no descriptions, which are four fifths of the bytes.

    Args:
        openapi: the OpenAPI v3 document that defines the type.
        name: the type, such as `io.k8s.api.core.v1.PodSpec`.
    """
    schemas = openapi["components"]["schemas"]
    return _resolve({"$ref": _REF_PREFIX + name}, schemas)


def _resolve(
    schema: Mapping[str, Any], schemas: Mapping[str, Any], map_keys: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Resolve one schema; `map_keys` are the list-map keys if it is the item of a list."""
    reference = _referenced_type(schema)
    if reference:
        return _SUBSTITUTES.get(reference) or _resolve(schemas[reference], schemas, map_keys)
    resolved = {key: schema[key] for key in _KEPT_KEYWORDS if key in schema}
    if "properties" in schema:
        required = list(schema.get("required", ()))
        resolved["properties"] = {
            key: _resolve(inner, schemas) for key, inner in schema["properties"].items()
        }
        for key in map_keys:
            # The API server requires a default for an optional list-map key. Pods get the other defaults.
            if key not in required and "default" in schema["properties"].get(key, {}):
                default = schema["properties"][key]["default"]
                resolved["properties"][key] = {**resolved["properties"][key], "default": default}
        if required:
            resolved["required"] = required
    if "items" in schema:
        keys = tuple(schema.get("x-kubernetes-list-map-keys", ()))
        resolved["items"] = _resolve(schema["items"], schemas, keys)
    if isinstance(schema.get("additionalProperties"), dict):
        resolved["additionalProperties"] = _resolve(schema["additionalProperties"], schemas)
    return resolved


def _referenced_type(schema: Mapping[str, Any]) -> str:
    """The type that a schema refers to, directly or by an `allOf` that adds a default."""
    reference = schema.get("$ref") or next(
        (part["$ref"] for part in schema.get("allOf", ()) if "$ref" in part), ""
    )
    return str(reference).removeprefix(_REF_PREFIX)
