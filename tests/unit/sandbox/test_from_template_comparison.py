"""A sandbox matches its template whichever client wrote the two; a change of the template is seen."""

from __future__ import annotations

import copy
from datetime import timedelta

import pytest
from tests.support.warm_pool_objects import NOW, name_sequence, pool, template, warm_sandbox

from holdfast.sandbox.claim.adoption import warm_candidates
from holdfast.sandbox.from_template import has_template_spec
from holdfast.sandbox.warmpool import ObservedWarmPool, reconcile_warm_pool

HASHES = ("agents.x-k8s.io/sandbox-template-hash", "agents.x-k8s.io/sandbox-pod-template-hash")
POD = {
    "hostNetwork": False,
    "nodeSelector": {"disk": ""},
    "containers": [
        {
            "name": "main",
            "image": "app:1",
            "env": [
                {"name": "EMPTY", "value": ""},
                {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
            ],
            "resources": {"limits": {"memory": "1024Mi", "cpu": "0.5"}, "requests": {"cpu": 1}},
            "readinessProbe": {"initialDelaySeconds": 0, "exec": {"command": ["true"]}},
            "stdin": False,
        },
        {"name": "side", "image": "x"},
    ],
    "volumes": [{"name": "cache", "emptyDir": {"sizeLimit": "2048Ki"}}],
}
VOLUMES = [
    {
        "metadata": {"name": "w"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1024Mi"}}},
    }
]


def written_in_yaml(**changes):
    return template(podTemplate={"spec": copy.deepcopy(POD)}, volumeClaimTemplates=copy.deepcopy(VOLUMES)) | {
        "kind": "SandboxTemplate",
        **changes,
    }


def written_in_go(name="a", **options):
    """A member of a pool as the published controller creates it for `written_in_yaml`."""
    member = warm_sandbox(name, template_object=written_in_yaml(), **options)
    pod = member["spec"]["podTemplate"]["spec"]
    del pod["hostNetwork"]
    main, side = pod["containers"]
    main["env"] = [
        {"name": "EMPTY"},
        {
            "name": "CPU",
            "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "0"}},
        },
    ]
    main["resources"] = {"limits": {"memory": "1Gi", "cpu": "500m"}, "requests": {"cpu": "1"}}
    main["readinessProbe"] = {"exec": {"command": ["true"]}}
    del main["stdin"]
    side["resources"] = {}
    pod["volumes"][0]["emptyDir"]["sizeLimit"] = "2Mi"
    member["spec"]["volumeClaimTemplates"][0]["metadata"]["creationTimestamp"] = None
    member["spec"]["volumeClaimTemplates"][0]["spec"]["resources"] = {"requests": {"storage": "1Gi"}}
    member["metadata"]["labels"] |= dict.fromkeys(HASHES, "12345678")
    return member


def test_member_written_in_go_matches():
    assert has_template_spec(written_in_go(), written_in_yaml())


def test_pool_with_strategy_recreate_keeps_members_written_in_go():
    members, orphan = (written_in_go("a"), written_in_go("b")), written_in_go("c")
    orphan["metadata"]["ownerReferences"] = []
    decision = reconcile_warm_pool(
        ObservedWarmPool(
            now=NOW + timedelta(seconds=10),
            pool=pool(replicas=3, updateStrategy={"type": "Recreate"}),
            template=written_in_yaml(),
            sandboxes=members,
            orphans=(orphan,),
        ),
        name_sequence(),
    )
    assert [(type(one).__name__, one.target.name) for one in decision.actions] == [("Adopt", "c")]


def test_starting_member_written_in_go_can_be_adopted():
    starting = written_in_go(ready=False)
    assert warm_candidates([starting], pool(), written_in_yaml(), NOW) == [starting]


def with_change(change):
    changed = written_in_yaml()
    change(changed["spec"], changed["spec"]["podTemplate"]["spec"])
    return changed


@pytest.mark.parametrize(
    "change",
    [
        lambda spec, pod: pod["containers"][0].update(image="app:2"),
        lambda spec, pod: pod["containers"][0]["env"][0].update(value="x"),
        lambda spec, pod: pod["containers"][0]["resources"]["limits"].update(memory="1Mi"),
        lambda spec, pod: pod["containers"][1].update(resources={"limits": {"cpu": "1"}}),
        lambda spec, pod: pod.update(hostNetwork=True),
        lambda spec, pod: pod.update(enableServiceLinks=False),
        lambda spec, pod: pod.update(automountServiceAccountToken=True),
        lambda spec, pod: pod["nodeSelector"].clear(),
        lambda spec, pod: pod["volumes"][0].update(emptyDir={}),
        lambda spec, pod: spec.update(service=False),
        lambda spec, pod: spec.update(volumeClaimTemplates=[]),
        lambda spec, pod: spec["volumeClaimTemplates"][0]["spec"].update(storageClassName=""),
        lambda spec, pod: spec["volumeClaimTemplates"][0]["spec"].update(selector={}),
        lambda spec, pod: spec["volumeClaimTemplates"][0]["metadata"].update(name="v"),
    ],
)
def test_change_of_the_template_is_seen(change):
    assert not has_template_spec(written_in_go(), with_change(change))


def test_template_edit_replaces_the_remembered_comparison():
    member, before = written_in_go(), written_in_yaml()
    assert has_template_spec(member, before)
    after = with_change(lambda spec, pod: pod["containers"][0].update(image="app:2"))
    after["metadata"]["resourceVersion"] = "8"
    assert not has_template_spec(member, after)
    assert has_template_spec(member, before)


class CountedSpec(dict):
    """A spec that counts how often its pod template is read."""

    reads = 0

    def __getitem__(self, key):
        self.reads += key == "podTemplate"
        return super().__getitem__(key)


def test_template_is_evaluated_once_for_all_members():
    counted = written_in_yaml()
    counted["spec"] = spec = CountedSpec(counted["spec"])
    assert has_template_spec(written_in_go("a"), counted)
    first = spec.reads
    assert first > 0
    assert all(has_template_spec(written_in_go(f"b-{number}"), counted) for number in range(20))
    assert spec.reads == first
