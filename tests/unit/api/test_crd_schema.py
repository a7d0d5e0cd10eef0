"""The CRD files: schemas of embedded types, agreement with the constants, and equal parts that stay equal."""

import pytest

from holdfast.api import EXTENSIONS_GROUP, GROUP, OperatingMode, ShutdownPolicy, build_crds
from holdfast.api.constants import VERSION

REF = "#/components/schemas/"
QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
PORT = "io.k8s.api.core.v1.ContainerPort"
CORE = {
    "io.k8s.api.core.v1.PodSpec": {
        "type": "object",
        "description": "A pod.",
        "required": ["ports"],
        "properties": {
            "ports": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["port", "protocol"],
                "items": {"default": {}, "allOf": [{"$ref": REF + PORT}]},
            }
        },
    },
    PORT: {
        "type": "object",
        "required": ["port"],
        "properties": {
            "port": {"type": "integer", "format": "int32", "default": 0},
            "protocol": {"type": "string", "default": "TCP"},
            "name": {"type": "string", "default": "unnamed"},
        },
    },
    "io.k8s.api.core.v1.PersistentVolumeClaimSpec": {
        "type": "object",
        "properties": {"limits": {"type": "object", "additionalProperties": {"$ref": REF + QUANTITY}}},
    },
    QUANTITY: {"type": "string"},
}
NETWORKING = {
    f"io.k8s.api.networking.v1.NetworkPolicy{direction}Rule": {
        "type": "object",
        "properties": {field: {"type": "string"}},
    }
    for direction, field in (("Ingress", "from"), ("Egress", "to"))
}


@pytest.fixture(scope="module")
def crds():
    built = build_crds({"components": {"schemas": CORE}}, {"components": {"schemas": NETWORKING}})
    return {crd["spec"]["names"]["kind"]: crd for crd in built}


def properties(crd, part):
    [version] = crd["spec"]["versions"]
    return version["schema"]["openAPIV3Schema"]["properties"][part]["properties"]


def test_groups_version_and_names_match_constants(crds):
    groups = {kind: crd["spec"]["group"] for kind, crd in crds.items()}
    assert groups == {
        "Sandbox": GROUP,
        "SandboxTemplate": EXTENSIONS_GROUP,
        "SandboxWarmPool": EXTENSIONS_GROUP,
        "SandboxClaim": EXTENSIONS_GROUP,
    }
    for kind, crd in crds.items():
        names = crd["spec"]["names"]
        assert crd["metadata"]["name"] == f"{names['plural']}.{groups[kind]}"
        assert (names["singular"], names["listKind"]) == (kind.lower(), f"{kind}List")
        assert [version["name"] for version in crd["spec"]["versions"]] == [VERSION]


def test_enums_match_constants(crds):
    spec = properties(crds["Sandbox"], "spec")
    assert set(spec["operatingMode"]["enum"]) == set(OperatingMode)
    assert set(spec["shutdownPolicy"]["enum"]) == set(ShutdownPolicy)


def test_embedded_types_have_schemas_of_cluster(crds):
    spec = properties(crds["SandboxTemplate"], "spec")
    assert spec["podTemplate"]["properties"]["spec"] == {
        "type": "object",
        "required": ["ports"],
        "properties": {
            "ports": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["port", "protocol"],
                "items": {
                    "type": "object",
                    "required": ["port"],
                    "properties": {
                        "port": {"type": "integer", "format": "int32"},
                        "protocol": {"type": "string", "default": "TCP"},
                        "name": {"type": "string"},
                    },
                },
            }
        },
    }
    claim = spec["volumeClaimTemplates"]["items"]["properties"]["spec"]
    assert claim["properties"]["limits"]["additionalProperties"]["x-kubernetes-int-or-string"] is True
    rules = spec["networkPolicy"]["properties"]
    assert {name: list(rule["items"]["properties"]) for name, rule in rules.items()} == {
        "ingress": ["from"],
        "egress": ["to"],
    }


def test_no_placeholder_is_left(crds):
    assert "x-holdfast-schema" not in repr(crds)


def test_kinds_share_schemas_of_same_fields(crds):
    specs = {kind: properties(crd, "spec") for kind, crd in crds.items()}
    assert specs["Sandbox"]["podTemplate"] == specs["SandboxTemplate"]["podTemplate"]
    claims = [specs[kind]["volumeClaimTemplates"] for kind in ("Sandbox", "SandboxTemplate", "SandboxClaim")]
    assert claims[0] == claims[1] == claims[2]
    kinds = ("Sandbox", "SandboxWarmPool", "SandboxClaim")
    conditions = [properties(crds[kind], "status")["conditions"] for kind in kinds]
    assert conditions[0] == conditions[1] == conditions[2]
