"""The four CRDs of the published sandbox API, made for the cluster that they are put into.

Same names, fields, defaults, validation, columns and subresources as the published ones, so that either set
serves the other's clients and controllers. Not here: putting them into a cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.sandbox.api import EXTENSIONS_GROUP, GROUP, VERSION
from holdfast.sandbox.structural import structural

if TYPE_CHECKING:
    from collections.abc import Mapping

_TEXT: dict[str, Any] = {"type": "string"}
_TEXTS: dict[str, Any] = {"type": "object", "additionalProperties": {"type": "string"}}
_TIME: dict[str, Any] = {"type": "string", "format": "date-time"}
_NAMED: dict[str, Any] = {"type": "object", "required": ["name"], "properties": {"name": _TEXT}}
_POD_METADATA: dict[str, Any] = {"type": "object", "properties": {"labels": _TEXTS, "annotations": _TEXTS}}
_CLAIM_METADATA: dict[str, Any] = {
    "type": "object",
    "properties": {"name": _TEXT, "labels": _TEXTS, "annotations": _TEXTS},
}
_READY = ".status.conditions[?(@.type=='Ready')]"
_ADDRESSES: dict[str, Any] = {"type": "array", "items": _TEXT}
_IMMUTABLE_CLAIMS: list[dict[str, str]] = [
    {
        "rule": "has(oldSelf.volumeClaimTemplates) ? has(self.volumeClaimTemplates) && "
        "oldSelf.volumeClaimTemplates == self.volumeClaimTemplates : !has(self.volumeClaimTemplates)",
        "message": "volumeClaimTemplates cannot be changed, added or removed",
        "fieldPath": ".volumeClaimTemplates",
    }
]


def crds(core: Mapping[str, Any], networking: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All four, from what the server says at /openapi/v3/api/v1 and /openapi/v3/apis/networking.k8s.io/v1."""
    blueprint = _blueprint(core)
    return [
        _sandbox(blueprint),
        _template(blueprint, networking),
        _warm_pool(),
        _claim(blueprint["volumeClaimTemplates"]),
    ]


def _blueprint(core: Mapping[str, Any]) -> dict[str, Any]:
    """What a sandbox and a template have in common."""
    return {
        "podTemplate": {
            "type": "object",
            "required": ["spec"],
            "properties": {
                "metadata": _POD_METADATA,
                "spec": structural(core, "io.k8s.api.core.v1.PodSpec"),
            },
        },
        "volumeClaimTemplates": {
            "type": "array",
            "x-kubernetes-list-type": "atomic",
            "items": {
                "type": "object",
                "required": ["spec"],
                "properties": {
                    "metadata": _CLAIM_METADATA,
                    "spec": structural(core, "io.k8s.api.core.v1.PersistentVolumeClaimSpec"),
                },
            },
        },
        "service": {"type": "boolean"},
    }


def _sandbox(blueprint: dict[str, Any]) -> dict[str, Any]:
    spec = {
        "type": "object",
        "required": ["podTemplate"],
        "x-kubernetes-validations": _IMMUTABLE_CLAIMS,
        "properties": {
            **blueprint,
            "shutdownTime": _TIME,
            "shutdownPolicy": _choice("Delete", "Retain", default="Retain"),
            "operatingMode": _choice("Running", "Suspended", default="Running"),
        },
    }
    status = {
        "serviceFQDN": _TEXT,
        "service": _TEXT,
        "conditions": _conditions(),
        "selector": _TEXT,
        "podIPs": _ADDRESSES,
        "nodeName": _TEXT,
    }
    made = _crd(GROUP, "Sandbox", "sandboxes", "sandbox", spec, status)
    return _with_columns(made, Ready=f"{_READY}.status", Reason=f"{_READY}.reason")


def _template(blueprint: dict[str, Any], networking: Mapping[str, Any]) -> dict[str, Any]:
    rules = {
        way: {
            "type": "array",
            "items": structural(networking, f"io.k8s.api.networking.v1.NetworkPolicy{way.capitalize()}Rule"),
        }
        for way in ("ingress", "egress")
    }
    spec = {
        "type": "object",
        "required": ["podTemplate"],
        "properties": {
            **blueprint,
            "networkPolicy": {"type": "object", "properties": rules},
            "networkPolicyManagement": _choice("Managed", "Unmanaged", default="Managed"),
            "envVarsInjectionPolicy": _choice("Allowed", "Overrides", "Disallowed", default="Disallowed"),
            "volumeClaimTemplatesPolicy": _choice("Disallowed", "Allowed", "Overrides", default="Disallowed"),
        },
    }
    return _crd(EXTENSIONS_GROUP, "SandboxTemplate", "sandboxtemplates", "sandboxtemplate", spec, None)


def _warm_pool() -> dict[str, Any]:
    spec = {
        "type": "object",
        "required": ["sandboxTemplateRef"],
        "properties": {
            "replicas": {"type": "integer", "format": "int32", "minimum": 0, "default": 1},
            "sandboxTemplateRef": _NAMED,
            "updateStrategy": {
                "type": "object",
                "properties": {"type": _choice("Recreate", "OnReplenish", default="OnReplenish")},
            },
        },
    }
    count = {"type": "integer", "format": "int32"}
    status = {
        "replicas": count,
        "readyReplicas": count,
        "selector": _TEXT,
        "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
        # Ours, and only there while the server refuses what the pool needs.
        "conditions": _conditions(),
    }
    made = _crd(EXTENSIONS_GROUP, "SandboxWarmPool", "sandboxwarmpools", "swp", spec, status)
    made["spec"]["versions"][0]["subresources"]["scale"] = {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    return _with_columns(made, "integer", Ready=".status.readyReplicas", Desired=".spec.replicas")


def _claim(claim_templates: dict[str, Any]) -> dict[str, Any]:
    variable = {
        "type": "object",
        "required": ["name", "value"],
        "properties": {"name": _TEXT, "value": _TEXT, "containerName": _TEXT},
    }
    lifecycle = {
        "shutdownTime": _TIME,
        "ttlSecondsAfterFinished": {"type": "integer", "format": "int32", "minimum": 0},
        "shutdownPolicy": _choice("Delete", "DeleteForeground", "Retain", default="Retain"),
    }
    spec = {
        "type": "object",
        "required": ["warmPoolRef"],
        "properties": {
            "warmPoolRef": _NAMED,
            "lifecycle": {"type": "object", "properties": lifecycle},
            "additionalPodMetadata": _POD_METADATA,
            "env": {"type": "array", "x-kubernetes-list-type": "atomic", "items": variable},
            "volumeClaimTemplates": claim_templates,
        },
    }
    status = {
        "conditions": _conditions(),
        "sandbox": {"type": "object", "properties": {"name": _TEXT, "podIPs": _ADDRESSES}},
    }
    made = _crd(EXTENSIONS_GROUP, "SandboxClaim", "sandboxclaims", "sandboxclaim", spec, status)
    return _with_columns(
        made, Ready=f"{_READY}.status", Sandbox=".status.sandbox.name", Reason=f"{_READY}.reason"
    )


def _crd(
    group: str, kind: str, plural: str, short: str, spec: dict[str, Any], status: dict[str, Any] | None
) -> dict[str, Any]:
    properties: dict[str, Any] = {
        "apiVersion": _TEXT,
        "kind": _TEXT,
        "metadata": {"type": "object"},
        "spec": spec,
    }
    version: dict[str, Any] = {"name": VERSION, "served": True, "storage": True}
    if status is not None:
        properties["status"] = {"type": "object", "properties": status}
        version["subresources"] = {"status": {}}
    version["schema"] = {
        "openAPIV3Schema": {"type": "object", "required": ["spec"], "properties": properties}
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": [short],
            },
            "versions": [version],
        },
    }


def _with_columns(made: dict[str, Any], kind: str = "string", **paths: str) -> dict[str, Any]:
    """What `kubectl get` shows of it, after the name and before the age."""
    columns = [{"name": name, "type": kind, "jsonPath": path} for name, path in paths.items()]
    age = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
    made["spec"]["versions"][0]["additionalPrinterColumns"] = [*columns, age]
    return made


def _choice(*values: str, default: str) -> dict[str, Any]:
    return {"type": "string", "enum": list(values), "default": default}


def _conditions() -> dict[str, Any]:
    """Conditions as every API of Kubernetes has them."""
    label = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
    name = rf"^({label}(\.{label})*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
    properties = {
        "type": {"type": "string", "maxLength": 316, "pattern": name},
        "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
        "reason": {
            "type": "string",
            "minLength": 1,
            "maxLength": 1024,
            "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
        },
        "message": {"type": "string", "maxLength": 32768},
        "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
        "lastTransitionTime": _TIME,
    }
    required = ["lastTransitionTime", "message", "reason", "status", "type"]
    return {"type": "array", "items": {"type": "object", "required": required, "properties": properties}}
