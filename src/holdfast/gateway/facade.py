"""`holdfast.Gateway`: one gateway in a program's hands, with the very commands of the command line.

    from holdfast import Gateway

    dev = Gateway("dev")
    dev.up(image="holdfast/node:0.1.0")
    print(dev.status().state, dev.kubeconfig)

Not here: what the commands do (commands.py), and asking a person before data is removed: a program has
said what it wants when it wrote `data=True`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.events import Bus
from holdfast.gateway import commands
from holdfast.gateway.settings import resolve
from holdfast.gateway.spec import GatewayFiles, known_names
from holdfast.gateway.work import Asked, Work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from holdfast.engine import Plan
    from holdfast.events import Event
    from holdfast.gateway.commands import GatewayResult
    from holdfast.gateway.observation import GatewayStatus
    from holdfast.sandbox.sdk import Access, Sandbox, Sandboxes


class Gateway:
    """One gateway by name; cheap to make, asks nobody until a command is called.

    `listener` is told of every event of a run, as `--json` prints them. Settings are given by their keys,
    with `__` for the dot (`timeouts__node_ready=60`); the others come from the environment and holdfast.toml.
    """

    def __init__(self, name: str, *, listener: Callable[[Event], None] | None = None) -> None:
        self.name = name
        self._files = GatewayFiles(name)
        self._listener = listener

    @staticmethod
    def known() -> list[Gateway]:
        """All gateways that are remembered on this machine."""
        return [Gateway(name) for name in known_names()]

    @property
    def kubeconfig(self) -> Path:
        """Where `up` writes the kubeconfig."""
        return self._files.kubeconfig

    def up(self, *, recreate: bool = False, wipe: bool = False, **settings: object) -> GatewayResult:
        """Create, resume or repair it. `recreate` keeps the data, `wipe` does not."""
        asked = Asked(recreate=recreate, wipe=wipe)
        return commands.up(self.name, self._bus(), resolved=resolve(_keys(settings)), asked=asked)

    def plan(self, *, recreate: bool = False, wipe: bool = False, **settings: object) -> Plan:
        """What `up` would do, and why; changes nothing."""
        asked = Asked(recreate=recreate, wipe=wipe)
        return commands.plan_up(self.name, resolved=resolve(_keys(settings)), asked=asked)

    def stop(self) -> GatewayResult:
        """Stop it; all data stays."""
        return commands.stop(self.name, self._bus())

    def start(self) -> GatewayResult:
        """Start it and wait until it is ready."""
        return commands.start(self.name, self._bus())

    def restart(self) -> GatewayResult:
        """Stop it and start it again."""
        return commands.restart(self.name, self._bus())

    def status(self) -> GatewayStatus:
        """How it is right now."""
        return commands.status(self.name)

    def logs(self, *, component: str | None = None, tail: int = 200, follow: bool = False) -> Iterator[str]:
        """What its node prints, running or stopped."""
        from holdfast.gateway.logs import node_lines

        return node_lines(Work(self.name), component=component, tail=tail, follow=follow)

    def sandbox(self, name: str) -> Sandbox:
        """One of its sandboxes by name: `with` for a plain program, `async with` for one with a loop."""
        from holdfast.sandbox.sdk import Sandbox

        return Sandbox(name, self._api, on_retry=self._listener)

    def sandboxes(self) -> Sandboxes:
        """All of its sandboxes: to list them, to make them, or to have a fresh one for a while."""
        from holdfast.sandbox.sdk import Sandboxes

        return Sandboxes(self._api, on_retry=self._listener)

    def destroy(self, *, data: bool = False) -> GatewayResult:
        """Take it away; its data only with `data=True`, and then there is no way back."""
        return commands.destroy(self.name, with_data=data, bus=self._bus())

    def __repr__(self) -> str:
        return f"<gateway {self.name}>"

    def _api(self) -> Access:
        from holdfast.gateway.api_access import api_access

        return api_access(self.name)

    def _bus(self) -> Bus:
        return Bus(self._listener) if self._listener is not None else Bus()


def _keys(settings: dict[str, object]) -> dict[str, object]:
    return {key.replace("__", "."): value for key, value in settings.items()}
