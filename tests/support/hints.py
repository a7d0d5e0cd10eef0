"""The hints of errors that name a command: collect them from the source, and execute them as a user does.

A template is the text of a hint in the source with `{}` for each value. A test that executes a hint passes
its template to `execute_hint`; tests/unit/test_holdfast_hints.py finds templates that no test executes.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.testing.apiserver.processes import node_binary

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.holdfast_cli import HoldfastCli

ROOT = Path(__file__).resolve().parents[2]
COMMAND = re.compile(r"`((?:[A-Z_]+=[^ `]+ )?(?:holdfast|docker|kubectl|mkdir|mv|ssh|sudo|pip|\{\}) [^`]+)`")
_PLACEHOLDER = "{}"
# The client adds `--gateway NAME` to such a command; the command line does if the failed command named one.
_GATEWAY_COMMAND = re.compile(r"`holdfast\\ (?:(?:sandbox|template|pool|secret)\\ [a-z]+|image\\ push)\b")


def string_templates() -> dict[str, str]:
    """Map the template of each text in src to its place, except docstrings and help texts."""
    return {
        text: f"{path.relative_to(ROOT)}:{line}"
        for path in sorted((ROOT / "src").rglob("*.py"))
        for line, text in _string_templates(ast.parse(path.read_text()))
    }


def hint_templates() -> dict[str, str]:
    """Map each template that names a command to its place."""
    return {text: place for text, place in string_templates().items() if COMMAND.search(text)}


def executed_templates() -> set[str]:
    """The templates that tests pass to `execute_hint` or, to run the command themselves, `hint_commands`."""
    calls = (
        node
        for path in (ROOT / "tests").rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("execute_hint", "hint_commands")
    )
    return {str(ast.literal_eval(call.args[-1])) for call in calls}


def hint_commands(printed: str, template: str) -> list[str]:
    """Return the commands of a printed hint.

    Args:
        printed: the output of a command, or a hint.
        template: the template of the expected hint.
    """
    pattern = r"[^\n]+?".join(re.escape(part) for part in template.split(_PLACEHOLDER))
    pattern = _GATEWAY_COMMAND.sub(lambda command: f"{command[0]}(?: --gateway [^ `]+)?", pattern)
    found = re.search(pattern, printed)
    assert found, f"no hint {template!r} in:\n{printed}"
    return [str(command) for command in re.findall(r"`([^`]+ [^`]+)`", found[0])]


def execute_hint(holdfast: HoldfastCli, printed: str, template: str) -> str:
    """Run the commands of a printed hint where the failed command ran; each must succeed.

    Returns:
        What they printed on stdout.
    """
    output = ""
    for command in hint_commands(printed, template):
        # The host may have no kubectl; the node's program contains it.
        script = f"{node_binary()} {command}" if command.startswith("kubectl") else command
        path = f"{Path(sys.executable).parent}:{holdfast.environment['PATH']}"
        ended = subprocess.run(
            [*holdfast.prefix, "sh", "-c", script], env={**holdfast.environment, "PATH": path},
            capture_output=True, text=True, timeout=600, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert ended.returncode == 0, f"{command}: {ended.returncode}\n{ended.stdout}{ended.stderr}"
        output += ended.stdout
    return output


def _string_templates(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and template of each string, except docstrings."""
    skipped: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            skipped.update(id(each.value) for each in node.body[:1] if isinstance(each, ast.Expr))
        if id(node) in skipped:
            continue
        if isinstance(node, ast.JoinedStr):
            skipped.update(id(part) for part in node.values)
            yield node.lineno, "".join(_part(part) for part in node.values)
        elif isinstance(node, ast.keyword) and node.arg == "help":
            skipped.add(id(node.value))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, re.sub(r"\{\w+\}", _PLACEHOLDER, node.value)


def _part(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else _PLACEHOLDER
