"""What clients can do to sandboxes: look, make once, suspend, resume and delete, with the data kept or not.

Not here: routes (routes.py), streams (streams.py), volume claims (volumes.py), network policies
(policies.py), and the objects that are made (the sandbox floor).
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from holdfast.errors import ObjectConflictError
from holdfast.sandbox import creation
from holdfast.sandbox.api import API_VERSION, EXTENSIONS_API_VERSION, LAST_USED, WARM_POOL, Mode
from holdfast.sandbox.wire import Deletion, SandboxList, SandboxRequest, SandboxView, Workspace
from holdfast.server import policies, usage, views, volumes
from holdfast.server.problems import conflict, impossible, missing
from holdfast.server.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.server.cluster import Cluster

ASKED = "holdfast.dev/request"
"""Annotation of a sandbox: a digest of each part of the request that made it."""
_DIGEST_LENGTH = 12
_CLAIMS = "claims."
"""How a page's mark begins where only claims are left; the API server's own marks have no full stop."""


class Found(NamedTuple):
    """What there is under a name: a sandbox, or a claim that has none yet, or both."""

    sandbox: dict[str, Any] | None
    claim: dict[str, Any] | None


class Service:
    """The sandboxes of one gateway."""

    def __init__(
        self, cluster: Cluster, *, endpoint: str | None = None, workspace: Workspace | None = None
    ) -> None:
        self.cluster, self._endpoint = cluster, endpoint
        self._workspace = workspace or Workspace()
        self._namespace = cluster.namespace
        self.usage = Usage(self._note_use)

    async def list(self, limit: int, after: str | None, labels: str | None) -> SandboxList:
        """One page; those that wait in a pool are nobody's yet and are left out.

        After the last of the sandboxes come the claims that have none: their names are taken, too.
        """
        items: list[SandboxView] = []
        if after is None or not after.startswith(_CLAIMS):
            unclaimed = f"!{WARM_POOL}"
            page = await self.cluster.page(limit, after, f"{labels},{unclaimed}" if labels else unclaimed)
            # Their volume claims are looked at one by one in `get`; a list must not cost a read for each.
            items = [views.view(each) for each in page.items]
            if page.next is not None or len(items) >= limit:
                return SandboxList(items=items, next=page.next or _CLAIMS)
            after = _CLAIMS
        rest = await self.cluster.claim_page(limit - len(items), after.removeprefix(_CLAIMS) or None, labels)
        shown = {each.name for each in items}
        items += [
            views.claim_view(each)
            for each in rest.items
            if views.is_without_sandbox(each) and each["metadata"]["name"] not in shown
        ]
        return SandboxList(items=items, next=None if rest.next is None else _CLAIMS + rest.next)

    async def get(self, name: str) -> SandboxView:
        """One sandbox as it is now."""
        return await self.view(await self.found(name))

    async def view(self, found: Found) -> SandboxView:
        """What was found, as clients see it."""
        if found.sandbox is None:
            assert found.claim is not None  # noqa: S101 (one of the two is there)
            return views.claim_view(found.claim)
        workspace, claim = views.workspace_name(found.sandbox), views.claim_of(found.sandbox)
        volume = await self.cluster.volume_claim(workspace) if workspace else None
        owner = await self.cluster.claim(claim) if claim and found.claim is None else found.claim
        return views.view(found.sandbox, volume, owner)

    async def found(self, name: str) -> Found:
        """What there is under a name; the name of a claim leads to the claim's sandbox."""
        sandbox = await self.cluster.sandbox(name)
        if sandbox is not None:
            if views.is_waiting_in_a_pool(sandbox):
                raise missing(name)
            return Found(sandbox, None)
        claim = await self.cluster.claim(name)
        if claim is None:
            raise missing(name)
        taken = ((claim.get("status") or {}).get("sandbox") or {}).get("name")
        return Found(await self.cluster.sandbox(taken) if taken else None, claim)

    async def create(self, request: SandboxRequest) -> tuple[bool, SandboxView]:
        """Make a sandbox once: whether it was made now, and how it is; one that differs is a conflict."""
        if request.workspace is True and request.template is None:
            request = msgspec.structs.replace(request, workspace=self._workspace)
        asked, now = digests(request), datetime.now(UTC)
        request = creation.timed(request, now)
        policy = None
        if request.template is not None:
            manifest = creation.claim(
                request, namespace=self._namespace, pool=await self._pool_of(request.template)
            )
            await self._refuse_taken(request.name)
        else:
            manifest = creation.manifest(request, namespace=self._namespace, endpoint=self._endpoint)
            await self._refuse_claimed(request.name)
            policy = creation.network_policy(request, namespace=self._namespace)
            if policy is not None:
                await self._prepare_network(manifest, policy)
            if request.workspace is not False:
                await volumes.take_up(self.cluster, request.name)
        annotations = manifest["metadata"].setdefault("annotations", {})
        annotations[ASKED] = asked
        if request.idle_suspend_after is not None:
            annotations[LAST_USED] = usage.text(now)
        made, live = await self._made_once(manifest)
        if request.template is None:
            if policy is not None:
                await policies.hand_over(self.cluster, policy, live)
            return made, await self.view(Found(live, None))
        return made, await self.get(request.name)

    async def set_mode(self, name: str, mode: Mode) -> SandboxView:
        """Suspend or resume; nothing happens to one that is so already."""
        sandbox = (await self.found(name)).sandbox
        if sandbox is None:
            raise conflict("not-running", f"the claim {name} has no sandbox yet", "Wait until it is ready.")
        metadata = sandbox["metadata"]
        if sandbox["spec"].get("operatingMode", Mode.RUNNING) != mode:
            sandbox = await self.cluster.objects.patch(
                "Sandbox",
                metadata["name"],
                {"spec": {"operatingMode": mode.value}},
                namespace=self._namespace,
                api_version=API_VERSION,
                uid=metadata["uid"],
            )
            if sandbox is None:
                raise missing(name)
        return await self.view(Found(sandbox, None))

    async def delete(self, name: str, *, keep_workspace: bool) -> Deletion:
        """Delete it and say what became of the data. Claims that are to be kept are disowned first."""
        sandbox, claim = await self.found(name)
        held = [] if sandbox is None else await volumes.held(self.cluster, sandbox)
        owned = [each for each in held if sandbox is not None and volumes.owns(sandbox, each)]
        if keep_workspace and sandbox is not None:
            for each in owned:
                await volumes.disown(self.cluster, sandbox, each)
        kind, target = await self._top(sandbox, claim)
        result = await self.cluster.objects.delete(
            kind,
            target["metadata"]["name"],
            namespace=self._namespace,
            api_version=target["apiVersion"],
            uid=target["metadata"]["uid"],
            propagation="Background",
        )
        lost = owned
        if keep_workspace and sandbox is not None:
            # Looked at once more: what is told as kept must not be on its way out.
            lost = [each for each in held if not await volumes.is_kept(self.cluster, sandbox, each)]
        return _told(held, lost, deleted=result.did == "deleted")

    async def _note_use(self, sandbox: Mapping[str, Any], moment: str) -> None:
        metadata = sandbox["metadata"]
        await self.cluster.objects.patch(
            "Sandbox",
            metadata["name"],
            {"metadata": {"annotations": {LAST_USED: moment}}},
            namespace=self._namespace,
            api_version=API_VERSION,
            uid=metadata["uid"],
        )

    async def _top(
        self, sandbox: dict[str, Any] | None, claim: dict[str, Any] | None
    ) -> tuple[str, dict[str, Any]]:
        """What is to be deleted so that nothing makes it again: the claim, where there is one."""
        if claim is None and sandbox is not None and (name := views.claim_of(sandbox)):
            claim = await self.cluster.claim(name)
        if claim is not None:
            return "SandboxClaim", {**claim, "apiVersion": EXTENSIONS_API_VERSION}
        assert sandbox is not None  # noqa: S101 (one of the two is there)
        return "Sandbox", {**sandbox, "apiVersion": API_VERSION}

    async def _prepare_network(self, manifest: dict[str, Any], policy: dict[str, Any]) -> None:
        """The policy first; but nothing is made for a sandbox that would be refused, or is there already."""
        name = manifest["metadata"]["name"]
        await self.cluster.try_out(policy, "networkpolicies")
        if await self.cluster.sandbox(name) is None:
            await self.cluster.try_out(manifest, "sandboxes")
            await policies.prepare(self.cluster, policy, name)

    async def _pool_of(self, template: str) -> str:
        pools = [
            str(each["metadata"]["name"])
            for each in await self.cluster.pools()
            if each["spec"]["sandboxTemplateRef"]["name"] == template
        ]
        if not pools:
            raise impossible(
                "no-pool",
                f"there is no warm pool of the template {template}",
                "Make a SandboxWarmPool of it; with replicas: 0 its sandboxes are made when asked for.",
            )
        return min(pools)

    async def _refuse_taken(self, name: str) -> None:
        sandbox = await self.cluster.sandbox(name)
        if sandbox is not None and views.claim_of(sandbox) != name:
            raise conflict(
                "sandbox-differs", f"a sandbox {name} is there, and is of no template", _OTHER_NAME
            )

    async def _refuse_claimed(self, name: str) -> None:
        """A claim's name leads to the claim's sandbox: another one under it would hide that."""
        claim = await self.cluster.claim(name)
        if claim is None or await self.cluster.sandbox(name) is not None:
            return
        if claim["metadata"].get("deletionTimestamp"):
            raise conflict(
                "sandbox-deleting", f"the sandbox {name} is being deleted", "Wait until it is gone."
            )
        raise conflict("sandbox-differs", f"a sandbox {name} is there, and is of a template", _OTHER_NAME)

    async def _made_once(self, manifest: dict[str, Any]) -> tuple[bool, dict[str, Any]]:
        """Whether it was made now, and how it is; what was asked for decides whether one is another.

        Not what came of it: another version of holdfast makes another object of the same request.
        """
        try:
            result = await self.cluster.objects.ensure(manifest)
        except ObjectConflictError as error:
            name = manifest["metadata"]["name"]
            live = await self.cluster.objects.get(
                manifest["kind"], name, namespace=self._namespace, api_version=manifest["apiVersion"]
            )
            if live is None:
                raise
            if live["metadata"].get("deletionTimestamp"):
                words = f"the sandbox {name} is being deleted"
                raise conflict("sandbox-deleting", words, "Wait until it is gone.") from error
            before = (live["metadata"].get("annotations") or {}).get(ASKED, "")
            unlike = differing(before, manifest["metadata"]["annotations"][ASKED])
            if unlike is None:
                raise conflict("sandbox-differs", error.message, _OTHER_NAME) from error
            if unlike:
                words = f"the sandbox {name} is there, and differs in {', '.join(unlike)}"
                raise conflict("sandbox-differs", words, _OTHER_NAME) from error
            return False, live
        return result.did == "created", result.object


_OTHER_NAME = "Choose another name, or delete that one first."


def _told(held: list[dict[str, Any]], lost: list[dict[str, Any]], *, deleted: bool) -> Deletion:
    names = [str(each["metadata"]["name"]) for each in lost or held]
    if not names:
        return Deletion(deleted=deleted, workspace="none")
    return Deletion(deleted=deleted, workspace="deleted" if lost else "kept", claim=names[0], claims=names)


def digests(request: SandboxRequest) -> str:
    """A short digest of each part of a request: tells what differs and shows nothing of it."""
    usual = msgspec.structs.asdict(SandboxRequest(name=request.name, workspace=Workspace()))
    given = msgspec.structs.asdict(request)
    if given["workspace"] is True:
        given["workspace"] = Workspace()
    if request.shutdown_time is not None:
        given["shutdown_time"] = request.shutdown_time.astimezone(UTC)
    made = {
        key: hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()[:_DIGEST_LENGTH]
        for key, value in given.items()
        # What is as usual is left out: a part that a later version adds differs from nothing then.
        if value != usual[key]
    }
    return msgspec.json.encode(made, order="sorted").decode()


def differing(before: str, now: str) -> list[str] | None:
    """The parts of two requests that are not alike; None where the former cannot be read."""
    try:
        old, new = (msgspec.json.decode(each, type=dict[str, str]) for each in (before, now))
    except msgspec.MsgspecError:
        return None
    return sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
