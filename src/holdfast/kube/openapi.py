"""What a server says of its own types: the OpenAPI document of one group of kinds, as plain JSON.

Not here: what is made of it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from holdfast.kube.exchange import DEFAULT_TIMEOUT, link
from holdfast.kube.harden import UnreadableAnswerError
from holdfast.kube.kinds import root_of
from holdfast.kube.manifest import Target
from holdfast.kube.result import translated
from holdfast.kube.verbs import Method, Verb

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

    from holdfast.retry import Policy


def openapi(
    api_client: ApiClient, api_version: str, policy: Policy | None = None, *, timeout: float = DEFAULT_TIMEOUT
) -> dict[str, Any]:
    """The document of `v1`, `apps/v1` and so on."""
    terms = link(api_client, policy=policy, timeout=timeout)
    path = f"/openapi/v3{root_of(api_version)}"

    def ask() -> dict[str, Any]:
        asked = api_client.param_serialize("GET", path, auth_settings=["BearerToken"])
        answer = api_client.call_api(*asked, _request_timeout=terms.timeout_now())
        if answer.status != 200:  # noqa: PLR2004 - a status is its own name
            from kubernetes.client.exceptions import ApiException

            raise ApiException(http_resp=answer)
        try:
            found = json.loads(answer.read())  # type: ignore[no-untyped-call]
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise UnreadableAnswerError(f"HTTP 200, but no document at {path}")
        return found

    try:
        return terms.policy_for(Verb.READ, "read openapi").call(ask)
    except Exception as error:
        settled = terms.settle(error, Method(Verb.READ, "openapi"), None)
        raise translated(settled, "read the types of", Target(api_version, "API"), writes=False) from error
