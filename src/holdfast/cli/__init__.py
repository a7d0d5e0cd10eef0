"""Words in, lines out: one file per noun; no decision is taken here.

Results go to stdout, progress to stderr. Every error ends as one clear line with a code and a hint.
"""

from __future__ import annotations

import click

from holdfast import __version__
from holdfast.cli.group import LazyGroup

_COMMANDS = {
    "up": ("holdfast.cli.gateway:up", "Bring a gateway up, or go on where the last try stopped."),
    "stop": ("holdfast.cli.gateway:stop", "Stop a gateway; all data stays."),
    "start": ("holdfast.cli.gateway:start", "Start a stopped gateway and wait until it is ready."),
    "restart": ("holdfast.cli.gateway:restart", "Stop a gateway and start it again."),
    "upgrade": ("holdfast.cli.upgrade:upgrade", "Bring a gateway to another node image, or back."),
    "status": ("holdfast.cli.inspection:status", "Show how a gateway is right now."),
    "list": ("holdfast.cli.inspection:list_gateways", "List the gateways known on this machine."),
    "logs": ("holdfast.cli.inspection:logs", "Show what a gateway's node prints."),
    "kubeconfig": ("holdfast.cli.inspection:kubeconfig", "Print or merge a gateway's kubeconfig."),
    "doctor": ("holdfast.cli.doctor:doctor", "Find out what is wrong with a gateway, and mend it."),
    "destroy": ("holdfast.cli.gateway:destroy", "Take a gateway away; its data only when named."),
    "sandbox": ("holdfast.cli.sandbox:sandbox", "Make and use sandboxes that survive."),
    "image": ("holdfast.cli.image:image", "Build and list the images that holdfast uses."),
    "server": ("holdfast.cli.server:server", ""),
    "controller": ("holdfast.cli.controller:controller", ""),
    "runs": ("holdfast.cli.runs:runs", "Show what earlier commands did, step by step."),
}


@click.group(cls=LazyGroup, lazy=_COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s")
def cli() -> None:
    """Kubernetes gateways in a container that never leave you stuck.

    A command that failed or was killed is simply run again: it goes on from where it was.
    """


def main() -> None:
    """The console script: run the command line and end with its exit code."""
    from holdfast.cli.ending import exit_code_of

    raise SystemExit(exit_code_of(cli))
