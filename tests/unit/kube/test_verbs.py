"""Every method of every API class has a verb; bodies decide the rest; the table is complete."""

import pytest
from kubernetes import client
from kubernetes.aio import client as aio

from holdfast.kube.outcome import Outcome
from holdfast.kube.policy_table import Action, action
from holdfast.kube.verbs import Method, Verb, method_of, verb_of_call


@pytest.mark.parametrize("module", [client, aio], ids=["sync", "aio"])
def test_no_request_of_any_api_class_is_missed(module):
    """What is not known is only what connects to pods, services and nodes, and what is no request."""
    missed = {
        name.partition("_")[0]
        for kind in vars(module).values()
        if isinstance(kind, type) and kind.__name__.endswith("Api")
        for name in vars(kind)
        if not name.startswith("_") and method_of(name) is None
    }
    assert missed <= {"connect", "close"}


@pytest.mark.parametrize(
    ("name", "verb", "resource"),
    [
        ("read_namespaced_pod", Verb.READ, "namespaced_pod"),
        ("read_namespaced_pod_log", Verb.READ, "namespaced_pod_log"),
        ("list_node", Verb.READ, "node"),
        ("get_cluster_custom_object", Verb.READ, "cluster_custom_object"),
        ("log_file_handler", Verb.READ, "file_handler"),
        ("create_namespaced_pod", Verb.CREATE, "namespaced_pod"),
        ("create_namespaced_pod_with_http_info", Verb.CREATE, "namespaced_pod"),
        ("create_namespaced_pod_eviction", Verb.EVICT, "namespaced_pod_eviction"),
        ("create_namespaced_binding", Verb.ACT, "namespaced_binding"),
        ("create_namespaced_role_binding", Verb.CREATE, "namespaced_role_binding"),
        ("create_cluster_role_binding", Verb.CREATE, "cluster_role_binding"),
        ("create_self_subject_access_review", Verb.ASK, "self_subject_access_review"),
        ("create_token_review", Verb.ASK, "token_review"),
        ("create_namespaced_service_account_token", Verb.ASK, "namespaced_service_account_token"),
        ("replace_namespaced_secret", Verb.REPLACE, "namespaced_secret"),
        ("patch_namespaced_deployment_scale", Verb.PATCH, "namespaced_deployment_scale"),
        ("delete_namespace", Verb.DELETE, "namespace"),
        ("delete_collection_namespaced_pod", Verb.DELETE_MANY, "collection_namespaced_pod"),
    ],
)
def test_names(name, verb, resource):
    assert method_of(name) == Method(verb, resource)


@pytest.mark.parametrize(
    "name", ["connect_get_namespaced_pod_exec", "close", "api_client", "create_", "_create_x"]
)
def test_what_is_no_request(name):
    assert method_of(name) is None


@pytest.mark.parametrize(
    ("body", "verb"),
    [
        ({"spec": {}}, Verb.PATCH),
        ({"metadata": {"resourceVersion": "5"}}, Verb.PATCH_ONCE),
        ([{"op": "replace", "path": "/a", "value": 1}], Verb.PATCH),
        ([{"op": "add", "path": "/metadata/labels/x", "value": "1"}], Verb.PATCH),
        ([{"op": "add", "path": "/spec/list/-", "value": "1"}], Verb.PATCH_ONCE),
        ([{"op": "add", "path": "/spec/list/0", "value": "1"}], Verb.PATCH_ONCE),
        ([{"op": "remove", "path": "/a"}], Verb.PATCH_ONCE),
        ([{"op": "test", "path": "/a"}, {"op": "replace", "path": "/a"}], Verb.PATCH_ONCE),
        (["rubbish"], Verb.PATCH_ONCE),
        ("raw text", Verb.PATCH_ONCE),
        (client.V1Pod(), Verb.PATCH),
    ],
    ids=repr,
)
def test_a_patch_is_what_its_body_is(body, verb):
    assert verb_of_call(Verb.PATCH, body) is verb


def test_a_put_is_what_its_version_is():
    bound = client.V1ConfigMap(metadata=client.V1ObjectMeta(resource_version="4"))
    assert verb_of_call(Verb.REPLACE, bound) is Verb.REPLACE
    assert verb_of_call(Verb.REPLACE, {"metadata": {"resourceVersion": "4"}}) is Verb.REPLACE
    assert verb_of_call(Verb.REPLACE, {"metadata": {}}) is Verb.OVERWRITE
    assert verb_of_call(Verb.REPLACE, client.V1ConfigMap()) is Verb.OVERWRITE


def test_a_dry_run_only_asks():
    assert verb_of_call(Verb.CREATE, {}, dry_run=True) is Verb.ASK
    assert verb_of_call(Verb.READ, None, dry_run=True) is Verb.READ


def test_the_table_has_every_verb_and_never_repeats_what_is_definite():
    for verb in Verb:
        assert action(verb, Outcome.DEFINITE) is Action.RAISE
        assert action(verb, Outcome.NOT_SENT) is Action.RETRY
        assert isinstance(action(verb, Outcome.AMBIGUOUS), Action)


@pytest.mark.parametrize("verb", [Verb.ACT, Verb.EVICT, Verb.OVERWRITE, Verb.PATCH_ONCE, Verb.DELETE_MANY])
def test_what_is_not_the_same_twice_is_not_repeated_blindly(verb):
    assert action(verb, Outcome.AMBIGUOUS) is Action.RAISE


def test_secret_resources_are_known():
    assert method_of("create_namespaced_secret").sensitive
    assert method_of("create_namespaced_service_account_token").sensitive
    assert not method_of("read_namespaced_pod").sensitive
