"""Sandboxes in a program's hands: create, wait, run, copy, forward, suspend, delete.

Whoever knows gateways gives the way there: `Gateway("dev").sandbox("a")` (holdfast.gateway.facade). Names are
loaded on first use, for the HTTP library below them is heavy. Not here: the server, and any gateway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast import lazy

if TYPE_CHECKING:
    from holdfast.sandbox.sdk.access import Access as Access
    from holdfast.sandbox.sdk.collection import AsyncSandboxes as AsyncSandboxes
    from holdfast.sandbox.sdk.execution import ExecResult as ExecResult
    from holdfast.sandbox.sdk.handle import AsyncSandbox as AsyncSandbox
    from holdfast.sandbox.sdk.sync import Sandbox as Sandbox
    from holdfast.sandbox.sdk.sync import Sandboxes as Sandboxes

__all__ = ["Access", "AsyncSandbox", "AsyncSandboxes", "ExecResult", "Sandbox", "Sandboxes"]

_HOMES = {
    "Access": "access",
    "AsyncSandbox": "handle",
    "AsyncSandboxes": "collection",
    "ExecResult": "execution",
    "Sandbox": "sync",
    "Sandboxes": "sync",
}


__getattr__ = lazy.names(globals(), _HOMES)
