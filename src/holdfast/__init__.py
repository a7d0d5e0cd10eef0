"""holdfast: Kubernetes gateways and sandboxes that go on where they stopped.

The names below are the whole public surface of the root package; each is loaded on first use, so that
`import holdfast` costs next to nothing. Everything else lives on a floor of its own (docs/architecture.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast import lazy

if TYPE_CHECKING:
    from holdfast.engine import Workflow as Workflow
    from holdfast.gateway.facade import Gateway as Gateway
    from holdfast.kube import resilient as resilient
    from holdfast.retry import Policy as Policy
    from holdfast.retry import retry as retry
    from holdfast.sandbox.sdk import Sandbox as Sandbox

__version__ = "0.1.0"

__all__ = ["Gateway", "Policy", "Sandbox", "Workflow", "__version__", "resilient", "retry"]

_HOMES: dict[str, str] = {
    "Gateway": "holdfast.gateway.facade",
    "Policy": "holdfast.retry",
    "Sandbox": "holdfast.sandbox.sdk",
    "Workflow": "holdfast.engine",
    "resilient": "holdfast.kube",
    "retry": "holdfast.retry",
}


__getattr__ = lazy.names(globals(), _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
