"""Options and arguments that several commands share, spelled once."""

from __future__ import annotations

import click

json_option = click.option("--json", "as_json", is_flag=True, help="Print results and progress as JSON.")

name_argument = click.argument("name", required=False)


class PortType(click.ParamType["int | str"]):
    """A port number, or `auto` for a free one."""

    name = "port"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        text = str(value).strip().lower()
        if text == "auto":
            return text
        if not text.isdigit() or not 1 <= int(text) <= 65535:  # noqa: PLR2004 (the range of ports)
            self.fail(f"{value!r} is no port: give a number from 1 to 65535, or auto.", param, ctx)
        return int(text)
