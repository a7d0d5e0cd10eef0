"""What a user should know of a gateway that is up, in sentences: today, policies that nobody keeps to.

One quick request, so that `holdfast status` stays quick; who does not get an answer says nothing. Not here:
everything that can be wrong (doctor).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.errors import HoldfastError
from holdfast.gateway.glances import ask_kubernetes

if TYPE_CHECKING:
    from holdfast.gateway.work import Work

_SHOWN = 5
_POLICIES = f"/apis/networking.k8s.io/v1/networkpolicies?limit={_SHOWN}"


def status_notes(work: Work) -> tuple[str, ...]:
    """All that is to be said."""
    try:
        found = msgspec.json.decode(ask_kubernetes(work, _POLICIES).body)
        return (_unenforced(found),) if found["items"] else ()
    except (HoldfastError, OSError, msgspec.DecodeError, KeyError, TypeError):
        return ()


def _unenforced(found: dict[str, Any]) -> str:
    names = [f"{each['metadata']['namespace']}/{each['metadata']['name']}" for each in found["items"]]
    more = ", …" if (found.get("metadata") or {}).get("continue") else ""
    return (
        f"network policies are there ({', '.join(names)}{more}), but this gateway's network does not enforce "
        "them: every pod reaches every other"
    )
