#!/usr/bin/env python3
"""Record the terminal picture of the README and of the site: run its commands, and draw what they print.

docs/images/terminal.txt is the recording. Its lines that begin with `$ ` are the commands; this script runs
them again on a gateway and replaces the output. docs/images/terminal.svg is drawn from it.

usage: scripts/record_terminal.py [--draw-only]

The gateway is that of HOLDFAST_GATEWAY, or the active one. The sandbox `work` must not exist.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from html import escape
from pathlib import Path

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
TEXT, PICTURE = IMAGES / "terminal.txt", IMAGES / "terminal.svg"
CLEAN_UP = "holdfast sandbox delete work --yes --ignore-missing"
PROMPT = "$ "
WIDTH, LINE_HEIGHT, TOP, LEFT = 820, 22, 58, 20
COLOURS = {PROMPT: "#e6edf3", "✓": "#7ee787", "x": "#ff7b72", "": "#9da7b3"}


def record(commands: list[str], environment: dict[str, str]) -> str:
    """Run the commands one after the other; return them with their output, as a terminal shows them."""
    text = ""
    for command in commands:
        ended = subprocess.run(
            ["bash", "-c", command], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=False, timeout=600,
        )  # fmt: skip
        if ended.returncode != 0:
            raise SystemExit(f"{command}: exit code {ended.returncode}\n{ended.stdout}")
        text += f"{PROMPT}{command}\n{ended.stdout}"
    return text


def commands_of(text: str) -> list[str]:
    """The commands of a recording."""
    return [line.removeprefix(PROMPT) for line in text.splitlines() if line.startswith(PROMPT)]


def draw(text: str) -> str:
    """Return the picture of a recording."""
    lines = text.splitlines()
    height = TOP + len(lines) * LINE_HEIGHT
    rows = []
    for number, line in enumerate(lines):
        colour = next(colour for start, colour in COLOURS.items() if line.startswith(start))
        y = TOP + number * LINE_HEIGHT
        rows.append(f'<text x="{LEFT}" y="{y}" fill="{colour}" xml:space="preserve">{escape(line)}</text>')
    body = "\n".join(rows)
    size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">
<title>holdfast in a terminal</title>
<rect width="{WIDTH}" height="{height}" rx="8" fill="#0d1117"/>
<circle cx="22" cy="20" r="6" fill="#f85149"/><circle cx="42" cy="20" r="6" fill="#d29922"/>
<circle cx="62" cy="20" r="6" fill="#3fb950"/>
<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="15">
{body}
</g>
</svg>
"""


def main() -> None:
    """Record and draw."""
    parser = argparse.ArgumentParser(description="Record the terminal picture of the documentation.")
    parser.add_argument("--draw-only", action="store_true", help="draw the existing recording again")
    if not parser.parse_args().draw_only:
        environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        commands = commands_of(TEXT.read_text(encoding="utf-8"))
        try:
            TEXT.write_text(record(commands, environment), encoding="utf-8")
        finally:
            subprocess.run(["bash", "-c", CLEAN_UP], env=environment, check=True)
    PICTURE.write_text(draw(TEXT.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
