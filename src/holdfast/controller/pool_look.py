"""One look at one warm pool, or at a template's network policy.

Not here: how many sandboxes a pool needs (`sandbox.pool`), and the claims that take them (claim_look.py).
"""

from __future__ import annotations

import logging
import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.controller.cache import key_of
from holdfast.controller.hands import NOW, SOON
from holdfast.controller.router import made_from
from holdfast.errors import ClusterRefusedError, ObjectConflictError
from holdfast.sandbox.actions import Delete
from holdfast.sandbox.network import Guarded, decide_template, in_the_way, policy_name
from holdfast.sandbox.pool import Pool, decide_pool, refused_pool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from holdfast.controller.cache import Cache, Key
    from holdfast.controller.hands import Hands
    from holdfast.sandbox.actions import Action

log = logging.getLogger("holdfast.controller")


class PoolLook:
    """Looks at pools and templates; `taken` are the sandboxes that claims reach for at this moment."""

    def __init__(
        self,
        cache: Cache,
        hands: Hands,
        clock: Callable[[], datetime],
        taken: set[Key],
        wake: Callable[[Key], None],
    ) -> None:
        self._cache, self._hands, self._clock, self._taken, self._wake = cache, hands, clock, taken, wake
        self.unguarded: set[Key] = set()
        """templates whose policy's name is somebody else's; their sandboxes say so"""

    async def look(self, pool: dict[str, Any]) -> float | None:
        """Look at a pool once; seconds until it wants to be looked at again by itself."""
        name, namespace = pool["spec"]["sandboxTemplateRef"]["name"], pool["metadata"]["namespace"]
        seen = Pool(
            pool=pool,
            template=self._cache.get("SandboxTemplate", namespace, name),
            sandboxes=tuple(self._cache.owned("Sandbox", pool)),
            now=self._clock(),
        )
        decision = decide_pool(seen, lambda: f"{pool['metadata']['name']}-{secrets.token_hex(3)}")
        try:
            with self._let_go(decision.actions) as actions:
                news = await self._hands.carry_out(actions, pool)
        except ClusterRefusedError as error:
            members = tuple(self._cache.owned("Sandbox", pool))
            seen = msgspec.structs.replace(seen, sandboxes=members)
            await self._hands.write_status(pool, refused_pool(seen, error.message))
            raise
        if news:
            return NOW
        await self._hands.write_status(pool, decision.status)
        return None if decision.again_in is None else max(SOON, decision.again_in)

    async def look_at_template(self, template: dict[str, Any]) -> None:
        """The policy around a template's sandboxes is as the template says."""
        namespace, name = template["metadata"]["namespace"], policy_name(template["metadata"]["name"])
        seen = Guarded(template=template, policy=self._cache.get("NetworkPolicy", namespace, name))
        try:
            await self._hands.carry_out(decide_template(seen), template)
        except ObjectConflictError as error:
            self._guard(template, taken=name, why=error.message)
            raise
        self._guard(template, taken=name if in_the_way(seen) else "")

    def _guard(self, template: dict[str, Any], *, taken: str, why: str = "it is somebody else's") -> None:
        """Know whether a template has its policy, and have its sandboxes tell of a change of that."""
        key = key_of(template)
        if bool(taken) == (key in self.unguarded):
            return
        if taken:
            self.unguarded.add(key)
            _, namespace, name = key
            log.warning(
                "SandboxTemplate %s/%s: its network policy %s is not made: %s", namespace, name, taken, why
            )
        else:
            self.unguarded.discard(key)
        for sandbox in made_from(key[1], key[2], self._cache):
            self._wake(sandbox)

    @contextmanager
    def _let_go(self, actions: Sequence[Action]) -> Iterator[list[Action]]:
        """No claim reaches for what a pool deletes, and what one reaches for already is left to it."""
        kept = [each for each in actions if not (isinstance(each, Delete) and each.target.key in self._taken)]
        doomed = {each.target.key for each in kept if isinstance(each, Delete)}
        self._taken |= doomed
        try:
            yield kept
        finally:
            self._taken -= doomed
