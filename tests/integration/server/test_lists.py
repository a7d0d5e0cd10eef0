"""Lists of sandboxes through the API on a real API server: page by page, everything that has a name once."""

from __future__ import annotations

import pytest

from holdfast.sandbox.api import EXTENSIONS_API_VERSION

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(180)]

ROOT = "/v1/sandboxes"


def test_pages_hold_all_of_them_once_and_labels_choose(server, name):
    made = {f"{name}-{number}" for number in range(7)}
    for each in made:
        server.call("POST", ROOT, {"name": each, "labels": {"run": name}})
    found, token, pages = [], "", 0
    while pages == 0 or token:
        status, page = server.call(
            "GET", f"{ROOT}?limit=3&label=run={name}" + (f"&continue={token}" if token else "")
        )
        assert status == 200
        found += [each["name"] for each in page["items"]]
        token, pages = page["next"], pages + 1
    assert (sorted(found), pages) == (sorted(made), 3)


def test_claims_without_a_sandbox_are_listed_and_those_with_one_are_not_twice(
    server, objects, namespace, name
):
    labels = {"run": name}

    def claimed(called, **status):
        body = {"apiVersion": EXTENSIONS_API_VERSION, "kind": "SandboxClaim"}
        body["metadata"] = {"name": called, "namespace": namespace, "labels": labels}
        objects.create({**body, "spec": {"warmPoolRef": {"name": "none"}}})
        objects.patch("SandboxClaim", called, {"status": status}, namespace=namespace,
                      api_version=EXTENSIONS_API_VERSION, subresource="status")  # fmt: skip

    for number in range(3):
        server.call("POST", ROOT, {"name": f"{name}-box-{number}", "labels": labels})
        claimed(f"{name}-free-{number}")
        claimed(f"{name}-bound-{number}", sandbox={"name": f"{name}-box-{number}"})
    since = {"type": "Ready", "status": "False", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    claimed(f"{name}-over", sandbox={"name": "gone"}, conditions=[{**since, "reason": "ClaimExpired"}])
    kept = [*(f"{name}-box-{each}" for each in range(3)), *(f"{name}-free-{each}" for each in range(3))]
    for limit in (1, 2, 3, 4, 100):
        found, token = {}, None
        while token != "":
            query = f"?limit={limit}&label=run={name}" + (f"&continue={token}" if token else "")
            status, page = server.call("GET", ROOT + query)
            assert (status, len(page["items"]) <= limit) == (200, True)
            assert not found.keys() & {each["name"] for each in page["items"]}
            found |= {each["name"]: each["phase"] for each in page["items"]}
            token = page["next"] or ""
        assert found == {**dict.fromkeys(kept, "Pending"), f"{name}-over": "Expired"}


@pytest.mark.parametrize("mark", ["rubbish", "claims.rubbish"])
def test_a_page_that_never_was_is_refused(server, mark):
    status, problem = server.call("GET", f"{ROOT}?limit=1&continue={mark}")
    assert (status, problem["code"]) == (422, "invalid")
