"""The four CRDs of the published sandbox API, completed for one cluster.

`crds/*.yaml` contains them. Names, fields, defaults, validation, printer columns and subresources match the
published CRDs, so that clients and controllers of either set work with the other. The schemas of embedded
types (PodSpec, PersistentVolumeClaimSpec, network policy rules) come from the cluster's own OpenAPI document:
the API server then validates them and names the invalid field, whatever its version.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_CRD_DIRECTORY = Path(__file__).parent / "crds"
_CRD_FILES = ("sandbox.yaml", "sandboxtemplate.yaml", "sandboxwarmpool.yaml", "sandboxclaim.yaml")
# In the YAML files, `{"x-holdfast-schema": TYPE}` stands for the schema of a Kubernetes type.
_PLACEHOLDER = "x-holdfast-schema"


def build_crds(core: Mapping[str, Any], networking: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Build the manifests of the CRDs.

    Args:
        core: the API server's OpenAPI document at `/openapi/v3/api/v1`.
        networking: its document at `/openapi/v3/apis/networking.k8s.io/v1`.

    Returns:
        The CRDs of Sandbox, SandboxTemplate, SandboxWarmPool and SandboxClaim.
    """
    import yaml

    schemas = {**networking["components"]["schemas"], **core["components"]["schemas"]}
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    crds = [yaml.load((_CRD_DIRECTORY / name).read_bytes(), Loader=loader) for name in _CRD_FILES]  # noqa: S506 (safe, and in C if possible)
    return [_replace_placeholders(crd, schemas) for crd in crds]


def _replace_placeholders(value: Any, schemas: Mapping[str, Any]) -> Any:
    """Return a part of a CRD with the schemas of the Kubernetes types that it names."""
    if isinstance(value, list):
        return [_replace_placeholders(item, schemas) for item in value]
    if not isinstance(value, dict):
        return value
    if _PLACEHOLDER in value:
        return structural_schema(schemas, value[_PLACEHOLDER])
    return {key: _replace_placeholders(inner, schemas) for key, inner in value.items()}


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


def structural_schema(schemas: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Convert a Kubernetes type to a structural schema for a CRD.

    The result has every reference resolved and no descriptions, which are four fifths of the bytes.

    Args:
        schemas: the schemas of OpenAPI v3 documents, by type.
        name: the type, such as `io.k8s.api.core.v1.PodSpec`.
    """
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
