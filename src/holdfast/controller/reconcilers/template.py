"""Reconcile the network policy of a SandboxTemplate."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from holdfast.controller.cache import object_key
from holdfast.controller.event_handlers import sandboxes_from_template
from holdfast.sandbox import ObservedTemplate, has_name_conflict, policy_name, reconcile_template

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.controller.cache import ObjectCache, ObjectKey
    from holdfast.controller.executor import ActionExecutor

log = logging.getLogger("holdfast.controller")


class SandboxTemplateReconciler:
    """Create and update network policies, and record the templates whose policy name is taken."""

    def __init__(
        self, cache: ObjectCache, executor: ActionExecutor, enqueue: Callable[[ObjectKey], None]
    ) -> None:
        self._cache, self._executor, self._enqueue = cache, executor, enqueue
        self.unprotected_templates: set[ObjectKey] = set()
        """templates whose policy belongs to another actor; their sandboxes report it"""

    async def reconcile(self, template: dict[str, Any]) -> None:
        """Bring the network policy to the spec of the template."""
        namespace, name = template["metadata"]["namespace"], policy_name(template["metadata"]["name"])
        observed = ObservedTemplate(
            template=template, policy=self._cache.get("NetworkPolicy", namespace, name)
        )
        await self._executor.execute(reconcile_template(observed), template)
        self._set_unprotected(template, conflicting_policy=name if has_name_conflict(observed) else "")

    def forget(self, template: dict[str, Any]) -> None:
        """Forget a deleted template, so that a later one of the same name is logged and reported again."""
        self._set_unprotected(template, conflicting_policy="")

    def _set_unprotected(self, template: dict[str, Any], *, conflicting_policy: str) -> None:
        """Record whether the template has its policy, and requeue its sandboxes when that changes."""
        key = object_key(template)
        if bool(conflicting_policy) == (key in self.unprotected_templates):
            return
        if conflicting_policy:
            self.unprotected_templates.add(key)
            _, namespace, name = key
            text = "SandboxTemplate %s/%s: network policy %s cannot be created: another actor created it"
            log.warning(text, namespace, name, conflicting_policy)
        else:
            self.unprotected_templates.discard(key)
        for sandbox in sandboxes_from_template(key[1], key[2], self._cache):
            self._enqueue(sandbox)
