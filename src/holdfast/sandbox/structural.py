"""The cluster's own description of a type, as a schema that a CRD may carry.

A sandbox embeds a pod's spec and a claim's spec. Their schemas are taken from the API server that the CRD is
for, so that a mistake in them is refused there with the field named, and they never lag behind its version.
Descriptions are left out: they are four fifths of the bytes. Not here: the CRDs themselves (crds.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_KEPT = (
    "type", "format", "enum", "pattern", "nullable", "minimum", "maximum", "minLength", "maxLength",
    "minItems", "maxItems", "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type",
    "x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields",
)  # fmt: skip
_REFERENCE = "#/components/schemas/"
_INT_OR_STRING = (
    "io.k8s.apimachinery.pkg.api.resource.Quantity",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
)
_OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_NUMBER = r"(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
_QUANTITY = rf"^(\+|-)?{_NUMBER}(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?{_NUMBER}))?$"


def structural(openapi: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The schema of one type, with every reference resolved."""
    return _Resolver(openapi["components"]["schemas"]).named(name)


class _Resolver:
    def __init__(self, schemas: Mapping[str, Any]) -> None:
        self._schemas = schemas

    def named(self, name: str) -> dict[str, Any]:
        if name in _INT_OR_STRING:
            schema: dict[str, Any] = {
                "anyOf": [{"type": "integer"}, {"type": "string"}],
                "x-kubernetes-int-or-string": True,
            }
            return schema | ({"pattern": _QUANTITY} if name == _INT_OR_STRING[0] else {})
        if name == _OBJECT_META:
            return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        return self.schema(self._schemas[name])

    def schema(self, found: Mapping[str, Any], keys: tuple[str, ...] = ()) -> dict[str, Any]:
        """One schema; `keys` are those by which the list around it tells its entries apart."""
        reference = _referred(found)
        if reference in _INT_OR_STRING or reference == _OBJECT_META:
            return self.named(reference)
        if reference:
            return self.schema(self._schemas[reference], keys)
        made = {key: found[key] for key in _KEPT if key in found}
        if "properties" in found:
            required = list(found.get("required", ()))
            made["properties"] = {
                name: self._property(inner, has_default=name in keys and name not in required)
                for name, inner in found["properties"].items()
            }
            if required:
                made["required"] = required
        if "items" in found:
            made["items"] = self.schema(found["items"], tuple(found.get("x-kubernetes-list-map-keys", ())))
        if isinstance(found.get("additionalProperties"), dict):
            made["additionalProperties"] = self.schema(found["additionalProperties"])
        return made

    def _property(self, found: Mapping[str, Any], *, has_default: bool) -> dict[str, Any]:
        """Defaults stay only where a list needs them to tell its entries apart: the pod gets the others."""
        made = self.schema(found)
        if has_default and "default" in found:
            made["default"] = found["default"]
        return made


def _referred(found: Mapping[str, Any]) -> str:
    """The type that a schema only names, directly or wrapped so that it could have a default."""
    reference = found.get("$ref") or next(
        (part["$ref"] for part in found.get("allOf", ()) if "$ref" in part), ""
    )
    return str(reference).removeprefix(_REFERENCE)
