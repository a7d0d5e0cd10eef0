"""`holdfast top --watch` replaces its report on a terminal."""

import pytest

from holdfast.api import UsageReport
from holdfast.cli import top


@pytest.mark.parametrize(("is_terminal", "prefix"), [(True, "\x1b[H\x1b[2J"), (False, "")])
def test_repeated_report_clears_a_terminal(monkeypatch, capsys, is_terminal, prefix):
    monkeypatch.setattr(top, "supports_escapes", lambda stream: is_terminal)
    top._print_report(UsageReport(sandboxes=[]), is_repeated=True)
    assert capsys.readouterr().out.startswith(f"{prefix}No sandboxes yet.")
