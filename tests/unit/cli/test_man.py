"""`holdfast man show | install`: what the pages contain, where they go, and what is never replaced."""

import json
import os
import re
import shutil
import sys

import click
import pytest
from tests.support.hints import execute_hint
from tests.support.holdfast_cli import HoldfastCli
from tests.support.pseudo_terminal import ProgramOnTerminal

from holdfast.cli import cli
from holdfast.cli.man import _contexts, _render_page
from holdfast.cli.output import run_command


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def run(capsys, *args):
    assert run_command(cli, ["man", *args]) == 0
    return capsys.readouterr().out


def plain_text(source):
    """The words of a page as a reader sees them."""
    for escape, character in {"\\-": "-", "\\(aq": "'", "\\(ga": "`", "\\(ti": "~", "\\&": ""}.items():
        source = source.replace(escape, character)
    return " ".join(source.replace(".B ", "").replace("\\e", "\\").split())


@pytest.mark.parametrize("context", list(_contexts()), ids=lambda context: context.command_path)
def test_page_contains_the_texts_of_help(context):
    page = plain_text(_render_page(context))
    command = context.command
    for paragraph in command.help.replace("\b", "").split("\n\n"):
        assert " ".join(paragraph.split()) in page
    for parameter in command.get_params(context):
        if isinstance(parameter, click.Option):
            term, text = parameter.get_help_record(context)
            assert f"{term} {' '.join(text.split())}" in page


def test_every_public_command_has_a_page_that_refers_to_related_pages(home, capsys):
    names = [context.command_path for context in _contexts()]
    assert {"holdfast", "holdfast up", "holdfast sandbox delete", "holdfast runs show"} <= set(names)
    assert not {name for name in names if re.search("server|controller", name)}
    source = run(capsys, "show", "sandbox")
    references = plain_text(source.partition(".SH SEE ALSO")[2])
    assert references.startswith(".BR holdfast (1), .BR holdfast-sandbox-create (1),")
    assert "holdfast-sandbox-delete (1)" in references
    assert ".BR holdfast\\-sandbox (1)" in run(capsys, "show", "sandbox", "delete")


def test_special_characters_are_escaped():
    @click.command()
    @click.option("--path", help="A path such as 'C:\\x', `~` and a^b.")
    def command(path):
        """Start.

        .hidden is not a request, and neither is
        'this.

        \b
        .literal -x
        """

    lines = _render_page(click.Context(command, info_name="x")).splitlines()
    assert "\\&.hidden is not a request, and neither is \\(aqthis." in lines
    assert "\\&.literal \\-x" in lines
    assert "A path such as \\(aqC:\\ex\\(aq, \\(ga\\(ti\\(ga and a\\(hab." in lines


def test_install_writes_pages_once_and_removes_those_of_former_commands(home, capsys):
    folder = home / ".local/share/man/man1"
    first = json.loads(run(capsys, "install", "--json"))
    assert first["directory"] == str(folder)
    assert first["changed"] == first["pages"] == [f"{name}.1" for name in page_names()]
    assert sorted(path.name for path in folder.iterdir()) == sorted(first["pages"])
    page = folder / "holdfast-up.1"
    assert page.read_text() == run(capsys, "show", "up")
    assert page.stat().st_mode & 0o777 == 0o644
    page.write_text(page.read_text() + "an earlier version\n")
    (folder / "holdfast-former.1").write_text(page.read_text())
    (folder / "holdfast-foreign.1").write_text("of another program\n")
    assert run(capsys, "install").startswith(f"Installed 1 of {len(first['pages'])} pages in {folder}.\n")
    assert not (folder / "holdfast-former.1").exists()
    assert (folder / "holdfast-foreign.1").exists()
    assert (
        run(capsys, "install").splitlines()[0]
        == f"The {len(first['pages'])} pages in {folder} are up to date."
    )


def page_names():
    return [context.command_path.replace(" ", "-") for context in _contexts()]


def test_directory_can_be_chosen(home, capsys, monkeypatch):
    assert f"`man -l {home}/pages/holdfast-up.1`" in run(capsys, "install", "--dir", str(home / "pages"))
    assert (home / "pages" / "holdfast.1").exists()
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "data"))
    assert f"export MANPATH={home}/data/man:" in run(capsys, "install")


def test_file_of_another_program_is_not_replaced(home):
    path = home / ".local/share/man/man1/holdfast-stop.1"
    path.parent.mkdir(parents=True)
    path.write_text(".TH MINE 1\n")
    holdfast = HoldfastCli(home)
    ended = holdfast.run("man", "install")
    assert ended.returncode == 3
    assert f"{path}: belongs to another program; nothing was changed" in ended.stderr
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    path.rename(home / "moved")
    execute_hint(holdfast, ended.stderr, "Move it away, then run `holdfast man install` again.")
    assert path.exists()


def test_link_to_a_page_is_kept(home, capsys):
    run(capsys, "install")
    path, target = home / ".local/share/man/man1/holdfast.1", home / "dotfile"
    target.write_text(path.read_text() + "an earlier version\n")
    path.unlink()
    path.symlink_to(target)
    run(capsys, "install")
    assert path.is_symlink()
    assert "an earlier version" not in target.read_text()


@pytest.mark.parametrize("value", ["", "file", "a\0b"])
def test_unusable_directory_is_a_usage_error(home, capsys, monkeypatch, value):
    monkeypatch.chdir(home)
    (home / "file").touch()
    assert run_command(cli, ["man", "install", "--dir", value]) == 2
    first, _ = capsys.readouterr().err.splitlines()
    assert first.startswith("x --dir ")
    assert "; write the path of a directory" in first


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="drops the rights of root")
def test_read_only_directory_is_reported_with_its_path(home):
    (home / "locked").mkdir(mode=0o500)
    prefix = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")
    ended = HoldfastCli(home, prefix=prefix).run("man", "install", "--dir", str(home / "locked" / "deep"))
    assert ended.returncode == 3
    assert f"{home}/locked/deep: Permission denied" in ended.stderr
    assert "--dir" in ended.stderr


def test_unknown_command_names_the_list_of_commands(home):
    holdfast = HoldfastCli(home)
    ended = holdfast.run("man", "show", "sandbox", "vanish")
    assert ended.returncode == 2
    assert "command 'sandbox vanish': does not exist" in ended.stderr
    assert "sandbox" in execute_hint(holdfast, ended.stderr, "Run `holdfast --help` to list all commands.")


def test_page_is_printed_as_source_in_a_pipe_and_as_json(home, capsys):
    source = run(capsys, "show")
    assert source.splitlines()[1].startswith(".TH HOLDFAST 1 ")
    assert json.loads(run(capsys, "show", "--json")) == {"name": "holdfast", "source": source}


def show_on_terminal(path):
    """Run `holdfast man show up` on a terminal with this PATH; return the exit code and the output."""
    argv = [sys.executable, "-m", "holdfast.cli", "man", "show", "up"]
    environment = {**os.environ, "PATH": path, "PAGER": "cat", "MANPAGER": "cat", "TERM": "dumb"}
    terminal = ProgramOnTerminal(argv, environment, 100)
    output = terminal.read_rest().decode()
    return terminal.wait_exit_code(), output


@pytest.mark.skipif(shutil.which("man") is None, reason="needs man")
def test_page_is_shown_with_man_on_a_terminal(home):
    exit_code, output = show_on_terminal(os.environ["PATH"])
    assert exit_code == 0
    assert "HOLDFAST-UP(1)" in output
    assert ".SH" not in output


def test_missing_man_is_reported(home):
    exit_code, output = show_on_terminal(str(home))
    assert exit_code == 3
    assert "man: not found on this machine [tool-missing]" in output
