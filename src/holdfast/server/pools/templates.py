"""Operations on templates: list, get, create once and delete."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.api import TemplateDeletionResult, TemplateList, TemplateRequest, TemplateView
from holdfast.errors import ObjectConflictError
from holdfast.sandbox import HostSettings, template_manifest
from holdfast.server.errors import conflict, template_not_found
from holdfast.server.pools.presenters import present_template
from holdfast.server.sandboxes import (
    REQUEST_DIGESTS_ANNOTATION,
    describe_differences,
    differing_fields,
    list_extensions,
    network_rules,
    pools_of_template,
    request_digests,
)

if TYPE_CHECKING:
    from holdfast.api import Workspace
    from holdfast.server.namespace_client import NamespaceClient

_NAME_TAKEN_HINT = "Choose another name, or delete the existing template first."


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
        template = await self._cluster.get("SandboxTemplate", name)
        if template is None:
            raise template_not_found(name)
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
        manifest["metadata"]["annotations"] = {REQUEST_DIGESTS_ANNOTATION: digests}
        try:
            result = await self._cluster.objects.ensure(manifest)
        except ObjectConflictError as error:
            return False, present_template(await self._existing(manifest, error))
        return result.effect == "created", present_template(result.object)

    async def _existing(self, manifest: dict[str, Any], error: ObjectConflictError) -> dict[str, Any]:
        """Return the existing template if the same request created it."""
        name = manifest["metadata"]["name"]
        live = await self._cluster.get("SandboxTemplate", name)
        if live is None:
            raise error
        if live["metadata"].get("deletionTimestamp"):
            message = f"template {name}: being deleted"
            raise conflict("template-deleting", message, "Wait until it is deleted.") from error
        before = (live["metadata"].get("annotations") or {}).get(REQUEST_DIGESTS_ANNOTATION, "")
        fields = differing_fields(before, manifest["metadata"]["annotations"][REQUEST_DIGESTS_ANNOTATION])
        if fields is None:
            message = f"template {name}: exists, and was created by another client"
            raise conflict("template-differs", message, _NAME_TAKEN_HINT) from error
        policies = (network_rules(live), network_rules(manifest))
        if differences := describe_differences(fields, live, manifest, present_template, policies=policies):
            message = f"template {name}: exists, and {differences}"
            raise conflict("template-differs", message, _NAME_TAKEN_HINT) from error
        return live

    async def delete(self, name: str) -> TemplateDeletionResult:
        """Delete a template, as the published API does also while pools use it, and report these pools.

        Raises:
            ApiError: 404 if it does not exist.
        """
        template = await self._cluster.get("SandboxTemplate", name)
        if template is None:
            raise template_not_found(name)
        result = await self._cluster.objects.delete(
            "SandboxTemplate",
            name,
            namespace=self._cluster.namespace,
            api_version=template["apiVersion"],
            uid=template["metadata"]["uid"],
            propagation="Background",
        )
        return TemplateDeletionResult(
            deleted=result.effect == "deleted", pools=await pools_of_template(self._cluster, name)
        )
