"""The parts that need no server: comparing, conditions, builders, stamps, telemetry, redaction, imports."""

import base64
import json
import subprocess
import sys

import pytest
from hypothesis import given, strategies as st
from kubernetes import client

from holdfast import kube
from holdfast.errors import InvalidArgumentError
from holdfast.kube import (
    docker_registry_secret,
    env_secret,
    job,
    job_complete,
    namespace_active,
    pod,
    pod_ready,
    pod_succeeded,
    prometheus,
    rollout_complete,
)
from holdfast.kube.client import ClientCredentials, credentials_for, run_sync
from holdfast.kube.idempotency import (
    OPERATION_ID_ANNOTATION,
    generate_name,
    with_new_generated_name,
    with_operation_id,
)
from holdfast.kube.manifest_diff import differences, parse_quantity

MOUNTS = [{"name": "v", "path": "/a"}, {"name": "v", "path": "/b"}]
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(plain)
def test_object_equals_itself(value):
    assert differences(value, value) == []


@given(st.dictionaries(st.sampled_from("abc"), plain), st.dictionaries(st.sampled_from("xyz"), plain))
def test_server_defaults_are_not_a_difference(sent, defaults):
    assert differences(sent, {**defaults, **sent}) == []


@given(plain, plain)
def test_comparison_never_raises(sent, live):
    assert len(differences(sent, live)) <= 20


@pytest.mark.parametrize(
    ("sent", "live", "paths"),
    [
        ({"a": 1}, {"a": 2}, ["a"]),
        ({"a": {"b": "x"}}, {}, ["a.b"]),
        ({"a": None, "b": [], "c": {}, "d": ""}, {}, []),
        ({"l": [{"name": "x", "v": 1}]}, {"l": [{"name": "added"}, {"name": "x", "v": 1, "default": 2}]}, []),
        ({"l": [{"name": "x", "v": 1}]}, {"l": [{"name": "x", "v": 2}]}, ["l[x].v"]),
        ({"l": [{"key": "k"}]}, {"l": [{"key": "o"}, {"key": "k", "op": "Exists"}]}, []),
        ({"l": [{"key": "k"}]}, {"l": [{"key": "o"}]}, ["l[0]"]),
        ({"l": [{"key": "k", "status": "A"}]}, {"l": [{"key": "k", "status": "B"}]}, ["l[0]"]),
        ({"l": ["a", "b"]}, {"l": ["b", "a"]}, ["l"]),
        ({"limits": {"cpu": "0.5"}}, {"limits": {"cpu": "500m"}}, []),
        ({"hard": {"cpu": 1}}, {"hard": {"cpu": "1"}}, []),
        ({"requests": {"memory": "1024Mi"}}, {"requests": {"memory": "1Gi"}}, []),
        ({"requests": {"memory": "1G"}}, {"requests": {"memory": "1Gi"}}, ["requests.memory"]),
        ({"limits": [{"max": {"cpu": "1"}}]}, {"limits": [{"max": {"cpu": "1000m"}}]}, []),
        ({"emptyDir": {"sizeLimit": "1024Mi"}}, {"emptyDir": {"sizeLimit": "1Gi"}}, []),
        ({"data": {"v": "1.10"}}, {"data": {"v": "1.1"}}, ["data.v"]),
        ({"data": {"v": "1e3"}}, {"data": {"v": "1000"}}, ["data.v"]),
        ({"data": {"storage": "1.10"}}, {"data": {"storage": "1.1"}}, ["data.storage"]),
        ({"data": {"k": ""}}, {"data": {"k": "eA=="}}, ["data.k"]),
        ({"data": {"k": ""}}, {"data": {}}, ["data.k"]),
        ({"env": [{"name": "A", "value": ""}]}, {"env": [{"name": "A"}]}, []),
        ({"env": [{"name": "A", "value": ""}]}, {"env": [{"name": "A", "value": "x"}]}, ["env[A].value"]),
        ({"mounts": MOUNTS}, {"mounts": [*MOUNTS, {"name": "token", "path": "/t"}]}, []),
        ({"mounts": MOUNTS}, {"mounts": MOUNTS[:1]}, ["mounts[1]"]),
        ({"mounts": MOUNTS[1:]}, {"mounts": MOUNTS}, []),
        ({"flag": True}, {"flag": 1}, ["flag"]),
        ({"metadata": {"resourceVersion": "1", "uid": "x"}}, {"metadata": {"resourceVersion": "2"}}, []),
        ({"kind": "Secret", "stringData": {"k": "v"}}, {"kind": "Secret", "data": {"k": "dg=="}}, []),
        ({"kind": "Secret", "stringData": {"k": "w"}}, {"kind": "Secret", "data": {"k": "dg=="}}, ["data.k"]),
    ],
    ids=repr,
)
def test_differences(sent, live, paths):
    assert differences(sent, live) == paths


DNS = {"ports": [{"port": 53, "protocol": "UDP"}]}


@pytest.mark.parametrize(
    ("sent", "live", "is_same"),
    [
        ({"egress": []}, {}, True),
        ({"egress": []}, {"egress": [{}]}, False),
        ({"egress": [{}]}, {"egress": [{}]}, True),
        ({"egress": [{}]}, {"egress": [DNS]}, False),
        ({"egress": [DNS]}, {"egress": [DNS, {}]}, False),
        (
            {"egress": [{"ports": [{"port": 1}]}]},
            {"egress": [{"ports": [{"port": 1, "protocol": "TCP"}]}]},
            True,
        ),
        ({"ingress": [{"from": [{"podSelector": {}}]}]}, {"ingress": [{}]}, False),
        (
            {"ingress": [{"from": [{"podSelector": {"matchLabels": {}}}]}]},
            {"ingress": [{"from": [{"podSelector": {}}]}]},
            True,
        ),
        ({"policyTypes": None}, {"policyTypes": ["Ingress"]}, True),
        ({"policyTypes": ["Ingress", "Egress"]}, {"policyTypes": ["Ingress"]}, False),
    ],
    ids=repr,
)
def test_network_policies_are_equal_only_with_the_same_rules(sent, live, is_same):
    kind = {"kind": "NetworkPolicy"}
    live = {"podSelector": {}, "policyTypes": ["Ingress", *(["Egress"] if "egress" in live else [])], **live}
    assert (differences({**kind, "spec": sent}, {**kind, "spec": live}) == []) is is_same


@pytest.mark.parametrize(
    ("text", "same"), [("1e3", "1k"), ("100m", "0.1"), ("2Ki", "2048"), (".5", "500m"), ("1E", "1000P")]
)
def test_quantities(text, same):
    assert parse_quantity(text) == parse_quantity(same)


@pytest.mark.parametrize("text", ["", "abc", "1x", "1 Gi", None, [], "9" * 60, True])
def test_invalid_quantities(text):
    assert parse_quantity(text) is None


def obj(kind="Pod", generation=1, want=1, **status):
    return {
        "kind": kind,
        "metadata": {"generation": generation},
        "spec": {"replicas": want},
        "status": status,
    }


def true(kind, **rest):
    return {"conditions": [{"type": kind, "status": "True", **rest}]}


def stuck(generation):
    row = true("Progressing", reason="ProgressDeadlineExceeded")
    return obj("Deployment", generation, observedGeneration=1, **row)


@pytest.mark.parametrize(
    ("until", "value", "expected"),
    [
        (pod_ready, None, "waits"),
        (pod_ready, obj(phase="Running", **true("Ready")), "done"),
        (pod_ready, obj(phase="Pending"), "waits"),
        (pod_ready, obj(phase="Failed", reason="Evicted"), "failed"),
        (pod_ready, obj(phase="Succeeded"), "failed"),
        (pod_succeeded, obj(phase="Succeeded"), "done"),
        (pod_succeeded, obj(phase="Failed"), "failed"),
        (job_complete, obj("Job", **true("Complete")), "done"),
        (job_complete, obj("Job", **true("Failed", reason="BackoffLimitExceeded")), "failed"),
        (job_complete, obj("Job", succeeded=1), "waits"),
        (namespace_active, obj("Namespace", phase="Active"), "done"),
        (namespace_active, obj("Namespace", phase="Terminating"), "waits"),
        (
            rollout_complete,
            obj("Deployment", observedGeneration=1, updatedReplicas=1, availableReplicas=1, replicas=1),
            "done",
        ),
        (
            rollout_complete,
            obj("Deployment", 2, observedGeneration=1, updatedReplicas=1, availableReplicas=1, replicas=1),
            "waits",
        ),
        (
            rollout_complete,
            obj("Deployment", observedGeneration=1, updatedReplicas=1, availableReplicas=1, replicas=2),
            "waits",
        ),
        (rollout_complete, obj("Deployment", 1, 0, observedGeneration=1), "done"),
        (rollout_complete, stuck(1), "failed"),
        (rollout_complete, stuck(2), "waits"),
        (
            rollout_complete,
            obj("StatefulSet", 1, 2, observedGeneration=1, updatedReplicas=2, readyReplicas=2, replicas=2),
            "done",
        ),
        (
            rollout_complete,
            obj(
                "DaemonSet",
                observedGeneration=1,
                desiredNumberScheduled=3,
                updatedNumberScheduled=3,
                numberAvailable=3,
            ),
            "done",
        ),
        (rollout_complete, None, "waits"),
    ],
)
def test_conditions(until, value, expected):
    sight = until(value)
    assert ("done" if sight.done else "failed" if sight.failed else "waits") == expected


@given(plain)
def test_any_status_is_accepted_by_conditions(value):
    for until in (
        pod_ready,
        pod_succeeded,
        job_complete,
        namespace_active,
        kube.condition("X"),
        kube.object_deleted("u"),
    ):
        until({"kind": "Pod", "metadata": value, "status": value, "spec": value})


def test_unstartable_container_is_named():
    waiting = {
        "containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff"}}}],
        "phase": "Pending",
    }
    assert "ImagePullBackOff" in pod_ready(obj(**waiting)).observed


def test_builders():
    assert pod("p", "img", command=["a"], env={"K": "v"})["spec"]["containers"][0]["env"] == [
        {"name": "K", "value": "v"}
    ]
    assert pod("p-", "img")["metadata"] == {"generateName": "p-"}
    assert job("j", "img", backoff_limit=2)["spec"]["backoffLimit"] == 2
    labelled = job("j", "img", labels={"app": "x"})
    assert labelled["metadata"]["labels"] == {"app": "x"}
    assert labelled["spec"]["template"]["metadata"] == {"labels": {"app": "x"}}
    secret = docker_registry_secret("s", server="reg", username="u", password="p")
    config = json.loads(base64.b64decode(secret["data"][".dockerconfigjson"]))
    assert base64.b64decode(config["auths"]["reg"]["auth"]) == b"u:p"
    assert env_secret("e", {"A": "b"})["data"] == {"A": "Yg=="}


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda: pod("", "img"), "name"),
        (lambda: pod("p", ""), "image"),
        (lambda: pod("p", "img", command="a b"), "command"),
        (lambda: env_secret("e", {}), "values"),
        (lambda: env_secret("e", {"1 A": "hunter2"}), "values"),
        (lambda: env_secret("e", {"A": 5}), "values"),
        (lambda: docker_registry_secret("s", server="", username="u", password="p"), "server"),
        (lambda: docker_registry_secret("s", server="r", username="u:x", password="p"), "username"),
        (lambda: docker_registry_secret("s", server="r", username="u", password=""), "password"),
        (lambda: kube.api_client("/no/such/kubeconfig"), "kubeconfig"),
    ],
)
def test_builders_reject_invalid_arguments(make, argument):
    with pytest.raises(InvalidArgumentError) as caught:
        make()
    assert caught.value.argument == argument
    assert "hunter2" not in str(caught.value)


def test_operation_ids():
    body = {"metadata": {"generateName": "x" * 80}}
    marked = with_operation_id(body)
    assert body == {"metadata": {"generateName": "x" * 80}}
    assert len(marked["metadata"]["name"]) == 63
    assert (
        marked["metadata"]["annotations"][OPERATION_ID_ANNOTATION]
        != with_operation_id(body)["metadata"]["annotations"][OPERATION_ID_ANNOTATION]
    )
    again = with_new_generated_name(marked)
    assert again["metadata"]["name"] != marked["metadata"]["name"]
    assert again["metadata"]["annotations"] == marked["metadata"]["annotations"]
    assert with_new_generated_name({"metadata": {"name": "x"}}) is None
    assert with_operation_id(client.V1ConfigMap()).metadata is None
    assert generate_name("a-") != generate_name("a-")


def test_credentials_without_refresh():
    assert not run_sync(ClientCredentials(None).renew(0))
    with client.ApiClient(client.Configuration()) as made:
        assert credentials_for(made) is credentials_for(made)


def test_client_refresh_hook_is_default():
    asked, configuration = [], client.Configuration()
    configuration.refresh_api_key_hook = asked.append
    with client.ApiClient(configuration) as made:
        own = credentials_for(made)
        assert run_sync(own.renew(0))
        assert run_sync(own.renew(0))
    assert asked == [configuration]


def test_attempts_are_counted_by_verb_resource_and_outcome(cluster, server, responses, clock):
    from prometheus_client import CollectorRegistry

    registry = CollectorRegistry()
    server.answers += [responses.status(503, "ServiceUnavailable"), responses.reset()]
    server.reply = lambda *_: (200, {"metadata": {"name": "a"}})
    options = {"observers": (prometheus(registry),)}
    cluster.call("CoreV1Api", "read_namespaced_config_map", "a", "n", options=options)
    counted = {
        outcome: registry.get_sample_value(
            "holdfast_kube_attempts_total",
            {"verb": "read", "resource": "namespaced_config_map", "outcome": outcome},
        )
        for outcome in ("ok", "rejected", "ambiguous")
    }
    assert counted == {"ok": 1, "rejected": 1, "ambiguous": 1}


def test_each_attempt_is_a_span(cluster, server, responses, clock):
    begun, ended = [], []

    class Span:
        def set_attribute(self, key, value):
            pass

        def set_status(self, status):
            pass

        def end(self):
            ended.append(1)

    class Tracer:
        def start_span(self, name, **_):
            begun.append(name)
            return Span()

    class Provider:
        def get_tracer(self, *args, **kwargs):
            return Tracer()

    server.answers.append(responses.status(500))
    server.reply = lambda *_: (200, {"metadata": {"name": "a"}})
    options = {"observers": (kube.opentelemetry(Provider()),)}
    cluster.call("CoreV1Api", "read_namespaced_config_map", "a", "n", options=options)
    assert begun == ["kube read namespaced_config_map"] * 2
    assert len(ended) == 2


def test_public_names_are_exact_and_imports_are_lazy():
    program = (
        "import sys, holdfast.kube as k\n"
        "from holdfast import resilient, Policy\n"
        "assert all(getattr(k, name) for name in k.__all__), k.__all__\n"
        "heavy = {'kubernetes', 'urllib3', 'aiohttp', 'docker', 'prometheus_client', 'opentelemetry'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "assert dir(k) == sorted(k.__all__)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    with pytest.raises(AttributeError):
        _ = kube.no_such_name
