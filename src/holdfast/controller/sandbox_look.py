"""One look at one sandbox: its parts out of the cache, the decision, the writes and the status.

Not here: what follows from what (`sandbox.decide`), and other kinds (pool_look.py, claim_look.py).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from holdfast.controller.hands import NOW, SOON
from holdfast.controller.status_patch import can_wait
from holdfast.errors import ClusterRefusedError
from holdfast.sandbox.actions import Create, Patch
from holdfast.sandbox.api import NAME_HASH, TEMPLATE_REF, Condition
from holdfast.sandbox.decide import Observed, decide
from holdfast.sandbox.names import claim_name, pod_name
from holdfast.sandbox.pool import is_ready
from holdfast.sandbox.status import condition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from datetime import datetime
    from decimal import Decimal

    from holdfast.controller.cache import Cache, Key
    from holdfast.controller.hands import Hands
    from holdfast.sandbox.actions import Action

AFTER_POD = 0.25
"""When a sandbox whose pod was just made is told of, if nothing has become of the pod by then."""
WORDS_WAIT = 1.5
"""How long what nobody waits for waits for something that matters: most pods are ready by then."""
UNWATCHED = 10.0
"""How often a name is tried again that an object without our label has: no watch tells when that one goes."""
_MOST_DUE = 4096


class SandboxLook:
    """Looks at sandboxes, and remembers which status may still wait."""

    def __init__(
        self,
        cache: Cache,
        hands: Hands,
        clock: Callable[[], datetime],
        *,
        enforces_policies: bool,
        unguarded: Collection[Key] = (),
    ) -> None:
        self._cache, self._hands, self._clock = cache, hands, clock
        self._unguarded = unguarded
        self._enforces_policies = enforces_policies
        self._due: dict[str, float] = {}
        self.disk: Decimal | None = None
        """bytes of the cluster's largest disk, where known"""

    async def look(self, sandbox: dict[str, Any]) -> float | None:
        """Look once; seconds until it wants to be looked at again by itself."""
        decision = decide(self._observed(sandbox))
        if _falls_asleep(sandbox, decision.status) and await self.read_again(sandbox, "Pod"):
            decision = decide(self._observed(sandbox))
        try:
            await self._hands.carry_out(decision.actions, sandbox)
        except ClusterRefusedError as error:
            told = decide(self._observed(sandbox, failure=error.message))
            await self._hands.write_status(sandbox, told.status)
            raise
        made_pod = _made_pod(decision.actions)
        if _changed_spec(decision.actions, sandbox):
            # Its watch will only echo that.
            return NOW
        later = self._can_wait(sandbox, decision.status)
        if later is None and made_pod and not is_ready(sandbox):
            # The scheduler answers in a moment: its word and ours are one write.
            return AFTER_POD
        if later is None and await self._hands.write_status(sandbox, decision.status):
            # Some times begin with what the status says: that it is ready, or that its time is over.
            return AFTER_POD if made_pod else NOW
        wanted = (decision.again_in, self._forget_unwatched(sandbox), later)
        waits = [wait for wait in wanted if wait is not None]
        return max(SOON, min(waits)) if waits else None

    async def read_again(self, sandbox: dict[str, Any], *kinds: str) -> bool:
        """A name may be taken by something that no watch tells of: look at it, so that a decision sees it."""
        news = False
        for kind, called in _parts(sandbox):
            if kinds and kind not in kinds:
                continue
            found = await self._hands.read(kind, sandbox["metadata"]["namespace"], called)
            if found is not None:
                news |= self._cache.put(found, asked=True)
        return news

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

    def _observed(self, sandbox: dict[str, Any], failure: str = "") -> Observed:
        namespace, name = sandbox["metadata"]["namespace"], sandbox["metadata"]["name"]
        pods = {pod["metadata"]["uid"]: pod for pod in self._cache.tracked("Pod", namespace, name)}
        by_name = self._cache.get("Pod", namespace, pod_name(sandbox))
        if by_name is not None:
            pods[by_name["metadata"]["uid"]] = by_name
        claims = {
            called: found
            for kind, called in _parts(sandbox)
            if kind == "PersistentVolumeClaim" and (found := self._cache.get(kind, namespace, called))
        }
        return Observed(
            sandbox=sandbox,
            pods=tuple(pods.values()),
            claims=claims,
            service=self._cache.get("Service", namespace, name),
            policies=() if self._enforces_policies else self._policies(namespace),
            unguarded=self._without_guard(sandbox),
            now=self._clock(),
            failure=failure,
            disk=self.disk,
        )

    def _without_guard(self, sandbox: dict[str, Any]) -> str:
        """Its template, where that is there and its policy's name is somebody else's."""
        template = (sandbox["metadata"].get("annotations") or {}).get(TEMPLATE_REF, "")
        key = ("SandboxTemplate", sandbox["metadata"]["namespace"], template)
        return template if key in self._unguarded and self._cache.get(*key) is not None else ""

    def _policies(self, namespace: str) -> tuple[dict[str, Any], ...]:
        return tuple(
            each for each in self._cache.all("NetworkPolicy") if each["metadata"]["namespace"] == namespace
        )

    def _forget_unwatched(self, sandbox: dict[str, Any]) -> float | None:
        """What was read because it is in the way is known for one look only; then its name is tried again."""
        again_in = None
        for kind, called in _parts(sandbox):
            found = self._cache.get(kind, sandbox["metadata"]["namespace"], called)
            if found is not None and NAME_HASH not in (found["metadata"].get("labels") or {}):
                self._cache.forget(found)
                again_in = UNWATCHED
        return again_in


def _parts(sandbox: dict[str, Any]) -> list[tuple[str, str]]:
    name = sandbox["metadata"]["name"]
    return [
        ("Pod", pod_name(sandbox)),
        ("Service", name),
        *(
            ("PersistentVolumeClaim", claim_name((template.get("metadata") or {}).get("name", ""), name))
            for template in sandbox["spec"].get("volumeClaimTemplates") or ()
        ),
    ]


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
