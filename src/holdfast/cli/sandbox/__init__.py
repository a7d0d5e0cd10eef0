"""`holdfast sandbox …`: the commands by name; each module loads when its command is called."""

from __future__ import annotations

import click

from holdfast.cli.click_extensions import LazyGroup

_COMMANDS = {
    "create": ("holdfast.cli.sandbox.create:create", "Create a sandbox and wait until it is ready."),
    "list": ("holdfast.cli.sandbox.listing:list_sandboxes", "List the sandboxes of a gateway."),
    "get": ("holdfast.cli.sandbox.inspection:get", "Show the current state of a sandbox."),
    "exec": ("holdfast.cli.sandbox.exec:exec_command", "Run a command in a sandbox."),
    "ps": ("holdfast.cli.sandbox.background:list_commands", "List the background commands of a sandbox."),
    "output": ("holdfast.cli.sandbox.background:output", "Print the output of a background command."),
    "kill": ("holdfast.cli.sandbox.background:kill", "End a background command."),
    "connect": ("holdfast.cli.sandbox.exec:connect", "Open a shell in a sandbox."),
    "cp": ("holdfast.cli.sandbox.cp:copy", "Copy files into or out of a sandbox."),
    "ls": ("holdfast.cli.sandbox.ls:list_files", "List the files in a directory of a sandbox."),
    "logs": ("holdfast.cli.sandbox.inspection:logs", "Print the logs of a sandbox."),
    "forward": ("holdfast.cli.sandbox.forward:forward", "Forward local ports to a sandbox."),
    "suspend": (
        "holdfast.cli.sandbox.suspend_resume:suspend",
        "Stop the pods of sandboxes; keep their workspaces.",
    ),
    "resume": (
        "holdfast.cli.sandbox.suspend_resume:resume",
        "Start suspended sandboxes with their workspaces.",
    ),
    "wait": ("holdfast.cli.sandbox.suspend_resume:wait", "Wait until sandboxes reach a phase."),
    "update": ("holdfast.cli.sandbox.update:update", "Change options of a sandbox."),
    "delete": ("holdfast.cli.sandbox.delete:delete", "Delete sandboxes, and their workspaces by default."),
}


@click.group(cls=LazyGroup, lazy=_COMMANDS)
def sandbox() -> None:
    """Create and use sandboxes: pods with a stable name and a persistent workspace.

    Files in /sandbox survive restarts, upgrades and crashes. NAME is the name of the sandbox. The commands
    use the active gateway unless --gateway names another one.
    """
