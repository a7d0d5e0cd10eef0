"""Which objects a changed object affects."""

from __future__ import annotations

import pytest
from tests.support.sandbox_objects import sandbox

from holdfast.controller.cache import ObjectCache
from holdfast.controller.event_handlers import affected_keys


@pytest.mark.parametrize(
    ("owner_kind", "keys"), [("SandboxTemplate", {("Sandbox", "ns", "a")}), ("Job", set())]
)
def test_network_policy_affects_sandboxes_of_its_template_only(owner_kind, keys):
    cache, box = ObjectCache(), sandbox()
    box["metadata"]["annotations"] = {"agents.x-k8s.io/sandbox-template-ref": "t"}
    cache.put(box)
    owner = {"kind": owner_kind, "name": "t", "uid": "u", "controller": True}
    metadata = {"name": "n", "namespace": "ns", "uid": "n-1", "ownerReferences": [owner]}
    found = set(affected_keys({"kind": "NetworkPolicy", "metadata": metadata}, cache))
    assert found - {("SandboxTemplate", "ns", "t")} == keys
