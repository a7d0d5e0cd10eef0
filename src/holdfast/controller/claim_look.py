"""One look at one claim: the sandbox comes first, then the status, then the notes on the claim.

Not here: which sandbox it gets, and what it may ask for (`sandbox.claim`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.controller.cache import key_of
from holdfast.controller.hands import NOW, SOON
from holdfast.controller.undone import Undone
from holdfast.errors import ClusterRefusedError
from holdfast.sandbox.actions import Adopt, Patch
from holdfast.sandbox.claim import Claimed, bound_to, decide_claim, refused_claim
from holdfast.sandbox.claim_metadata import added

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from datetime import datetime

    from holdfast.controller.cache import Cache, Key
    from holdfast.controller.hands import Hands


class ClaimLook:
    """Looks at claims; what one reaches for is in `taken`, so that no other and no pool does."""

    def __init__(
        self,
        cache: Cache,
        hands: Hands,
        clock: Callable[[], datetime],
        taken: set[Key],
        held: Callable[[Key], AbstractContextManager[None]],
    ) -> None:
        self._cache, self._hands, self._clock = cache, hands, clock
        self._taken, self._held = taken, held
        self._undone = Undone()

    async def look(self, claim: dict[str, Any]) -> float | None:
        """What its user waits for comes first: the sandbox; what the server refuses is told."""
        try:
            return await self._served(claim)
        except ClusterRefusedError as error:
            now = self._cache.get(*key_of(claim))
            if now is not None:
                await self._hands.write_status(now, refused_claim(self._claimed(now), error.message))
            raise

    async def _served(self, claim: dict[str, Any]) -> float | None:
        await self._look_for_lost(claim)
        decision = decide_claim(self._claimed(claim))
        take = next((each for each in decision.actions if isinstance(each, Adopt)), None)
        if take is not None:
            return await self._take(take, claim)
        due, undone = self._undone.due(decision.actions)
        notes = [each for each in due if isinstance(each, Patch) and each.target.key == key_of(claim)]
        doing = [each for each in due if each not in notes]
        news = await self._hands.carry_out(doing, claim)
        self._undone.done(doing)
        wrote = await self._hands.write_status(claim, decision.status)
        await self._hands.carry_out(notes, claim)
        self._undone.done(notes)
        if wrote or notes or news:
            # A claim's time may begin with what its own status says.
            return NOW
        if doing or decision.again_in == 0:
            return SOON
        return min((each for each in (undone, decision.again_in) if each is not None), default=None)

    async def _take(self, take: Adopt, claim: dict[str, Any]) -> float:
        """Get the claim its sandbox and tell of it; only then others look at what was taken from them.

        The pool's next sandbox would take the server's time from the user who waits for this one.
        """
        sandbox = take.target.key
        self._taken.add(sandbox)
        try:
            with self._held(sandbox):
                await self._hands.carry_out((take,), claim)
                decision = decide_claim(self._claimed(claim))
                if not all(isinstance(each, Patch) for each in decision.actions):
                    # It has gone while it was taken: there may be another one.
                    return NOW
                await self._hands.write_status(claim, decision.status)
        finally:
            self._taken.discard(sandbox)
        await self._hands.carry_out(decision.actions, claim)
        return NOW

    async def _look_for_lost(self, claim: dict[str, Any]) -> None:
        """A sandbox that we know nothing of is only gone if the server says so: another one would follow."""
        namespace, name = claim["metadata"]["namespace"], bound_to(claim)
        if name and self._cache.get("Sandbox", namespace, name) is None:
            found = await self._hands.read("Sandbox", namespace, name)
            if found is not None and not self._hands.told(found, key_of(claim)):
                self._cache.put(found, asked=True)

    def _claimed(self, claim: dict[str, Any]) -> Claimed:
        namespace = claim["metadata"]["namespace"]
        pool = self._cache.get("SandboxWarmPool", namespace, claim["spec"]["warmPoolRef"]["name"])
        template = (
            self._cache.get("SandboxTemplate", namespace, pool["spec"]["sandboxTemplateRef"]["name"])
            if pool is not None
            else None
        )
        named = self._cache.get("Sandbox", namespace, claim["metadata"]["name"])
        waiting = self._cache.owned("Sandbox", pool) if pool is not None else []
        sandboxes = [
            *self._cache.owned("Sandbox", claim),
            *(each for each in waiting if key_of(each) not in self._taken),
            *([named] if named is not None else ()),
        ]
        return Claimed(
            claim=claim,
            pool=pool,
            template=template,
            sandboxes=tuple(sandboxes),
            policies=tuple(self._cache.all("NetworkPolicy")) if added(claim, "labels") else (),
            now=self._clock(),
        )
