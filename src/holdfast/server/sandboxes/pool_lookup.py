"""Find the warm pools of a template, and explain what is missing with the command that creates it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.api import EXTENSIONS_API_VERSION
from holdfast.server.errors import ApiError, unprocessable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.server.namespace_client import NamespaceClient

_MAX_LISTED_NAMES = 10
# The longest name of a pool; that of a template may be longer.
_MAX_POOL_NAME_LENGTH = 56


def template_of(pool: Mapping[str, Any]) -> str:
    """Return the name of a pool's template."""
    return str(pool["spec"]["sandboxTemplateRef"]["name"])


async def list_extensions(cluster: NamespaceClient, kind: str) -> list[dict[str, Any]]:
    """Return all SandboxTemplates, SandboxWarmPools or SandboxClaims, sorted by name."""
    listed = await cluster.objects.list(kind, namespace=cluster.namespace, api_version=EXTENSIONS_API_VERSION)
    return sorted(listed.items, key=lambda obj: str(obj["metadata"]["name"]))


async def pools_of_template(cluster: NamespaceClient, template: str) -> list[str]:
    """Return the names of the pools that use a template."""
    pools = await list_extensions(cluster, "SandboxWarmPool")
    return [str(pool["metadata"]["name"]) for pool in pools if template_of(pool) == template]


async def find_pool(cluster: NamespaceClient, template: str) -> str:
    """Return the name of a pool of a template.

    Raises:
        ApiError: 422 if the template has no pool, or neither pool nor template exist.
    """
    pools = await pools_of_template(cluster, template)
    if pools:
        return pools[0]
    if await cluster.get("SandboxTemplate", template) is None:
        raise await unknown_template(cluster, template)
    pool = template[:_MAX_POOL_NAME_LENGTH].rstrip("-")
    raise unprocessable(
        "no-pool",
        f"template {template}: no warm pool",
        f"Run `holdfast pool create {pool} --template {template}`, then run the same command again.",
    )


async def unknown_template(cluster: NamespaceClient, template: str) -> ApiError:
    """Return the 422 error of a request with an unknown template; it names the existing ones."""
    names = [str(each["metadata"]["name"]) for each in await list_extensions(cluster, "SandboxTemplate")]
    omitted = len(names) - _MAX_LISTED_NAMES
    existing = ", ".join(names[:_MAX_LISTED_NAMES]) + (f" and {omitted} more" if omitted > 0 else "")
    return unprocessable(
        "no-template",
        f"template {template}: not found; " + (f"the templates are {existing}" if names else "there is none"),
        f"Name an existing template, or run `holdfast template create {template}` to create it.",
    )
