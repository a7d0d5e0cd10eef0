"""A sandbox made from a template: for a pool, or straight for a claim.

Not here: what a claim may change (claim_changes.py) and when a sandbox is made (pool.py, claim.py).
"""

from __future__ import annotations

import copy
import hashlib
import json
from typing import TYPE_CHECKING, Any

from holdfast.sandbox.api import (
    API_VERSION,
    LAUNCH_TYPE,
    REPLACED,
    TEMPLATE_HASH,
    TEMPLATE_REF,
    TEMPLATE_REF_HASH,
    WARM_POOL,
)
from holdfast.sandbox.names import name_hash
from holdfast.sandbox.ownership import owner_reference

if TYPE_CHECKING:
    from collections.abc import Mapping

_SHARED = ("podTemplate", "volumeClaimTemplates", "service")
_HASH_LENGTH = 12


def template_hash(template: Mapping[str, Any]) -> str:
    """Changes when pods made from the template would be others; labels and annotations do not count."""
    spec = template["spec"]
    counted = {key: spec.get(key) for key in _SHARED} | {"podTemplate": spec["podTemplate"]["spec"]}
    text = json.dumps(counted, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_LENGTH]


def sandbox_spec(template: Mapping[str, Any]) -> dict[str, Any]:
    """The spec of a sandbox of this template; without a service account's token unless the template asks."""
    spec = {key: copy.deepcopy(template["spec"][key]) for key in _SHARED if key in template["spec"]}
    spec["podTemplate"]["spec"].setdefault("automountServiceAccountToken", False)
    spec["podTemplate"]["metadata"] = template_metadata(template)
    return spec


def template_metadata(template: Mapping[str, Any]) -> dict[str, Any]:
    """The pod metadata of a sandbox of this template; the label by which its network policy finds the pod."""
    given = template["spec"]["podTemplate"].get("metadata") or {}
    found_by = {TEMPLATE_REF_HASH: name_hash(template["metadata"]["name"])}
    return copy.deepcopy({**given, "labels": {**(given.get("labels") or {}), **found_by}})


def warm(
    name: str, pool: Mapping[str, Any], template: Mapping[str, Any], *, replaced: int = 0
) -> dict[str, Any]:
    """A sandbox that waits in a pool, and how many ended in whose place it is."""
    labels = {
        WARM_POOL: name_hash(pool["metadata"]["name"]),
        TEMPLATE_HASH: template_hash(template),
        LAUNCH_TYPE: "warm",
    }
    spec = sandbox_spec(template)
    # The pool's selector finds pods by it too: autoscalers measure those that wait.
    spec["podTemplate"]["metadata"]["labels"][WARM_POOL] = labels[WARM_POOL]
    made = _sandbox(name, pool, template, labels, spec)
    made["metadata"]["annotations"] |= {REPLACED: str(replaced)} if replaced else {}
    return made


def cold(
    claim: Mapping[str, Any], template: Mapping[str, Any], spec: Mapping[str, Any], labels: dict[str, str]
) -> dict[str, Any]:
    """A sandbox for one claim, with the claim's name."""
    return _sandbox(claim["metadata"]["name"], claim, template, labels | {LAUNCH_TYPE: "cold"}, spec)


def _sandbox(
    name: str,
    owner: Mapping[str, Any],
    template: Mapping[str, Any],
    labels: dict[str, str],
    spec: Mapping[str, Any],
) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": "Sandbox",
        "metadata": {
            "name": name,
            "namespace": owner["metadata"]["namespace"],
            "labels": labels,
            "annotations": {TEMPLATE_REF: template["metadata"]["name"]},
            "ownerReferences": [owner_reference(owner)],
        },
        "spec": dict(spec),
    }
