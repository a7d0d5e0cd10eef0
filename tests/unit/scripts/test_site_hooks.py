"""The generated parts of the documentation site, and its check for resources of other hosts."""

import re
from pathlib import Path

from site_hooks import add_error_facts, add_programs, error_classes, external_resources, hints_by_class

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "guides" / "troubleshooting.md").read_text()


def sections():
    """(exit code of the heading above or None, code) of each section."""
    exit_code = None
    for line in PAGE.splitlines():
        if line.startswith("## "):
            found = re.search(r"\(exit code (\d+)\)", line)
            exit_code = int(found[1]) if found else None
        elif heading := re.match(r"### `([a-z-]+)`", line):
            yield exit_code, heading[1]


def test_troubleshooting_has_one_section_for_each_error_code():
    assert sorted(code for _, code in sections()) == sorted(error_classes())


def test_sections_are_below_their_exit_code():
    for exit_code, code in sections():
        actual = error_classes()[code][0].exit_code
        assert exit_code == (actual if actual in (1, 2, 3) else None), code


def test_every_section_says_what_to_do():
    texts = re.findall(r"^### (`[a-z-]+`)\n(.*?)(?=^#|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert len(texts) == len(error_classes())
    assert [code for code, text in texts if len(text.split()) < 10] == []


def test_facts_of_the_error_are_added_to_its_section():
    text = add_error_facts("# T\n\n### `locked`\n\nWait.\n\n### `sandbox-missing`\n\nList them.\n")
    assert text.index("Exit code 4 · `LockedError`<br>Another run holds the lock") < text.index("Wait.")
    assert "`SandboxNotFoundError`, `SandboxMaybeDeletedError`" in text
    assert text.index("List them.") < text.index("- Run `holdfast sandbox list` to list all sandboxes.")


def test_hints_are_read_from_calls_and_classes():
    hints = hints_by_class()
    assert "Free disk space, then run the same command again to continue." in hints["DiskFullError"]
    assert any("…" in each for each in hints["ImageNotFoundError"])


def test_programs_that_a_page_links_to_are_appended(tmp_path):
    (tmp_path / "loop.py").write_text("print(1)\n")
    text = add_programs("See [the loop](loop.py) and [a page](page.md).\n", tmp_path)
    assert text == (
        "See [the loop](#loop-py) and [a page](page.md).\n"
        "\n## the loop { #loop-py }\n\n```python\nprint(1)\n```\n"
    )


def test_resources_of_other_hosts_are_found(tmp_path):
    (tmp_path / "page.html").write_text(
        '<a href="https://a.example">link</a><link rel="canonical" href="https://b.example/">'
        '<link rel="stylesheet" href="https://fonts.example/x.css"><script src=//cdn.example/x.js></script>'
        '<script src="assets/local.js"></script>'
    )
    (tmp_path / "style.css").write_text("a { background: url(https://pictures.example/p.png) }")
    assert external_resources(tmp_path) == [
        "page.html: https://fonts.example/x.css",
        "page.html: //cdn.example/x.js",
        "style.css: https://pictures.example/p.png",
    ]
