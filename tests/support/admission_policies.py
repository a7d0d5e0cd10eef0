"""An admission policy by which a real API server refuses the writes that a test chooses."""

from __future__ import annotations

from datetime import UTC, datetime

from tests.support.controller_process import EVENTUALLY

from holdfast.errors import ApiRequestRejectedError

REFUSALS = "refusals"
REFUSED = "example.com/refused"
"""A label: `UPDATE` or `DELETE`, whichever of an object is refused"""


def refuse_writes(place) -> None:
    """Let the API server refuse new sandboxes named `refused-…`, and other writes by the label of the object.

    Args:
        place: a namespace for the object that shows when the policy is active.
    """
    rules = [
        {"apiGroups": ["", "agents.x-k8s.io"], "operations": ["UPDATE", "DELETE"],
         "resources": ["pods", "services", "persistentvolumeclaims", "sandboxes"]},
        {"apiGroups": ["agents.x-k8s.io"], "operations": ["CREATE"], "resources": ["sandboxes"]},
    ]  # fmt: skip
    expression = (
        "request.operation == 'CREATE' ? !object.metadata.name.startsWith('refused-') : "
        f"!(has(oldObject.metadata.labels) && '{REFUSED}' in oldObject.metadata.labels && "
        f"oldObject.metadata.labels['{REFUSED}'] == request.operation)"
    )
    api = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": REFUSALS}}
    spec = {
        "matchConstraints": {"resourceRules": [{**rule, "apiVersions": ["*"]} for rule in rules]},
        "validations": [{"expression": expression, "message": "refused", "reason": "Forbidden"}],
    }
    place.objects.create({**api, "kind": "ValidatingAdmissionPolicy", "spec": spec})
    binding = {"policyName": REFUSALS, "validationActions": ["Deny"]}
    place.objects.create({**api, "kind": "ValidatingAdmissionPolicyBinding", "spec": binding})
    metadata = {"name": "refused-probe", "namespace": place.namespace, "labels": {REFUSED: "UPDATE"}}
    spec = {"clusterIP": "None", "selector": {"a": "b"}}
    place.objects.create({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
    EVENTUALLY.call(lambda: _assert_refused(place))


def _assert_refused(place) -> None:
    try:
        change = {"metadata": {"annotations": {"tried": str(datetime.now(UTC))}}}
        place.patch("Service", "refused-probe", change)
    except ApiRequestRejectedError:
        return
    raise AssertionError("the policy is not active yet")
