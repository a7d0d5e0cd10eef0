"""`holdfast sandbox …`: the commands by name; each is loaded when it is called."""

from __future__ import annotations

import click

from holdfast.cli.group import LazyGroup

_COMMANDS = {
    "create": ("holdfast.cli.sandbox_lifecycle:create", "Make a sandbox, or find it there and the same."),
    "list": ("holdfast.cli.sandbox_inspection:list_sandboxes", "List the sandboxes of a gateway."),
    "get": ("holdfast.cli.sandbox_inspection:get", "Show how a sandbox is right now."),
    "exec": ("holdfast.cli.sandbox_exec:execute", "Run a command in a sandbox."),
    "connect": ("holdfast.cli.sandbox_exec:connect", "Open a shell in a sandbox."),
    "cp": ("holdfast.cli.sandbox_copy:copy", "Copy files into a sandbox, or out of it."),
    "logs": ("holdfast.cli.sandbox_inspection:logs", "Show what a sandbox's program prints."),
    "forward": ("holdfast.cli.sandbox_forward:forward", "Lead a port of this machine into a sandbox."),
    "suspend": ("holdfast.cli.sandbox_lifecycle:suspend", "Stop a sandbox's pod; its workspace stays."),
    "resume": ("holdfast.cli.sandbox_lifecycle:resume", "Start a suspended sandbox on its workspace."),
    "wait": ("holdfast.cli.sandbox_lifecycle:wait", "Wait until a sandbox is in a phase."),
    "delete": ("holdfast.cli.sandbox_lifecycle:delete", "Delete a sandbox; says what happens to its data."),
}


@click.group(cls=LazyGroup, lazy=_COMMANDS)
def sandbox() -> None:
    """Sandboxes: pods with an identity and a workspace that survive.

    A sandbox keeps what is in /sandbox through restarts, upgrades and crashes. NAME is always the sandbox;
    the gateway is the active one unless --gateway names another.
    """
