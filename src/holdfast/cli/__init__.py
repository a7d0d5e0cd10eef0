"""The command line: parses arguments, calls `holdfast.gateway` or the client, prints the result.

Results go to stdout, progress and errors to stderr.
"""

from __future__ import annotations

import gc
import sys

import click

from holdfast import __version__
from holdfast.cli.click_extensions import LazyGroup, quiet_option

_COMMANDS = {
    "up": ("holdfast.cli.up:up", "Create, resume or repair a gateway."),
    "stop": ("holdfast.cli.start_stop:stop", "Stop a gateway and keep its data."),
    "start": ("holdfast.cli.start_stop:start", "Start a stopped gateway and wait until it is ready."),
    "restart": ("holdfast.cli.start_stop:restart", "Stop and start a gateway."),
    "upgrade": ("holdfast.cli.up:upgrade", "Upgrade a gateway to another node image."),
    "status": ("holdfast.cli.status:status", "Show the current state of a gateway."),
    "list": ("holdfast.cli.status:list_gateways", "List the gateways that are recorded on this machine."),
    "use": ("holdfast.cli.start_stop:use", "Make a gateway the active one, or print the active one."),
    "logs": ("holdfast.cli.status:logs", "Print the logs of a gateway's node."),
    "kubeconfig": ("holdfast.cli.status:kubeconfig", "Print or merge the kubeconfig of a gateway."),
    "doctor": ("holdfast.cli.doctor:doctor", "Diagnose and repair a gateway."),
    "destroy": ("holdfast.cli.start_stop:destroy", "Remove a gateway; keep its data unless --data is given."),
    "sandbox": ("holdfast.cli.sandbox:sandbox", "Create and use sandboxes."),
    "template": ("holdfast.cli.sandbox.template:template", "Manage templates of sandboxes."),
    "pool": ("holdfast.cli.sandbox.pool:pool", "Manage warm pools: sandboxes that wait ready for use."),
    "secret": ("holdfast.cli.secret:secret", "Manage secrets that sandboxes use."),
    "top": ("holdfast.cli.top:top", "Show the CPU, memory and disk that sandboxes use."),
    "image": ("holdfast.cli.image:image", "Build, push and list images."),
    "server": ("holdfast.cli.processes:server", ""),
    "controller": ("holdfast.cli.processes:controller", ""),
    "runs": ("holdfast.cli.runs:runs", "Show the history of commands, step by step."),
    "timeline": ("holdfast.cli.timeline:timeline", "Write the timeline of a run as an HTML page."),
    "completion": ("holdfast.cli.completion:completion", "Set up completion for bash, zsh or fish."),
    "man": ("holdfast.cli.man:man", "Show or install manual pages."),
    "version": ("holdfast.cli.status:version", "Show the versions of holdfast and its parts."),
}


@click.group(cls=LazyGroup, lazy=_COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s", help="Show the version and exit.")
@quiet_option
def cli() -> None:
    """Run one-node Kubernetes gateways in containers, and sandboxes on them.

    Rerun a command that failed or was interrupted: it continues where it stopped.

    \b
    Exit codes:
      0    success
      1    failed; rerun the same command to continue
      2    usage error
      3    manual action required; see the hint
      4    another run holds the gateway
      5    `--plan` found changes
      130  interrupted
    """


def main() -> None:
    """Run the command line and exit with its exit code."""
    # Modules are never garbage. To look for it while they load, and among all of them at exit, would take a
    # third of the time of a short command.
    gc.set_threshold(10_000)
    # A thread that imports modules must not delay threads whose request was answered: 5 ms is the default.
    sys.setswitchinterval(0.0005)
    from holdfast.cli.output import run_command

    exit_code = run_command(cli)
    gc.freeze()
    raise SystemExit(exit_code)
