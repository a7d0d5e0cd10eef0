"""`holdfast completion install | show`: where the script goes, and what is never replaced."""

import json

import pytest
from tests.support.hints import execute_hint
from tests.support.holdfast_cli import HoldfastCli

from holdfast.cli import cli
from holdfast.cli.output import run_command

PATHS = {
    "bash": ".local/share/bash-completion/completions/holdfast",
    "zsh": ".zfunc/_holdfast",
    "fish": ".config/fish/completions/holdfast.fish",
}
MOVED = {
    "bash": ("XDG_DATA_HOME", "bash-completion/completions/holdfast"),
    "zsh": ("ZDOTDIR", ".zfunc/_holdfast"),
    "fish": ("XDG_CONFIG_HOME", "fish/completions/holdfast.fish"),
}


@pytest.fixture
def home(tmp_path, monkeypatch):
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "BASH_COMPLETION_USER_DIR", "ZDOTDIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def run(capsys, *args):
    assert run_command(cli, ["completion", *args]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("shell", PATHS)
def test_install_writes_to_the_directory_of_the_user_once(home, capsys, shell):
    path = home / PATHS[shell]
    assert run(capsys, "install", shell).startswith(f"Installed {path}.\n")
    assert run(capsys, "show", shell).strip() in path.read_text()
    before = path.stat()
    assert run(capsys, "install", shell).startswith(f"{path} is up to date.\n")
    assert path.stat() == before
    result = json.loads(run(capsys, "install", shell, "--json"))
    assert result == {"shell": shell, "path": str(path), "changed": False}


@pytest.mark.parametrize("shell", MOVED)
def test_variables_of_the_shell_move_the_script(home, capsys, monkeypatch, shell):
    variable, path = MOVED[shell]
    monkeypatch.setenv(variable, str(home / "moved"))
    run(capsys, "install", shell)
    assert (home / "moved" / path).exists()


@pytest.mark.parametrize("shell", PATHS)
def test_script_of_an_earlier_version_is_replaced(home, capsys, shell):
    path = home / PATHS[shell]
    run(capsys, "install", shell)
    current = path.read_text()
    path.write_text(f"# an earlier script\n{current}")
    run(capsys, "install", shell)
    assert path.read_text() == current


def test_link_to_the_script_is_kept(home, capsys):
    """Some users keep their configuration in a repository and link to it."""
    path, target = home / PATHS["bash"], home / "dotfiles"
    run(capsys, "install", "bash")
    path.rename(target)
    path.symlink_to(target)
    target.write_text(f"# an earlier script\n{target.read_text()}")
    run(capsys, "install", "bash")
    assert path.is_symlink()
    assert not target.read_text().startswith("# an earlier script")


def test_file_of_another_program_is_not_replaced(home):
    path = home / PATHS["fish"]
    path.parent.mkdir(parents=True)
    path.write_text("# mine\n")
    holdfast = HoldfastCli(home)
    ended = holdfast.run("completion", "install", "fish")
    assert ended.returncode == 3
    assert f"{path}: belongs to another program; nothing was changed" in ended.stderr
    assert path.read_text() == "# mine\n"
    path.rename(home / "moved")
    execute_hint(holdfast, ended.stderr, "Move it away, then run `holdfast completion install {}` again.")
    assert "holdfast" in path.read_text()


def test_shell_of_the_user_is_the_default(home, capsys, monkeypatch):
    monkeypatch.setenv("SHELL", "/usr/bin/fish")
    assert json.loads(run(capsys, "show", "--json"))["shell"] == "fish"


def test_unknown_shell_of_the_user_names_the_command(home):
    holdfast = HoldfastCli(home, SHELL="/bin/ksh")
    ended = holdfast.run("completion", "show")
    assert ended.returncode == 2
    printed = execute_hint(holdfast, ended.stderr, "Name the shell, as in `holdfast completion show bash`.")
    assert "_HOLDFAST_COMPLETE=bash_complete" in printed


def test_unsupported_shell_is_rejected(home, capsys):
    assert run_command(cli, ["completion", "install", "tcsh"]) == 2
    assert "SHELL tcsh: not one of the choices; write bash, zsh or fish" in capsys.readouterr().err
