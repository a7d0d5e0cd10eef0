"""`python -m holdfast.testing.faults`: the fault proxy for programs that are not Python tests.

Prints its address and kubeconfig, runs until a signal arrives, then prints a summary.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import click
import msgspec

from holdfast.errors import HoldfastError
from holdfast.testing.faults import FAULT_KINDS, FaultProxy, load_script

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="Kubeconfig of the real API server.")
@click.option("--context", help="Context of the kubeconfig; default: its current context.")
@click.option("--script", type=click.Path(path_type=Path), help="TOML file with rules; default: no rules.")
@click.option("--seed", type=int, help="Seed of all random draws; default: the script's seed, or 0.")
@click.option("--port", type=int, default=0, help="Port on loopback; 0 selects a free port.")
@click.option(
    "--log", type=click.Path(path_type=Path), help="Write one JSON line per request to this file at exit."
)
@click.option("--list", "listing", is_flag=True, help="Show the faults and their settings, and end.")
def main(
    kubeconfig: Path | None,
    context: str | None,
    script: Path | None,
    seed: int | None,
    port: int,
    log: Path | None,
    listing: bool,
) -> None:
    """Make a real Kubernetes API server fail, by seed and script.

    Starts a proxy on loopback and prints the kubeconfig for its clients. Ends on Ctrl-C or SIGTERM.
    """
    if listing:
        for name, kind in FAULT_KINDS.items():
            click.echo(
                f"{name:24} {kind.description}"
                + (f" [{', '.join(sorted(kind.settings))}]" if kind.settings else "")
            )
        return
    if kubeconfig is None:
        raise click.UsageError("--kubeconfig is required: the kubeconfig of the real API server.")
    try:
        rules, script_seed = load_script(script) if script is not None else ((), None)
        chosen = (script_seed or 0) if seed is None else seed
        _run(FaultProxy(kubeconfig, rules=rules, seed=chosen, port=port, context=context), chosen, log)
    except HoldfastError as error:
        click.echo(f"error: {error}" + (f"\nhint: {error.hint}" if error.hint else ""), err=True)
        sys.exit(error.exit_code)


def _run(proxy: FaultProxy, seed: int, log: Path | None) -> None:
    # Blocked before the proxy starts its thread, so that only `sigwait` receives them.
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
    with proxy:
        click.echo(f"KUBECONFIG={proxy.kubeconfig}")
        click.echo(f"listening on {proxy.url}, seed {seed}", err=True)
        signal.sigwait(_STOP_SIGNALS)
        click.echo(proxy.log.summary(), err=True)
        if log is not None:
            log.write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in proxy.log))


if __name__ == "__main__":
    main()
