"""Lists of sandboxes through the API on a real API server: page by page, everything that has a name once."""

from __future__ import annotations

import pytest

from holdfast.api import EXTENSIONS_API_VERSION

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(180)]

ROOT = "/v1/sandboxes"


def test_pages_contain_each_sandbox_once_and_filter_by_label(server, name):
    made = {f"{name}-{number}" for number in range(7)}
    for each in made:
        server.request_json("POST", ROOT, {"name": each, "labels": {"run": name}})
    found, token, pages = [], "", 0
    while pages == 0 or token:
        status, page = server.request_json(
            "GET", f"{ROOT}?limit=3&selector=run={name}" + (f"&continue={token}" if token else "")
        )
        assert status == 200
        found += [each["name"] for each in page["items"]]
        token, pages = page["next"], pages + 1
    assert (sorted(found), pages) == (sorted(made), 3)


def test_claims_are_listed_once_with_or_without_sandbox(server, objects, namespace, name):
    labels = {"run": name}

    def claimed(called, **status):
        body = {"apiVersion": EXTENSIONS_API_VERSION, "kind": "SandboxClaim"}
        body["metadata"] = {"name": called, "namespace": namespace, "labels": labels}
        objects.create({**body, "spec": {"warmPoolRef": {"name": "none"}}})
        objects.patch("SandboxClaim", called, {"status": status}, namespace=namespace,
                      api_version=EXTENSIONS_API_VERSION, subresource="status")  # fmt: skip

    for number in range(3):
        server.request_json("POST", ROOT, {"name": f"{name}-box-{number}", "labels": labels})
        claimed(f"{name}-free-{number}")
        claimed(f"{name}-bound-{number}", sandbox={"name": f"{name}-box-{number}"})
    since = {"type": "Ready", "status": "False", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    claimed(f"{name}-over", sandbox={"name": "gone"}, conditions=[{**since, "reason": "ClaimExpired"}])
    kept = [*(f"{name}-box-{each}" for each in range(3)), *(f"{name}-free-{each}" for each in range(3))]
    for limit in (1, 2, 3, 4, 100):
        found, token = {}, None
        while token != "":
            query = f"?limit={limit}&selector=run={name}" + (f"&continue={token}" if token else "")
            status, page = server.request_json("GET", ROOT + query)
            assert (status, len(page["items"]) <= limit) == (200, True)
            assert not found.keys() & {each["name"] for each in page["items"]}
            found |= {each["name"]: each["phase"] for each in page["items"]}
            token = page["next"] or ""
        assert found == {**dict.fromkeys(kept, "Pending"), f"{name}-over": "Expired"}


@pytest.mark.parametrize("mark", ["rubbish", "claims.rubbish"])
def test_invalid_page_token_is_rejected(server, mark):
    status, problem = server.request_json("GET", f"{ROOT}?limit=1&continue={mark}")
    assert (status, problem["code"]) == (422, "invalid")


def test_unknown_query_parameter_is_rejected(server):
    """A misspelt selector must not return all sandboxes."""
    status, problem = server.request_json("GET", f"{ROOT}?label=team%3Dblue")
    assert (status, problem["code"]) == (400, "bad-request")
    assert problem["message"] == "query parameter 'label': not known"
    assert problem["hint"] == "Use one of: continue, limit, selector."
    assert server.request_json("GET", "/v1/gateway?verbose=1")[0] == 400
