"""Operations on sandboxes: list, get, create once, suspend, resume, and delete with or without the data."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from holdfast.api import (
    LAST_USED_ANNOTATION,
    WARM_POOL_LABEL,
    DeletionResult,
    OperatingMode,
    SandboxList,
    SandboxRequest,
    SandboxView,
    Workspace,
)
from holdfast.errors import HoldfastError
from holdfast.sandbox import HostSettings, bound_sandbox_name, from_request, used_secrets
from holdfast.server.errors import conflict, not_found
from holdfast.server.sandboxes import (
    object_events,
    pool_lookup,
    presenters,
    sandbox_objects,
)
from holdfast.server.sandboxes.container_use import ActivityTracker, format_last_used
from holdfast.server.sandboxes.request_comparison import (
    being_deleted,
    create_once,
    name_taken,
    request_digests,
)
from holdfast.server.secrets import SecretService

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.server.namespace_client import NamespaceClient

_CLAIM_PAGE_PREFIX = "claims."
"""Prefix of page tokens once only SandboxClaims remain; tokens of the API server contain no full stop."""


class SandboxLookup(NamedTuple):
    """The objects of a name: a sandbox, its SandboxClaim, or both. A SandboxClaim may have no sandbox yet."""

    sandbox: dict[str, Any] | None
    sandbox_claim: dict[str, Any] | None


class SandboxService:
    """The sandboxes of one gateway.

    Args:
        cluster: Client for the namespace of the sandboxes.
        endpoint: URL under which sandboxes reach this API.
        workspace: Default workspace of new sandboxes.
        host_settings: Proxy and CA certificates for new sandboxes.
    """

    def __init__(
        self,
        cluster: NamespaceClient,
        *,
        endpoint: str | None,
        workspace: Workspace,
        host_settings: HostSettings | None = None,
    ) -> None:
        self.cluster, self._endpoint, self._workspace = cluster, endpoint, workspace
        self.host_settings = host_settings or HostSettings()
        self._namespace = cluster.namespace
        self.secrets = SecretService(cluster)
        self.activity = ActivityTracker(self._write_last_used)

    async def list(self, limit: int, continue_token: str | None, selector: str | None) -> SandboxList:
        """List one page of sandboxes, without those that wait in a warm pool.

        SandboxClaims without a sandbox follow after the last sandbox, because they occupy names too.
        """
        items: list[SandboxView] = []
        if continue_token is None or not continue_token.startswith(_CLAIM_PAGE_PREFIX):
            not_in_warm_pool = exclude_warm_pools(selector)
            page = await self.cluster.list_page("Sandbox", limit, continue_token, not_in_warm_pool)
            # PVCs are shown by `get` only: a list must not cost one read per sandbox.
            items = [presenters.present_sandbox(sandbox) for sandbox in page.items]
            if page.continue_token is not None or len(items) >= limit:
                return SandboxList(items=items, next=page.continue_token or _CLAIM_PAGE_PREFIX)
            continue_token = _CLAIM_PAGE_PREFIX
        token = continue_token.removeprefix(_CLAIM_PAGE_PREFIX) or None
        claims = await self.cluster.list_page("SandboxClaim", limit - len(items), token, selector)
        shown = {view.name for view in items}
        items += [
            presenters.present_sandbox_claim(claim)
            for claim in claims.items
            if presenters.has_no_sandbox(claim) and claim["metadata"]["name"] not in shown
        ]
        return SandboxList(
            items=items,
            next=None if claims.continue_token is None else _CLAIM_PAGE_PREFIX + claims.continue_token,
        )

    async def get(self, name: str) -> SandboxView:
        """Return one sandbox."""
        return await self.present(await self.lookup(name))

    async def get_with_events(self, name: str) -> SandboxView:
        """Return one sandbox with the recent events of its objects, if these can be read."""
        lookup = await self.lookup(name)
        found = [obj for obj in lookup if obj is not None]
        view, events = await asyncio.gather(
            self.present(lookup),
            object_events.list_recent_events(self.cluster, found),
            return_exceptions=True,
        )
        if isinstance(view, BaseException):
            raise view
        if isinstance(events, HoldfastError):
            return view
        if isinstance(events, BaseException):
            raise events
        return msgspec.structs.replace(view, events=events)

    async def present(self, lookup: SandboxLookup) -> SandboxView:
        """Convert the objects of a name to the client's view."""
        if lookup.sandbox is None:
            assert lookup.sandbox_claim is not None  # noqa: S101 (a lookup has at least one of them)
            return presenters.present_sandbox_claim(lookup.sandbox_claim)
        workspace = presenters.workspace_pvc_name(lookup.sandbox)
        pvc = await self.cluster.get("PersistentVolumeClaim", workspace) if workspace else None
        return presenters.present_sandbox(lookup.sandbox, pvc, await self._owning_claim(lookup))

    async def _owning_claim(self, lookup: SandboxLookup) -> dict[str, Any] | None:
        """Return the SandboxClaim of a sandbox that was looked up by its own name."""
        name = lookup.sandbox and presenters.sandbox_claim_name(lookup.sandbox)
        if lookup.sandbox_claim is None and name:
            return await self.cluster.get("SandboxClaim", name)
        return lookup.sandbox_claim

    async def lookup(self, name: str) -> SandboxLookup:
        """Find a sandbox by its own name or by the name of its SandboxClaim.

        Raises:
            ApiError: 404 if neither exists, or the sandbox waits in a warm pool.
        """
        sandbox = await self.cluster.get("Sandbox", name)
        if sandbox is not None:
            if presenters.is_in_warm_pool(sandbox):
                raise not_found("Sandbox", name)
            return SandboxLookup(sandbox, None)
        claim = await self.cluster.get("SandboxClaim", name)
        if claim is None:
            raise not_found("Sandbox", name)
        bound = bound_sandbox_name(claim)
        return SandboxLookup(await self.cluster.get("Sandbox", bound) if bound else None, claim)

    async def lookup_sandbox(self, name: str) -> dict[str, Any]:
        """Find the sandbox of a name like `lookup`.

        Raises:
            ApiError: 404 as in `lookup`, or 409 if its SandboxClaim has no sandbox yet.
        """
        sandbox = (await self.lookup(name)).sandbox
        if sandbox is None:
            raise conflict("not-running", f"SandboxClaim {name}: no sandbox yet", "Wait until it is ready.")
        return sandbox

    async def create(self, request: SandboxRequest) -> tuple[bool, SandboxView]:
        """Create a sandbox, idempotently.

        Returns:
            Whether this call created it, and the sandbox.

        Raises:
            ApiError: 409 if the name is taken by a sandbox of another request.
        """
        # Of the request as received: a repeated request must have the same digests, also at another time and
        # after the default workspace of this server has changed.
        digests, now = request_digests(request), datetime.now(UTC)
        if request.workspace is True and request.template is None:
            request = msgspec.structs.replace(request, workspace=self._workspace)
        request = from_request.resolve_shutdown_time(request, now)
        policy = None
        if request.template is not None:
            manifest = from_request.sandbox_claim_manifest(
                request,
                namespace=self._namespace,
                pool=await pool_lookup.find_pool(self.cluster, request.template),
            )
            await self._check_name_not_taken_by_sandbox(request.name)
        else:
            manifest = from_request.sandbox_manifest(
                request,
                namespace=self._namespace,
                endpoint=self._endpoint,
                host_settings=self.host_settings,
            )
            await self._check_name_not_taken_by_claim(request.name)
            if request.secrets and await self.cluster.get("Sandbox", request.name) is None:
                await self.secrets.require(request.secrets)
            # Policy and workspace precede the sandbox: the controller starts the pod as soon as it sees it.
            # After a kill in between, the same request finds what exists and continues.
            policy = from_request.network_policy_manifest(request, namespace=self._namespace)
            if policy is not None:
                await self._ensure_network_policy(manifest, policy)
            if request.workspace is not False:
                await sandbox_objects.adopt_kept_pvc(self.cluster, request.name)
        if request.idle_suspend_after is not None:
            annotations = manifest["metadata"].setdefault("annotations", {})
            annotations[LAST_USED_ANNOTATION] = format_last_used(now)
        created, live = await create_once(self.cluster, manifest, digests, policy=policy)
        if request.template is None:
            if policy is not None:
                await sandbox_objects.set_network_policy_owner(self.cluster, policy, live)
            return created, await self.present(SandboxLookup(live, None))
        return created, await self.get(request.name)

    async def set_operating_mode(self, name: str, mode: OperatingMode) -> SandboxView:
        """Suspend or resume a sandbox; a sandbox that is in this mode already is not changed."""
        sandbox = await self.lookup_sandbox(name)
        if sandbox["spec"].get("operatingMode", OperatingMode.RUNNING) != mode:
            if mode is OperatingMode.RUNNING:
                await self.secrets.require(used_secrets(sandbox))
            patched = await self.cluster.patch(sandbox, {"spec": {"operatingMode": mode.value}})
            if patched is None:
                raise not_found("Sandbox", name)
            sandbox = patched
        return await self.present(SandboxLookup(sandbox, None))

    async def delete(self, name: str, *, keep_workspace: bool) -> DeletionResult:
        """Delete a sandbox and report which data was deleted; PVCs to keep are released first."""
        lookup = await self.lookup(name)
        sandbox = lookup.sandbox
        pvcs = [] if sandbox is None else await sandbox_objects.list_pvcs(self.cluster, sandbox)
        owned = [pvc for pvc in pvcs if sandbox is not None and sandbox_objects.owns_pvc(sandbox, pvc)]
        if keep_workspace and sandbox is not None:
            # Before the deletion: the garbage collector deletes what the sandbox still owns.
            # A kill after the release keeps the data; the repeated request deletes the sandbox.
            for pvc in owned:
                await sandbox_objects.release_pvc(self.cluster, sandbox, pvc)
        # Without its SandboxClaim, the controller does not create the sandbox again.
        target = await self._owning_claim(lookup) or sandbox
        assert target is not None  # noqa: S101 (a lookup has at least one of them)
        is_deleted = await self.cluster.delete(target)
        deleted_pvcs = owned
        if keep_workspace and sandbox is not None:
            # Read again: a PVC that is reported as kept must not be terminating.
            deleted_pvcs = [
                pvc
                for pvc in pvcs
                if not await sandbox_objects.ensure_pvc_released(self.cluster, sandbox, pvc)
            ]
        return _deletion_result(pvcs, deleted_pvcs, deleted=is_deleted)

    async def _write_last_used(self, sandbox: Mapping[str, Any], timestamp: str) -> None:
        await self.cluster.patch(sandbox, {"metadata": {"annotations": {LAST_USED_ANNOTATION: timestamp}}})

    async def _ensure_network_policy(self, manifest: dict[str, Any], policy: dict[str, Any]) -> None:
        """Create the network policy first, if the sandbox is new and the API server accepts it."""
        name = manifest["metadata"]["name"]
        await self.cluster.dry_run_create(policy)
        if await self.cluster.get("Sandbox", name) is None:
            await self.cluster.dry_run_create(manifest)
            await sandbox_objects.ensure_network_policy(self.cluster, policy, name)

    async def _check_name_not_taken_by_sandbox(self, name: str) -> None:
        sandbox = await self.cluster.get("Sandbox", name)
        if sandbox is not None and presenters.sandbox_claim_name(sandbox) != name:
            raise name_taken("Sandbox", name, "was not created from a template")

    async def _check_name_not_taken_by_claim(self, name: str) -> None:
        """The name of a SandboxClaim also finds its sandbox; a second sandbox of that name would hide it."""
        # Kubernetes has no unique names across kinds: two concurrent requests can still create both objects.
        claim = await self.cluster.get("SandboxClaim", name)
        if claim is None or await self.cluster.get("Sandbox", name) is not None:
            return
        if claim["metadata"].get("deletionTimestamp"):
            raise being_deleted("Sandbox", name)
        raise name_taken("Sandbox", name, "was created from a template")


def exclude_warm_pools(selector: str | None) -> str:
    """Extend a label selector so that it does not select the sandboxes that wait in a warm pool."""
    not_in_warm_pool = f"!{WARM_POOL_LABEL}"
    return f"{selector},{not_in_warm_pool}" if selector else not_in_warm_pool


def _deletion_result(
    pvcs: list[dict[str, Any]], deleted_pvcs: list[dict[str, Any]], *, deleted: bool
) -> DeletionResult:
    names = [str(pvc["metadata"]["name"]) for pvc in deleted_pvcs or pvcs]
    if not names:
        return DeletionResult(deleted=deleted, workspace="none")
    return DeletionResult(
        deleted=deleted, workspace="deleted" if deleted_pvcs else "kept", pvc=names[0], pvcs=names
    )
