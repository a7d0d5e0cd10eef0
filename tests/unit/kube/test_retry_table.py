"""Every method of every API class has a verb; bodies decide the rest; the table is complete."""

import pytest
from kubernetes import client
from kubernetes.aio import client as aio

from holdfast.kube.retry_table import ApiMethod, Verb, effective_verb, is_retryable, parse_method_name


@pytest.mark.parametrize("module", [client, aio], ids=["sync", "aio"])
def test_every_request_of_every_api_class_is_classified(module):
    """Only connections to pods, services and nodes, and methods without a request, are not parsed."""
    missed = {
        name.partition("_")[0]
        for kind in vars(module).values()
        if isinstance(kind, type) and kind.__name__.endswith("Api")
        for name in vars(kind)
        if not name.startswith("_") and parse_method_name(name) is None
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
        ("create_namespaced_pod_without_preload_content", Verb.CREATE, "namespaced_pod"),
        ("create_namespaced_pod_eviction", Verb.EVICT, "namespaced_pod_eviction"),
        ("create_namespaced_binding", Verb.INVOKE, "namespaced_binding"),
        ("create_namespaced_role_binding", Verb.CREATE, "namespaced_role_binding"),
        ("create_cluster_role_binding", Verb.CREATE, "cluster_role_binding"),
        ("create_self_subject_access_review", Verb.QUERY, "self_subject_access_review"),
        ("create_token_review", Verb.QUERY, "token_review"),
        ("create_namespaced_service_account_token", Verb.QUERY, "namespaced_service_account_token"),
        ("replace_namespaced_secret", Verb.REPLACE, "namespaced_secret"),
        ("patch_namespaced_deployment_scale", Verb.PATCH, "namespaced_deployment_scale"),
        ("delete_namespace", Verb.DELETE, "namespace"),
        ("delete_collection_namespaced_pod", Verb.DELETE_COLLECTION, "collection_namespaced_pod"),
    ],
)
def test_verb_by_method_name(name, verb, resource):
    assert parse_method_name(name) == ApiMethod(verb, resource)


@pytest.mark.parametrize(
    "name", ["connect_get_namespaced_pod_exec", "close", "api_client", "create_", "_create_x"]
)
def test_non_request_methods(name):
    assert parse_method_name(name) is None


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
        (
            [{"op": "test", "path": "/metadata/uid", "value": "u"}, {"op": "add", "path": "/status"}],
            Verb.PATCH,
        ),
        (["rubbish"], Verb.PATCH_ONCE),
        ("raw text", Verb.PATCH_ONCE),
        (client.V1Pod(), Verb.PATCH),
    ],
    ids=repr,
)
def test_patch_type_by_body(body, verb):
    assert effective_verb(Verb.PATCH, body) is verb


def test_put_type_by_version():
    bound = client.V1ConfigMap(metadata=client.V1ObjectMeta(resource_version="4"))
    assert effective_verb(Verb.REPLACE, bound) is Verb.REPLACE
    assert effective_verb(Verb.REPLACE, {"metadata": {"resourceVersion": "4"}}) is Verb.REPLACE
    assert effective_verb(Verb.REPLACE, {"metadata": {}}) is Verb.OVERWRITE
    assert effective_verb(Verb.REPLACE, client.V1ConfigMap()) is Verb.OVERWRITE


def test_dry_run_is_a_read():
    assert effective_verb(Verb.CREATE, {}, dry_run=True) is Verb.QUERY
    assert effective_verb(Verb.READ, None, dry_run=True) is Verb.READ


def api_error(status):
    return client.ApiException(status=status, reason="")


@pytest.mark.parametrize("verb", Verb)
def test_definite_errors_are_never_retried_and_unsent_requests_always(verb):
    assert not is_retryable(verb, api_error(403))
    assert is_retryable(verb, ConnectionRefusedError())


@pytest.mark.parametrize("verb", Verb)
def test_only_verbs_with_safe_repetition_are_retried_after_an_ambiguous_error(verb):
    is_safe = verb in {Verb.READ, Verb.QUERY, Verb.CREATE, Verb.REPLACE, Verb.PATCH, Verb.DELETE}
    assert is_retryable(verb, api_error(504)) is (True if is_safe else None)
    assert is_retryable(verb, ConnectionResetError()) is (True if is_safe else None)


@pytest.mark.parametrize("verb", Verb)
def test_rejected_requests_are_retried_except_evictions(verb):
    assert is_retryable(verb, api_error(429)) is (verb is not Verb.EVICT)


def test_secret_resources():
    assert parse_method_name("create_namespaced_secret").is_sensitive
    assert parse_method_name("create_namespaced_service_account_token").is_sensitive
    assert not parse_method_name("read_namespaced_pod").is_sensitive
