"""The project's own files agree with each other."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def requirement_lines(path):
    lines = (line.partition("#")[0].strip() for line in path.read_text().splitlines())
    return {line for line in lines if line and not line.startswith("-")}


def test_runtime_lock_matches_declared_dependencies():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert requirement_lines(ROOT / "requirements" / "runtime.in") == set(project["dependencies"])


def test_every_lock_has_hashes_and_no_index():
    for lock in (ROOT / "requirements").glob("*.txt"):
        text = lock.read_text()
        packages = re.findall(r"^[a-z0-9][\w.-]*==", text, re.MULTILINE)
        assert packages, lock
        assert text.count("--hash=sha256:") >= len(packages)
        assert "://" not in text, lock


def test_every_make_target_has_description():
    text = (ROOT / "Makefile").read_text()
    phony = set(re.findall(r"^\.PHONY: (\S+)", text, re.MULTILINE))
    explained = set(re.findall(r"^([a-z-]+):.*## ", text, re.MULTILINE))
    assert phony == explained


def test_modules_start_with_docstring():
    silent = [
        path
        for path in (ROOT / "src").rglob("*.py")
        if not path.read_text().lstrip().startswith('"""') and path.read_text().strip()
    ]
    assert silent == []


def test_markdown_links_point_to_existing_files_and_headings():
    broken = []
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for link in re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text())):
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            if "://" not in link and not (target.exists() and (not anchor or anchor in anchors(target))):
                broken.append(f"{page.relative_to(ROOT)}: {link}")
    assert broken == []


def test_documentation_does_not_install_from_pypi():
    """holdfast is not published there."""
    command = re.compile(r"(pip|pipx|uv tool) install ['\"]?holdfast\b(?!-)")
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    assert [page for page in pages if command.search(page.read_text())] == []


def without_code(markdown):
    return re.sub(r"^```.*?^```", "", markdown, flags=re.MULTILINE | re.DOTALL)


def anchors(page):
    """The anchors that GitHub makes of the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", without_code(page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
