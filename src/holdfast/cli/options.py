"""Options and arguments that several commands share, spelled once."""

from __future__ import annotations

import click

json_option = click.option("--json", "as_json", is_flag=True, help="Print results and progress as JSON.")

name_argument = click.argument("name", required=False)


AUTO = 0
"""What `--port auto` becomes: whatever was there before, a free one is found."""


class PortType(click.ParamType[int]):
    """A port number, or `auto` for a free one."""

    name = "port"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value).strip().lower()
        if text == "auto":
            return AUTO
        if not text.isdigit() or not 1 <= int(text) <= 65535:  # noqa: PLR2004 (the range of ports)
            self.fail(f"{value!r} is no port: give a number from 1 to 65535, or auto.", param, ctx)
        return int(text)
