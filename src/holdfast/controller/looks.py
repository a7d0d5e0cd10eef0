"""One look at one sandbox, pool or claim: read the cache, decide, carry it out, write the status.

The decisions are the sandbox floor's; here they meet the API server. A write that fails because the world has
moved on ends the look, and the change that it stumbled over brings the next one. What a write makes of an
object is known at once: the next decision needs no watch to tell of it. Not here: when to look.
"""

from __future__ import annotations

import secrets
import time
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from holdfast.controller.cache import key_of, version_of
from holdfast.controller.pauses import Pauses
from holdfast.controller.status_patch import can_wait, status_patch
from holdfast.errors import ClusterRefusedError, ObjectConflictError
from holdfast.sandbox.actions import Adopt, Create, Delete, Patch, Target
from holdfast.sandbox.api import NAME_HASH, Condition
from holdfast.sandbox.blueprint import template_hash
from holdfast.sandbox.claim import Claimed, bound_to, decide_claim, refused_claim
from holdfast.sandbox.decide import Observed, decide
from holdfast.sandbox.names import claim_name, pod_name
from holdfast.sandbox.network import Guarded, decide_template, policy_name
from holdfast.sandbox.pool import Pool, condition, decide_pool, is_ready, refused_pool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from decimal import Decimal

    from holdfast.controller.cache import Cache, Key
    from holdfast.sandbox.actions import Action

NOW = 0.0
"""Look again at once: what was done is known, and more follows from it."""
SOON = 0.05
"""When to look again after the world has moved on under a write, in case that no watch tells of it."""
AFTER_POD = 0.25
"""When a sandbox whose pod was just made is told of, if nothing has become of the pod by then."""
WORDS_WAIT = 1.5
"""How long what nobody waits for waits for something that matters: most pods are ready by then."""
_MOST_DUE = 4096
_MOST_DOUBLED = 8
UNWATCHED = 10.0
"""How often a name is tried again that an object without our label has: no watch tells when that one goes."""


class Writer(Protocol):
    """The API server, as far as looks write to it; each answer is the object as it is then."""

    async def create(self, manifest: dict[str, Any]) -> dict[str, Any]: ...

    async def patch(self, target: Target, patch: dict[str, Any]) -> dict[str, Any] | None: ...

    async def patch_status(self, target: Target, patch: dict[str, Any]) -> dict[str, Any] | None: ...

    async def delete(self, target: Target, propagation: str | None, version: str | None) -> bool: ...

    async def read(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None: ...


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
        enforces_policies: bool = True,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._cache, self._writer = cache, writer
        self._told, self._counted, self._held, self._clock = told, counted, held, clock
        self._enforces_policies = enforces_policies
        self._due: dict[str, float] = {}
        self._taken: set[Key] = set()
        self._conflicts: dict[Key, int] = {}
        self._pauses = Pauses()
        self.disk: Decimal | None = None
        """bytes of the cluster's largest disk, where known"""

    async def look(self, key: Key) -> float | None:
        """Look at one object; seconds until it wants to be looked at again by itself."""
        found = self._cache.get(*key)
        if found is None:
            return None
        try:
            again_in = await self._looked(found)
        except ObjectConflictError:
            if key[0] == "Sandbox":
                await self._read_again(found)
            return self._after_conflict(key)
        self._conflicts.pop(key, None)
        return again_in

    async def _looked(self, found: dict[str, Any]) -> float | None:
        match found["kind"]:
            case "Sandbox":
                return await self._sandbox(found)
            case "SandboxWarmPool":
                return await self._pool(found)
            case "SandboxTemplate":
                return await self._template(found)
            case _:
                return await self._claim(found)

    def _after_conflict(self, key: Key) -> float:
        """Soon at first, for the news are on their way; later each time, for there may be none."""
        if len(self._conflicts) > _MOST_DUE:
            self._conflicts.clear()
        met = self._conflicts[key] = self._conflicts.get(key, 0) + 1
        return min(UNWATCHED, SOON * 2.0 ** min(met - 1, _MOST_DOUBLED))

    async def _sandbox(self, sandbox: dict[str, Any]) -> float | None:
        decision = decide(self._observed(sandbox))
        if _falls_asleep(sandbox, decision.status) and await self._read_again(sandbox, "Pod"):
            decision = decide(self._observed(sandbox))
        try:
            await self._carry_out(decision.actions, sandbox)
        except ClusterRefusedError as error:
            told = decide(self._observed(sandbox, failure=error.message))
            await self._write_status(sandbox, told.status)
            raise
        made_pod = _made_pod(decision.actions)
        if _changed_spec(decision.actions, sandbox):
            # Its watch will only echo that.
            return NOW
        later = self._can_wait(sandbox, decision.status)
        if later is None and made_pod and not is_ready(sandbox):
            # The scheduler answers in a moment: its word and ours are one write.
            return AFTER_POD
        if later is None and await self._write_status(sandbox, decision.status):
            # Some times begin with what the status says: that it is ready, or that its time is over.
            return AFTER_POD if made_pod else NOW
        wanted = (decision.again_in, self._forget_unwatched(sandbox), later)
        waits = [wait for wait in wanted if wait is not None]
        return max(SOON, min(waits)) if waits else None

    def _can_wait(self, sandbox: dict[str, Any], status: dict[str, Any] | None) -> float | None:
        """How long a status may wait that nobody waits for; None when it is to be written."""
        uid, now, old = sandbox["metadata"]["uid"], time.monotonic(), sandbox.get("status") or {}
        if status is None or status == old or not can_wait(old, status):
            self._due.pop(uid, None)
            return None
        if len(self._due) > _MOST_DUE:
            self._due.clear()
        due = self._due.setdefault(uid, now + WORDS_WAIT)
        if now < due:
            return due - now
        del self._due[uid]
        return None

    async def _pool(self, pool: dict[str, Any]) -> float | None:
        name, namespace = pool["spec"]["sandboxTemplateRef"]["name"], pool["metadata"]["namespace"]
        template, now = self._cache.get("SandboxTemplate", namespace, name), self._clock()
        series = pool["metadata"]["uid"], template_hash(template) if template is not None else ""
        seen = Pool(
            pool=pool,
            template=template,
            sandboxes=tuple(self._cache.owned("Sandbox", pool)),
            now=now,
            pause=self._pauses.left(*series, now),
        )
        decision = decide_pool(seen, lambda: f"{pool['metadata']['name']}-{secrets.token_hex(3)}")
        if decision.replaces_ended:
            self._pauses.replaced(*series, now)
        try:
            with self._let_go(decision.actions) as actions:
                news = await self._carry_out(actions, pool)
        except ClusterRefusedError as error:
            members = tuple(self._cache.owned("Sandbox", pool))
            seen = msgspec.structs.replace(seen, sandboxes=members)
            await self._write_status(pool, refused_pool(seen, error.message))
            raise
        if news:
            return NOW
        await self._write_status(pool, decision.status)
        return None if decision.again_in is None else max(SOON, decision.again_in)

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

    async def _template(self, template: dict[str, Any]) -> float | None:
        namespace, name = template["metadata"]["namespace"], policy_name(template["metadata"]["name"])
        seen = Guarded(template=template, policy=self._cache.get("NetworkPolicy", namespace, name))
        await self._carry_out(decide_template(seen), template)
        return None

    async def _claim(self, claim: dict[str, Any]) -> float | None:
        """What its user waits for comes first: the sandbox; what the server refuses is told."""
        try:
            return await self._served(claim)
        except ClusterRefusedError as error:
            now = self._cache.get(*key_of(claim))
            if now is not None:
                await self._write_status(now, refused_claim(self._claimed(now), error.message))
            raise

    async def _served(self, claim: dict[str, Any]) -> float | None:
        """The sandbox comes first, then the status, then the notes on the claim."""
        await self._look_for_lost(claim)
        decision = decide_claim(self._claimed(claim))
        take = next((each for each in decision.actions if isinstance(each, Adopt)), None)
        if take is not None:
            return await self._take(take, claim)
        notes = [each for each in decision.actions if isinstance(each, Patch)]
        doing = [each for each in decision.actions if not isinstance(each, Patch)]
        news = await self._carry_out(doing, claim)
        wrote = await self._write_status(claim, decision.status)
        await self._carry_out(notes, claim)
        if wrote or notes or news:
            # A claim's time may begin with what its own status says.
            return NOW
        return SOON if doing or decision.again_in == 0 else decision.again_in

    async def _take(self, take: Adopt, claim: dict[str, Any]) -> float:
        """Get the claim its sandbox and tell of it; only then others look at what was taken from them.

        The pool's next sandbox would take the server's time from the user who waits for this one.
        """
        sandbox = take.target.key
        self._taken.add(sandbox)
        try:
            with self._held(sandbox):
                await self._carry_out((take,), claim)
                decision = decide_claim(self._claimed(claim))
                if not all(isinstance(each, Patch) for each in decision.actions):
                    # It has gone while it was taken: there may be another one.
                    return NOW
                await self._write_status(claim, decision.status)
        finally:
            self._taken.discard(sandbox)
        await self._carry_out(decision.actions, claim)
        return NOW

    async def _look_for_lost(self, claim: dict[str, Any]) -> None:
        """A sandbox that we know nothing of is only gone if the server says so: another one would follow."""
        namespace, name = claim["metadata"]["namespace"], bound_to(claim)
        if name and self._cache.get("Sandbox", namespace, name) is None:
            found = await self._writer.read("Sandbox", namespace, name)
            if found is not None and not self._told(found, key_of(claim)):
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
            claim=claim, pool=pool, template=template, sandboxes=tuple(sandboxes), now=self._clock()
        )

    def _observed(self, sandbox: dict[str, Any], failure: str = "") -> Observed:
        namespace, name = sandbox["metadata"]["namespace"], sandbox["metadata"]["name"]
        pods = {pod["metadata"]["uid"]: pod for pod in self._cache.tracked("Pod", namespace, name)}
        by_name = self._cache.get("Pod", namespace, pod_name(sandbox))
        if by_name is not None:
            pods[by_name["metadata"]["uid"]] = by_name
        claims = {
            called: found
            for kind, called in self._parts(sandbox)
            if kind == "PersistentVolumeClaim" and (found := self._cache.get(kind, namespace, called))
        }
        return Observed(
            sandbox=sandbox,
            pods=tuple(pods.values()),
            claims=claims,
            service=self._cache.get("Service", namespace, name),
            policies=() if self._enforces_policies else self._policies(namespace),
            now=self._clock(),
            failure=failure,
            disk=self.disk,
        )

    def _policies(self, namespace: str) -> tuple[dict[str, Any], ...]:
        return tuple(
            each for each in self._cache.all("NetworkPolicy") if each["metadata"]["namespace"] == namespace
        )

    async def _carry_out(self, actions: Sequence[Action], of: dict[str, Any]) -> bool:
        """Do all of it in order; True when something is known now that was not, whoever told of it first."""
        news = False
        for action in actions:
            self._counted(type(action).__name__.lower())
            match action:
                case Create(manifest=manifest):
                    self._told(await self._writer.create(manifest), key_of(of))
                    news = True
                case Patch(target=target, patch=patch) | Adopt(target=target, patch=patch):
                    before = self._cache.get(target.kind, target.namespace, target.name)
                    found = await self._writer.patch(target, patch)
                    news |= self._keep(found, target, of) or _is_later(found, before)
                case Delete(target=target, propagation=propagation, version=version):
                    if not await self._writer.delete(target, propagation, version):
                        news |= self._keep(None, target, of)
        return news

    async def _write_status(self, found: dict[str, Any], status: dict[str, Any] | None) -> bool:
        """Write what is not said yet; True when that was something."""
        patch = {} if status is None else status_patch(found.get("status") or {}, status)
        if not patch:
            return False
        self._counted("status")
        target = Target.named(found)
        self._keep(await self._writer.patch_status(target, {"status": patch}), target, found)
        return True

    def _keep(self, answer: dict[str, Any] | None, target: Target, of: dict[str, Any]) -> bool:
        """Know the answer to a write; one that found nothing tells that the object is gone."""
        if answer is not None:
            return self._told(answer, key_of(of))
        known = self._cache.get(target.kind, target.namespace, target.name)
        return known is not None and known["metadata"]["uid"] == target.uid and self._cache.forget(known)

    async def _read_again(self, sandbox: dict[str, Any], *kinds: str) -> bool:
        """A name may be taken by something that no watch tells of: look at it, so that a decision sees it."""
        news = False
        for kind, called in self._parts(sandbox):
            if kinds and kind not in kinds:
                continue
            found = await self._writer.read(kind, sandbox["metadata"]["namespace"], called)
            if found is not None:
                news |= self._cache.put(found, asked=True)
        return news

    def _forget_unwatched(self, sandbox: dict[str, Any]) -> float | None:
        """What was read because it is in the way is known for one look only; then its name is tried again."""
        again_in = None
        for kind, called in self._parts(sandbox):
            found = self._cache.get(kind, sandbox["metadata"]["namespace"], called)
            if found is not None and NAME_HASH not in (found["metadata"].get("labels") or {}):
                self._cache.forget(found)
                again_in = UNWATCHED
        return again_in

    def _parts(self, sandbox: dict[str, Any]) -> list[tuple[str, str]]:
        name = sandbox["metadata"]["name"]
        return [
            ("Pod", pod_name(sandbox)),
            ("Service", name),
            *(
                ("PersistentVolumeClaim", claim_name((template.get("metadata") or {}).get("name", ""), name))
                for template in sandbox["spec"].get("volumeClaimTemplates") or ()
            ),
        ]


def _is_later(found: dict[str, Any] | None, before: dict[str, Any] | None) -> bool:
    return found is not None and before is not None and version_of(found) > version_of(before)


def _made_pod(actions: Sequence[Action]) -> bool:
    return any(isinstance(each, Create) and each.manifest["kind"] == "Pod" for each in actions)


def _changed_spec(actions: Sequence[Action], sandbox: dict[str, Any]) -> bool:
    uid = sandbox["metadata"]["uid"]
    return any(
        isinstance(each, Patch) and each.target.uid == uid and "spec" in each.patch for each in actions
    )


def _falls_asleep(sandbox: dict[str, Any], status: dict[str, Any] | None) -> bool:
    """Whether a sandbox is about to be called suspended: then nothing may be left under its pod's name."""
    asleep = {"status": status or {}}
    return _is_asleep(asleep) and not _is_asleep(sandbox)


def _is_asleep(found: dict[str, Any]) -> bool:
    return condition(found, Condition.SUSPENDED).get("status") == "True"
