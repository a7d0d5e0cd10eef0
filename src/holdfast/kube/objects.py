"""Helpers for any object, in threads (`Objects`) and in tasks (`AsyncObjects`).

    objects = Objects(api_client("~/.kube/config"))
    objects.ensure(pod("hello", "busybox", command=["true"]), namespace="default")
    objects.wait("Pod", "hello", pod_done, namespace="default", deadline=60)

They return what they did and raise errors of `holdfast.errors` only. Not here: what the helpers do
(`operations`), and the plain calls of the official client (`resilient`).
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.errors import ArgumentKindError
from holdfast.kube.changes import Changes
from holdfast.kube.exchange import DEFAULT_TIMEOUT, Link, check_terms, link
from holdfast.kube.manifest import Target, target
from holdfast.kube.operations import FIELD_MANAGER
from holdfast.kube.request import AsyncWire, Wire
from holdfast.kube.result import Result, translated
from holdfast.kube.steps import adrive, drive
from holdfast.kube.verbs import Method, Verb
from holdfast.retry import Deadline, checks

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from holdfast.kube.changes import Listed
    from holdfast.kube.conditions import Until, UntilMany
    from holdfast.kube.steps import Steps
    from holdfast.kube.telemetry import Observer
    from holdfast.kube.watch import Told
    from holdfast.kube.writes import Write
    from holdfast.retry import Policy

_READS = {Verb.READ, Verb.ASK}


def _linked(
    api_client: Any, policy: Policy | None, timeout: float, observers: tuple[Observer, ...], *, aio: bool
) -> Link:
    rest = getattr(api_client, "rest_client", None)
    if rest is None or hasattr(rest, "ssl_context") is not aio:
        kind = "kubernetes.aio.client.ApiClient" if aio else "kubernetes.client.ApiClient"
        raise ArgumentKindError("api_client", f"must be a {kind}, not {type(api_client).__name__}")
    check_terms(policy, timeout, observers)
    return link(api_client, policy=policy, timeout=timeout, observers=observers)


class _Terms:
    """How steps are carried out under a policy: the part that threads and tasks have in common."""

    def __init__(self, link: Link) -> None:
        self.link = link

    def time(self, more: float | None = None) -> AbstractContextManager[Any]:
        """The time for all requests of one helper together: that of the policy, and so much more."""
        span = self.link.policy.span
        if math.isinf(span):
            return nullcontext()
        return Deadline.after(span + (0.0 if more is None else checks.seconds("wait", more)))

    def time_to_wait(self, deadline: float) -> Deadline:
        return Deadline.after(checks.seconds("deadline", deadline))

    def policy(self, verb: Verb, doing: str, where: Target, terms: dict[str, Any] | None) -> Policy:
        policy = self.link.policy_for(verb, f"{doing} {where.kind}")
        return policy.with_(**terms) if terms else policy

    def settled(
        self, error: Exception, verb: Verb, doing: str, where: Target, write: Write | None
    ) -> Exception:
        error = self.link.settle(error, Method(verb, where.kind.lower()), write)
        return translated(error, doing, where, writes=verb not in _READS)


class Objects:
    """Ensure, apply, delete, read and wait for objects, in threads."""

    def __init__(
        self,
        api_client: Any,
        policy: Policy | None = None,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        observers: tuple[Observer, ...] = (),
    ) -> None:
        self._terms = _Terms(_linked(api_client, policy, timeout, observers, aio=False))
        self._steps = Changes(self._terms.link, Wire(api_client), self._perform)

    def get(
        self, kind: str, name: str, *, namespace: str | None = None, api_version: str | None = None
    ) -> dict[str, Any] | None:
        """The object as the server has it, or None."""
        with self._terms.time():
            return drive(self._steps.get(target(kind, name, namespace, api_version)))

    def ensure(self, manifest: Any, *, namespace: str | None = None, owner: str | None = None) -> Result:
        """Create it once, whatever gets lost on the way: *created*, *unchanged*, *adopted*, or a conflict."""
        with self._terms.time():
            return drive(self._steps.ensure(manifest, namespace, owner))

    def create(self, manifest: Any, *, namespace: str | None = None) -> dict[str, Any]:
        """Make it, without a look before; one of that name that another has made is a conflict."""
        with self._terms.time():
            return drive(self._steps.create(manifest, namespace))

    def patch(
        self,
        kind: str,
        name: str,
        patch: dict[str, Any],
        *,
        namespace: str | None = None,
        api_version: str | None = None,
        uid: str | None = None,
        subresource: str | None = None,
    ) -> dict[str, Any] | None:
        """Merge this into the object, or into its `status`; None if it is not there."""
        where = target(kind, name, namespace, api_version)
        with self._terms.time():
            return drive(self._steps.patch(where, patch, uid, subresource))

    def list(
        self,
        kind: str,
        *,
        namespace: str | None = None,
        api_version: str | None = None,
        labels: str | None = None,
        chunk: int = 250,
    ) -> Listed:
        """All objects of a kind, in one namespace or in all of them."""
        where = target(kind, "any", namespace, api_version).named(None)
        with self._terms.time():
            return drive(self._steps.list(where, labels, chunk))

    def apply(
        self,
        manifest: Any,
        *,
        namespace: str | None = None,
        manager: str = FIELD_MANAGER,
        force: bool = False,
    ) -> Result:
        """Make it be like this (server-side apply): *created*, *changed* or *unchanged*, else a conflict."""
        with self._terms.time():
            return drive(self._steps.apply(manifest, namespace, manager, force=force))

    def delete(
        self,
        kind: str,
        name: str,
        *,
        namespace: str | None = None,
        api_version: str | None = None,
        uid: str | None = None,
        propagation: str | None = None,
        wait: float | None = None,
        version: str | None = None,
    ) -> Result:
        """Delete this very object: *deleted* or *absent*. `wait`: seconds in which it must be gone.

        `version`: only as it was then; a conflict if it has changed since.
        """
        where = target(kind, name, namespace, api_version)
        with self._terms.time(wait):
            return drive(self._steps.delete(where, uid, propagation, wait, version))

    def wait(
        self,
        kind: str,
        name: str,
        until: Until,
        *,
        namespace: str | None = None,
        api_version: str | None = None,
        deadline: float = 180.0,
    ) -> dict[str, Any] | None:
        """Watch until a condition of `holdfast.kube.conditions`, or your own, holds."""
        where = target(kind, name, namespace, api_version)
        with self._terms.time_to_wait(deadline):
            return drive(self._steps.wait(where, until, deadline))

    def wait_many(
        self,
        kind: str,
        until: UntilMany,
        *,
        labels: str,
        namespace: str | None = None,
        api_version: str | None = None,
        deadline: float = 180.0,
    ) -> None:
        """Watch all objects with these labels until a condition on the list of them holds."""
        where = target(kind, "any", namespace, api_version).named(None)
        with self._terms.time_to_wait(deadline):
            drive(self._steps.wait_many(where, labels, until, deadline))

    def _perform(
        self,
        verb: Verb,
        doing: str,
        where: Target,
        attempt: Any,
        write: Write | None,
        terms: dict[str, Any] | None = None,
    ) -> Any:
        policy = self._terms.policy(verb, doing, where, terms)
        try:
            return policy.call(partial(_run, attempt))
        except Exception as error:
            better = self._terms.settled(error, verb, doing, where, write)
            if better is error:
                raise
            raise better from error


class AsyncObjects:
    """Ensure, apply, delete, read and wait for objects, in tasks: `Objects` awaited, and `follow`."""

    def __init__(
        self,
        api_client: Any,
        policy: Policy | None = None,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        observers: tuple[Observer, ...] = (),
    ) -> None:
        self._terms = _Terms(_linked(api_client, policy, timeout, observers, aio=True))
        self._steps = Changes(self._terms.link, AsyncWire(api_client), self._perform)

    async def get(
        self, kind: str, name: str, *, namespace: str | None = None, api_version: str | None = None
    ) -> dict[str, Any] | None:
        with self._terms.time():
            return await adrive(self._steps.get(target(kind, name, namespace, api_version)))

    async def ensure(
        self, manifest: Any, *, namespace: str | None = None, owner: str | None = None
    ) -> Result:
        with self._terms.time():
            return await adrive(self._steps.ensure(manifest, namespace, owner))

    async def create(self, manifest: Any, *, namespace: str | None = None) -> dict[str, Any]:
        with self._terms.time():
            return await adrive(self._steps.create(manifest, namespace))

    async def patch(
        self,
        kind: str,
        name: str,
        patch: dict[str, Any],
        *,
        namespace: str | None = None,
        api_version: str | None = None,
        uid: str | None = None,
        subresource: str | None = None,
    ) -> dict[str, Any] | None:
        where = target(kind, name, namespace, api_version)
        with self._terms.time():
            return await adrive(self._steps.patch(where, patch, uid, subresource))

    async def list(
        self,
        kind: str,
        *,
        namespace: str | None = None,
        api_version: str | None = None,
        labels: str | None = None,
        chunk: int = 250,
    ) -> Listed:
        where = target(kind, "any", namespace, api_version).named(None)
        with self._terms.time():
            return await adrive(self._steps.list(where, labels, chunk))

    async def apply(
        self,
        manifest: Any,
        *,
        namespace: str | None = None,
        manager: str = FIELD_MANAGER,
        force: bool = False,
    ) -> Result:
        with self._terms.time():
            return await adrive(self._steps.apply(manifest, namespace, manager, force=force))

    async def delete(
        self,
        kind: str,
        name: str,
        *,
        namespace: str | None = None,
        api_version: str | None = None,
        uid: str | None = None,
        propagation: str | None = None,
        wait: float | None = None,
        version: str | None = None,
    ) -> Result:
        where = target(kind, name, namespace, api_version)
        with self._terms.time(wait):
            return await adrive(self._steps.delete(where, uid, propagation, wait, version))

    async def wait(
        self,
        kind: str,
        name: str,
        until: Until,
        *,
        namespace: str | None = None,
        api_version: str | None = None,
        deadline: float = 180.0,
    ) -> dict[str, Any] | None:
        where = target(kind, name, namespace, api_version)
        with self._terms.time_to_wait(deadline):
            return await adrive(self._steps.wait(where, until, deadline))

    async def follow(
        self,
        kind: str,
        told: Told,
        *,
        version: str,
        namespace: str | None = None,
        api_version: str | None = None,
        labels: str | None = None,
    ) -> bool:
        """Tell of each change since a version, bookmarks too, until the server ends the stream.

        False if that version is too old: then only a list shows what is there. Nothing is repeated here.
        """
        where = target(kind, "any", namespace, api_version).named(None)
        return await adrive(self._steps.follow(where, labels, version, told))

    async def _perform(
        self,
        verb: Verb,
        doing: str,
        where: Target,
        attempt: Any,
        write: Write | None,
        terms: dict[str, Any] | None = None,
    ) -> Any:
        policy = self._terms.policy(verb, doing, where, terms)
        try:
            return await policy.acall(partial(_arun, attempt))
        except Exception as error:
            better = self._terms.settled(error, verb, doing, where, write)
            if better is error:
                raise
            raise better from error


def _run(attempt: Any) -> Any:
    steps: Steps[Any] = attempt()
    return drive(steps)


async def _arun(attempt: Any) -> Any:
    steps: Steps[Any] = attempt()
    return await adrive(steps)
