"""Hooks of the documentation site (mkdocs.yml): generated text, diagrams, and a check that nothing is loaded
from another host.

The pages in docs/ are complete without them. The hooks add what the code knows better: the facts about each
error code, the list of decisions, and the pages that are outside of docs/ for GitHub.
"""

from __future__ import annotations

import ast
import re
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from text_diagram import draw

from holdfast import errors

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
ROOT_PAGES = {
    "contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md", "examples.md": "examples/README.md",
}  # fmt: skip
TROUBLESHOOTING = "guides/troubleshooting.md"
MAX_HINTS = 9
_CODE_HEADING = re.compile(r"^### `([a-z-]+)`$", re.MULTILINE)
# What a browser loads without a click; links that a reader follows may lead to other hosts.
_LOADED = re.compile(
    r"""<(?:script|img|iframe|source|video|audio|embed)\b[^>]*?\bsrc=["']?((?:https?:)?//[^"'\s>]+)"""
    r"""|<link\b(?![^>]*\brel=["']?(?:canonical|next|prev)\b)[^>]*?\bhref=["']?((?:https?:)?//[^"'\s>]+)"""
    r"""|(?:url\(|@import )["']?((?:https?:)?//[^"')\s]+)""",
    re.IGNORECASE,
)


def on_config(config: Any) -> Any:
    """Add the fence `diagram` and the list of decisions."""
    fence = {"name": "diagram", "class": "diagram", "format": format_diagram}
    config["mdx_configs"].setdefault("pymdownx.superfences", {})["custom_fences"] = [fence]
    pages = sorted(path.name for path in (ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    decisions = ["decisions/README.md", *(f"decisions/{name}" for name in pages)]
    config["nav"] = [*config["nav"], {"Decisions": decisions}]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are outside of docs/."""
    from mkdocs.structure.files import File

    for target, source in ROOT_PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8").replace("](docs/", "](")
        if source.startswith("examples/"):
            text = add_programs(text, ROOT / "examples")
        files.append(File.generated(config, target, content=text))
    return files


def add_programs(text: str, folder: Path) -> str:
    """Append the programs that a page links to, and link to these sections instead."""
    link = re.compile(r"\[([^\]]+)\]\(([^)]+\.py)\)")
    sections = [
        f"\n## {name} {{ #{_anchor(path)} }}\n\n```python\n{(folder / path).read_text(encoding='utf-8')}```\n"
        for name, path in link.findall(text)
    ]
    return link.sub(lambda found: f"[{found[1]}](#{_anchor(found[2])})", text) + "".join(sections)


def _anchor(path: str) -> str:
    return re.sub(r"\W+", "-", path)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Add the facts about each error code to the page about troubleshooting."""
    return add_error_facts(markdown) if page.file.src_uri == TROUBLESHOOTING else markdown


def on_post_build(config: Any) -> None:
    """Fail if a built page loads something from another host."""
    from mkdocs.exceptions import PluginError

    if found := external_resources(Path(config["site_dir"])):
        raise PluginError("the site loads resources of other hosts:\n" + "\n".join(found))


def format_diagram(source: str, *_: Any, **__: Any) -> str:
    """Render the fence `diagram`."""
    return f'<figure class="diagram">{draw(source)}</figure>'


def external_resources(site: Path) -> list[str]:
    """What the pages and style sheets of a site load from other hosts, as `file: address`."""
    return [
        f"{path.relative_to(site)}: {unescape(next(filter(None, found.groups())))}"
        for path in sorted(site.rglob("*"))
        if path.suffix in (".html", ".css")
        for found in _LOADED.finditer(path.read_text(encoding="utf-8"))
    ]


def error_classes() -> dict[str, list[type[errors.HoldfastError]]]:
    """The classes of each code in the error tree, the general one first."""
    found: dict[str, list[type[errors.HoldfastError]]] = {}
    for value in vars(errors).values():
        if isinstance(value, type) and issubclass(value, errors.HoldfastError):
            found.setdefault(value.code, []).append(value)
    return found


def add_error_facts(markdown: str) -> str:
    """Insert exit code, classes and meaning below the heading of each code, and the hints at its end."""
    classes, hints = error_classes(), hints_by_class()
    introduction, *sections = re.split(r"(?=^#{2,3} )", markdown, flags=re.MULTILINE)
    parts = [introduction]
    for section in sections:
        heading, _, text = section.partition("\n")
        code = _CODE_HEADING.match(heading)
        if code is None:
            parts.append(section)
            continue
        general = classes[code[1]][0]
        names = ", ".join(f"`{each.__name__}`" for each in classes[code[1]])
        meaning = " ".join((general.__doc__ or "").split("\n\n")[0].split())
        facts = f'<p class="facts" markdown>Exit code {general.exit_code} · {names}<br>{meaning}</p>'
        printed = {hint: None for each in classes[code[1]] for hint in hints.get(each.__name__, ())}
        # A general class has too many hints to help.
        listing = "\n".join(f"- {hint}" for hint in printed) if len(printed) <= MAX_HINTS else ""
        parts.append(f"{heading}\n\n{facts}\n{text.rstrip()}\n")
        parts.append(f"\nHints that holdfast prints:\n\n{listing}\n\n" if listing else "\n")
    return "".join(parts)


def hints_by_class() -> dict[str, list[str]]:
    """The hints in the source by the name of the error class, with `…` for each value."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                for keyword in node.keywords:
                    if keyword.arg == "hint" and (text := _text(keyword.value)):
                        found.setdefault(node.func.id, []).append(text)
            elif isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).extend(_default_hints(node))
    return found


def _default_hints(node: ast.ClassDef) -> Iterator[str]:
    for each in node.body:
        if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "default_hint":
            yield _text(each.value)


def _text(node: ast.expr) -> str:
    """The text of a literal; empty for other expressions."""
    if isinstance(node, ast.JoinedStr):
        return "".join(str(each.value) if isinstance(each, ast.Constant) else "…" for each in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
