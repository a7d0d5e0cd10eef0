"""Operations on templates: list, get, create once and delete."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from holdfast.api import TemplateDeletionResult, TemplateList, TemplateRequest, TemplateView
from holdfast.sandbox import HostSettings, template_manifest
from holdfast.server.pools.presenters import present_template
from holdfast.server.sandboxes import (
    create_once,
    list_extensions,
    pools_of_template,
    request_digests,
)

if TYPE_CHECKING:
    from holdfast.api import Workspace
    from holdfast.server.namespace_client import NamespaceClient


class TemplateService:
    """The templates of one gateway.

    Args:
        cluster: client for the namespace of the sandboxes.
        endpoint: URL under which sandboxes reach this API.
        workspace: default workspace of new sandboxes.
        host_settings: proxy and CA certificates for new sandboxes.
    """

    def __init__(
        self,
        cluster: NamespaceClient,
        *,
        endpoint: str | None,
        workspace: Workspace,
        host_settings: HostSettings | None = None,
    ) -> None:
        self._cluster, self._workspace = cluster, workspace
        self._build_manifest = partial(
            template_manifest,
            namespace=cluster.namespace,
            endpoint=endpoint,
            host_settings=host_settings or HostSettings(),
        )

    async def list(self, limit: int, continue_token: str | None, selector: str | None) -> TemplateList:
        """List one page of templates."""
        page = await self._cluster.list_page("SandboxTemplate", limit, continue_token, selector)
        pools = await list_extensions(self._cluster, "SandboxWarmPool")
        return TemplateList(
            items=[present_template(template, pools) for template in page.items], next=page.continue_token
        )

    async def get(self, name: str) -> TemplateView:
        """Return one template.

        Raises:
            ApiError: 404 if it does not exist.
        """
        template = await self._cluster.require("SandboxTemplate", name)
        return present_template(template, await list_extensions(self._cluster, "SandboxWarmPool"))

    async def create(self, request: TemplateRequest) -> tuple[bool, TemplateView]:
        """Create a template, idempotently.

        Returns:
            Whether this call created it, and the template.

        Raises:
            ApiError: 409 if the name is taken by a template of another request.
        """
        digests = request_digests(request)
        if request.workspace is True:
            request = msgspec.structs.replace(request, workspace=self._workspace)
        manifest = self._build_manifest(request)
        is_new, template = await create_once(self._cluster, manifest, digests, present_template)
        return is_new, present_template(template)

    async def delete(self, name: str) -> TemplateDeletionResult:
        """Delete a template, as the published API does also while pools use it, and report these pools.

        Raises:
            ApiError: 404 if it does not exist.
        """
        template = await self._cluster.require("SandboxTemplate", name)
        is_deleted = await self._cluster.delete(template)
        return TemplateDeletionResult(deleted=is_deleted, pools=await pools_of_template(self._cluster, name))
