"""An update of a Sandbox gives the object that a new request with the new options would give."""

from datetime import UTC, datetime

import msgspec
import pytest

from holdfast.api import SandboxRequest
from holdfast.errors import UsageError
from holdfast.sandbox import HostSettings, build_update, from_request, merge_patch
from holdfast.sandbox.manifests import pod_manifest
from holdfast.sandbox.update import has_followed, pending_fields, resize_patch, update_sandbox

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PROXY = HostSettings(proxy_secret="proxy", ca_config_map="ca")


def sandbox(host_settings=PROXY, **fields):
    request = SandboxRequest(name="a", **fields)
    made = from_request.sandbox_manifest(
        request, namespace="ns", endpoint="https://gateway", host_settings=host_settings
    )
    made["metadata"]["uid"] = "u"
    return made


def applied(live, patch):
    """Apply a merge patch."""
    if not isinstance(patch, dict):
        return patch
    merged = {key: value for key, value in live.items() if patch.get(key, "") is not None}
    changes = {key: value for key, value in patch.items() if value is not None}
    return merged | {key: applied(merged.get(key) or {}, value) for key, value in changes.items()}


def updated(live, **changes):
    update = build_update(**changes)
    result = update_sandbox(live, update, host_settings=PROXY, now=NOW)
    return applied(live, result.patch), result.values


def comparable(made):
    """The order of variables has no meaning: none refers to another one."""
    containers = made["spec"]["podTemplate"]["spec"]["containers"]
    containers[0]["env"].sort(key=lambda each: each["name"])
    made["metadata"].get("annotations", {}).pop("holdfast.dev/last-used", None)
    return made


CASES = [
    ({}, {"cpu": "1"}, {"cpu": "1"}),
    ({"cpu": "1", "memory": "1Gi"}, {"cpu": None}, {"memory": "1Gi"}),
    ({"memory": "1Gi"}, {"memory": "32Mi"}, {"memory": "32Mi"}),
    ({}, {"image": "app:1"}, {"image": "app:1"}),
    ({"image": "app:1"}, {"image": None}, {}),
    ({"image": "app:1"}, {"image": "app:2"}, {"image": "app:2"}),
    ({"image": "app:1", "workspace": False}, {"image": None}, {"workspace": False}),
    ({"env": {"A": "1", "B": "2"}}, {"env": {"A": None, "C": "$(X)"}}, {"env": {"B": "2", "C": "$(X)"}}),
    ({}, {"env": {"HTTP_PROXY": "http://mine"}}, {"env": {"HTTP_PROXY": "http://mine"}}),
    ({"env": {"http_proxy": "http://mine"}}, {"env": {"http_proxy": None}}, {}),
    ({"env": {"SSL_CERT_FILE": "/mine"}}, {"env": {"SSL_CERT_FILE": None}}, {}),
    ({"env": {"HOLDFAST_RUNTIME_LISTEN": "::"}}, {"env": {"HOLDFAST_RUNTIME_LISTEN": None}}, {}),
    ({"env": {"HOLDFAST_RUNTIME_LISTEN": "::"}}, {"env": {"A": "1"}},
     {"env": {"HOLDFAST_RUNTIME_LISTEN": "::", "A": "1"}}),
    ({"labels": {"a": "1", "b": "2"}}, {"labels": {"a": None, "c": "3"}}, {"labels": {"b": "2", "c": "3"}}),
    ({}, {"idle_suspend_after": 60}, {"idle_suspend_after": 60}),
    ({"idle_suspend_after": 60}, {"idle_suspend_after": None}, {}),
    ({}, {"failed_pods": "Keep"}, {"failed_pods": "Keep"}),
]  # fmt: skip


@pytest.mark.parametrize(("before", "changes", "after"), CASES)
def test_updated_sandbox_equals_a_new_one_with_the_new_options(before, changes, after):
    made, values = updated(sandbox(**before), **changes)
    assert comparable(made) == comparable(sandbox(**after))
    defaults = msgspec.structs.asdict(SandboxRequest(name="a"))
    expected = {key: after.get(key, defaults[key]) for key in values}
    assert {key: defaults[key] if value is None else value for key, value in values.items()} == expected


@pytest.mark.parametrize(("before", "changes", "after"), CASES)
def test_repeated_update_changes_nothing(before, changes, after):
    del before
    update = build_update(**changes)
    result = update_sandbox(sandbox(**after), update, host_settings=PROXY, now=NOW)
    made = comparable(applied(sandbox(**after), result.patch))
    assert made == comparable(sandbox(**after))


def test_shutdown_time_is_set_from_now_and_removed():
    made, values = updated(sandbox(), shutdown_after=60)
    assert made["spec"]["shutdownTime"] == "2026-01-01T00:01:00Z"
    assert values == {"shutdown_after": 60, "shutdown_time": None}
    again, _ = updated(made, shutdown_after=None)
    assert "shutdownTime" not in again["spec"]
    assert "shutdownPolicy" not in again["spec"]


def test_changed_idle_time_counts_as_a_use():
    made, _ = updated(sandbox(idle_suspend_after=60), idle_suspend_after=90)
    assert made["metadata"]["annotations"]["holdfast.dev/last-used"] == "2026-01-01T00:00:00Z"
    result = update_sandbox(made, build_update(idle_suspend_after=90), host_settings=PROXY, now=NOW)
    assert result.patch == {}


def test_pod_of_another_client_keeps_its_own_security_and_variables():
    foreign = sandbox(image="app:1")
    foreign["metadata"]["labels"] = {}
    container = foreign["spec"]["podTemplate"]["spec"]["containers"][0]
    container["env"] = [{"name": "REF", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]
    before = container["securityContext"]
    made, _ = updated(foreign, image=None, env={"A": "1"})
    (container,) = made["spec"]["podTemplate"]["spec"]["containers"]
    assert container["securityContext"] == before
    assert [each["name"] for each in container["env"]] == ["REF", "A"]


def test_variables_of_holdfast_cannot_be_changed():
    for change in ({"HOLDFAST_SANDBOX": "x"}, {"HOLDFAST_TLS_KEY": None}):
        with pytest.raises(UsageError, match="set by holdfast"):
            updated(sandbox(), env=change)


def pod_of(made, **status):
    pod = pod_manifest(made)
    container = pod["spec"]["containers"][0]
    reported = {"name": container["name"], "resources": container["resources"], **status}
    return {**pod, "status": {"containerStatuses": [reported]}}


def test_pending_fields_are_those_in_which_the_pod_differs():
    pod = pod_of(sandbox())
    assert pending_fields(sandbox(), pod) == []
    changed = sandbox(cpu="1", memory="1Gi", image="app:1", env={"A": "1"}, labels={"a": "b"})
    assert pending_fields(changed, pod) == ["cpu", "env", "image", "labels", "memory"]
    assert pending_fields(sandbox(), None) == ["cpu", "env", "image", "labels", "memory"]


def test_limit_is_pending_until_the_kubelet_reports_it():
    made = sandbox(cpu="1000m")
    assert pending_fields(made, pod_of(made, resources={"limits": {"cpu": "1", "memory": "2048Mi"}})) == []
    assert pending_fields(made, pod_of(made, resources={"limits": {"cpu": "2", "memory": "2Gi"}})) == ["cpu"]
    assert pending_fields(made, pod_of(made, resources={})) == []


@pytest.mark.parametrize(
    ("condition", "failed", "observed"),
    [
        ({"type": "PodResizePending", "reason": "Infeasible", "message": "too much"}, "too much", ""),
        ({"type": "PodResizeInProgress", "reason": "Error", "message": "no"}, "no", ""),
        ({"type": "PodResizePending", "reason": "Deferred", "message": "later"}, "", "later"),
        ({"type": "PodResizeInProgress", "reason": "Error", "message": "old", "observedGeneration": 1}, "",
         "the kubelet has not applied it yet"),
        ({"type": "Ready", "reason": "Error", "message": "x"}, "", "the kubelet has not applied it yet"),
    ],
)  # fmt: skip
def test_resize_conditions_decide_whether_to_wait(condition, failed, observed):
    pod = pod_of(sandbox(cpu="1"))
    pod["metadata"]["generation"] = 2
    pod["status"]["conditions"] = [{"status": "True", **condition}]
    result = has_followed(sandbox(cpu="2"), pod, awaited=["cpu"])
    assert (result.done, result.failed, result.observed) == (False, failed, observed)
    assert has_followed(sandbox(cpu="2"), pod, awaited=["memory"]).done
    assert has_followed(sandbox(cpu="2"), None, awaited=["cpu"]).failed


def test_resize_patch_names_exactly_one_pod():
    patch = resize_patch("u", [("sandbox", {"limits": {"cpu": "1"}})])
    assert patch["metadata"] == {"uid": "u"}
    assert merge_patch({}, patch["spec"]) == {
        "containers": [{"name": "sandbox", "resources": {"limits": {"cpu": "1"}}}]
    }


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "no changes given"), ({"memroy": "1Gi"}, "did you mean memory"), ({"memory": "1Mi"}, "minimum"),
        ({"labels": {"kubernetes.io/x": "1"}}, "reserved"), ({"env": {"A": 1}}, "env"),
        ({"cpu": ""}, "cpu"), ({"idle_suspend_after": -1}, "idle_suspend_after"), ({"image": "ä"}, "image"),
    ],
)  # fmt: skip
def test_invalid_updates_name_the_option(changes, words):
    with pytest.raises(UsageError, match=words):
        build_update(**changes)
