"""JSON route of the usage."""

# No `from __future__ import annotations`: Litestar reads the handlers' annotations at run time.
from typing import Final

from litestar import Controller, get

from holdfast.api import UsageReport
from holdfast.server.sandboxes import problem_responses
from holdfast.server.usage.service import UsageService


class UsageRoutes(Controller):
    """Report the usage of all sandboxes."""

    path: Final = "/v1/usage"  # type: ignore[misc]
    tags: Final = ["sandboxes"]  # type: ignore[misc]

    @get(
        summary="Get the CPU, memory and disk that sandboxes and their node use",
        operation_id="getUsage",
        responses=problem_responses(),
    )
    async def report(self, usage: UsageService) -> UsageReport:
        return await usage.report()
