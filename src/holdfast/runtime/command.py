"""Which of the two programs is meant, and its settings: all of them variables, for pods set those."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> None:
    """`serve` (the default) or `router`."""
    words = sys.argv[1:] or ["serve"]
    address = os.environ.get("HOLDFAST_RUNTIME_LISTEN", "0.0.0.0")  # noqa: S104 (a pod's own network)
    if words == ["serve"]:
        from holdfast.runtime import server

        root = Path(os.environ.get("HOLDFAST_RUNTIME_ROOT", "/sandbox"))
        server.serve(address, _port("HOLDFAST_RUNTIME_PORT", server.PORT), root)
    elif words == ["router"]:
        from holdfast.runtime import router

        router.route(address, _port("HOLDFAST_ROUTER_PORT", router.PORT))
    else:
        sys.exit(f"there is no {' '.join(words)!r}: serve or router")


def _port(variable: str, default: int) -> int:
    text = os.environ.get(variable, str(default))
    if not (text.isascii() and text.isdigit()):
        sys.exit(f"{variable} is not a port: {text!r}")
    return int(text)
