"""Requests for templates and warm pools: what is rejected, and the objects that they become."""

import pytest

from holdfast.errors import UsageError
from holdfast.sandbox import (
    build_pool_change,
    build_pool_request,
    build_template_request,
    from_request,
    pool_manifest,
    template_manifest,
)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "Bad_Name"}, "'Bad_Name': not a valid template name"),
        ({"memroy": "1Gi"}, "memroy: unknown option; did you mean memory?"),
        ({"shutdown_after": 60}, "shutdown_after: unknown option"),
        ({"template": "t"}, "template: unknown option"),
        ({"memory": "512MB"}, "memory 512MB: not an amount of memory; write 512Mi"),
        ({"cpu": 2}, "invalid template: cpu"),
        ({"labels": {"app": "sandbox-router"}}, "label app=sandbox-router is reserved"),
        ({"workspace": {"size": "much"}}, "invalid template: workspace.size"),
    ],
)
def test_invalid_option_of_a_template_is_rejected(options, message):
    with pytest.raises(UsageError) as caught:
        build_template_request(**{"name": "py", **options})
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "p" * 57}, "not a valid pool name"),
        ({"name": ""}, "'': not a valid pool name"),
        ({"template": "Bad"}, "'Bad': not a valid template name"),
        ({"sise": 3}, "sise: unknown option; did you mean size?"),
        ({"size": -1}, "invalid pool: size"),
        ({"size": 1001}, "invalid pool: size"),
        ({"size": "3"}, "invalid pool: size"),
        ({"update_strategy": "Never"}, "invalid pool: update_strategy"),
    ],
)
def test_invalid_option_of_a_pool_is_rejected(options, message):
    with pytest.raises(UsageError) as caught:
        build_pool_request(**{"name": "p", "template": "py", **options})
    assert message in caught.value.message


@pytest.mark.parametrize("size", [-1, 1001, "3", True, None, 1.5])
def test_invalid_size_is_rejected(size):
    with pytest.raises(UsageError):
        build_pool_change(size)


def manifest(**options):
    request = build_template_request("py", **options)
    return template_manifest(request, namespace="ns", endpoint="https://gateway")


def test_template_has_no_variables_of_a_single_sandbox():
    (container,) = manifest(env={"A": "1"})["spec"]["podTemplate"]["spec"]["containers"]
    names = {variable["name"] for variable in container["env"]}
    assert {"A", "HOLDFAST_ENDPOINT", "HOLDFAST_RUNTIME_LISTEN"} <= names
    assert not {"HOLDFAST_SANDBOX", "HOLDFAST_SANDBOX_ID"} & names
    assert container["image"] == from_request.DEFAULT_IMAGE


def test_labels_are_set_on_template_and_pods():
    made = manifest(labels={"team": "blue"})
    for metadata in (made["metadata"], made["spec"]["podTemplate"]["metadata"]):
        assert metadata["labels"] == {"team": "blue", "holdfast.dev/managed-by": "holdfast"}


def test_template_without_workspace_has_no_volume():
    assert "volumeClaimTemplates" not in manifest(workspace=False)["spec"]
    assert "volumeClaimTemplates" in manifest()["spec"]


def test_pool_has_its_size_template_and_strategy():
    request = build_pool_request("p", "py", size=0, update_strategy="Recreate")
    assert pool_manifest(request, namespace="ns")["spec"] == {
        "sandboxTemplateRef": {"name": "py"},
        "replicas": 0,
        "updateStrategy": {"type": "Recreate"},
    }
    assert pool_manifest(build_pool_request("p", "py"), namespace="ns")["spec"]["replicas"] == 1
