"""One look at one object: read the cache, decide, carry it out, write the status.

The decisions are the sandbox floor's; here they meet the API server. A write that fails because the world has
moved on ends the look, and the change that it stumbled over brings the next one. Not here: when to look, and
what a look at each kind does (sandbox_look.py, pool_look.py, claim_look.py).
"""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from holdfast.controller.claim_look import ClaimLook
from holdfast.controller.hands import SOON, Hands
from holdfast.controller.pool_look import PoolLook
from holdfast.controller.sandbox_look import UNWATCHED, SandboxLook
from holdfast.errors import ObjectConflictError

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from decimal import Decimal

    from holdfast.controller.cache import Cache, Key
    from holdfast.controller.hands import Writer

_MOST_CONFLICTS = 4096
_MOST_DOUBLED = 8


class Looks:
    """All looks over one cache and one server; `told` takes each answer: it is news for others too."""

    def __init__(
        self,
        cache: Cache,
        writer: Writer,
        *,
        told: Callable[[dict[str, Any], Key], bool],
        counted: Callable[[str], None] = lambda _: None,
        held: Callable[[Key], AbstractContextManager[None]] = lambda _: nullcontext(),
        wake: Callable[[Key], None] = lambda _: None,
        enforces_policies: bool = True,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        hands, taken = Hands(cache, writer, told=told, counted=counted), set[Any]()
        self._cache = cache
        self._pools = PoolLook(cache, hands, clock, taken, wake)
        self._sandboxes = SandboxLook(
            cache, hands, clock, enforces_policies=enforces_policies, unguarded=self._pools.unguarded
        )
        self._claims = ClaimLook(cache, hands, clock, taken, held)
        self._conflicts: dict[Key, int] = {}

    def know_disk(self, size: Decimal | None) -> bool:
        """The bytes of the cluster's largest disk, where known; True when that is another number."""
        before, self._sandboxes.disk = self._sandboxes.disk, size
        return size != before

    async def look(self, key: Key) -> float | None:
        """Look at one object; seconds until it wants to be looked at again by itself."""
        found = self._cache.get(*key)
        if found is None:
            return None
        try:
            again_in = await self._looked(found)
        except ObjectConflictError:
            if key[0] == "Sandbox":
                await self._sandboxes.read_again(found)
            return self._after_conflict(key)
        self._conflicts.pop(key, None)
        return again_in

    async def _looked(self, found: dict[str, Any]) -> float | None:
        match found["kind"]:
            case "Sandbox":
                return await self._sandboxes.look(found)
            case "SandboxWarmPool":
                return await self._pools.look(found)
            case "SandboxTemplate":
                await self._pools.look_at_template(found)
                return None
            case _:
                return await self._claims.look(found)

    def _after_conflict(self, key: Key) -> float:
        """Soon at first, for the news are on their way; later each time, for there may be none."""
        if len(self._conflicts) > _MOST_CONFLICTS:
            self._conflicts.clear()
        met = self._conflicts[key] = self._conflicts.get(key, 0) + 1
        return min(UNWATCHED, SOON * 2.0 ** min(met - 1, _MOST_DOUBLED))
