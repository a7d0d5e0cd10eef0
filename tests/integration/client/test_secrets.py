"""Secrets, updates and usage through the commands and the SDK, against the real server and controller."""

import asyncio
import json
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from tests.support.hints import execute_hint, hint_commands

from holdfast.api import SandboxSecret
from holdfast.errors import ObjectConflictError, SecretNotFoundError, UsageError

pytestmark = pytest.mark.apiserver

VALUE = "planted-value-0815"


@pytest.fixture
def name():
    return f"s-{uuid.uuid4().hex[:6]}"


@pytest.fixture
def run(source, sandboxes):
    """Run `holdfast …` with text on its standard input."""

    def call(*words, stdin="", **variables):
        return subprocess.run(
            [str(Path(sys.executable).parent / "holdfast"), *words], input=stdin, text=True,
            env={**source.holdfast.environment, **variables}, capture_output=True, timeout=120, check=False,
        )  # fmt: skip

    return call


@pytest.fixture
def secrets(source):
    with source.gateway.secrets() as found:
        yield found


def test_command_reads_every_source_and_prints_no_value(run, secrets, name, tmp_path):
    (tmp_path / "env").write_text(f"# comment\n\nA={VALUE}=x\n  B = \n")
    (tmp_path / "cert").write_bytes(b"\x00\xff")
    ended = run(
        "secret", "create", name, "--from-env-file", str(tmp_path / "env"), "--from-file",
        f"tls.crt={tmp_path / 'cert'}", "--from-env", "MINE", "--from-stdin", "PASSWORD",
        stdin=f"{VALUE}\n", MINE=VALUE,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == f"Secret {name} is created: A, B, MINE, PASSWORD, tls.crt.\n"
    shown = [
        run("secret", *words) for words in (("list", "--json"), ("get", name), ("delete", name, "--yes"))
    ]
    assert all(one.returncode == 0 for one in shown)
    assert VALUE not in "".join(one.stdout + one.stderr for one in [ended, *shown])


def test_command_reads_lines_from_stdin_and_is_idempotent(run, name):
    effects = []
    for words, text in (((), "A=1\n"), ((), "A=1\n"), (("--replace",), "A=2\n")):
        ended = run("secret", "create", name, "--json", *words, stdin=text)
        effects.append(json.loads(ended.stdout)["effect"])
    assert effects == ["created", "unchanged", "replaced"]
    refused = run("secret", "create", name, stdin=f"A={VALUE}\nB=1\n")
    assert refused.returncode == 3
    assert f"secret {name}: exists, and differs in A, B [object-conflict]" in refused.stderr
    assert VALUE not in refused.stderr


@pytest.mark.parametrize(
    ("words", "stdin", "message"),
    [
        (["A=planted-value-0815"], "", "values as arguments are visible"),
        ([], "", "no values"),
        ([], "planted-value-0815\n", "line 1 is not KEY=VALUE"),
        (["--from-env", "A=planted-value-0815"], "", "--from-env A=…: not a variable"),
        (["--from-env", "NO_SUCH_VARIABLE"], "", "--from-env NO_SUCH_VARIABLE: not a variable"),
        (["--from-file", "planted"], "", "--from-file planted: not KEY=FILE"),
        (["--from-file", "A=/no/such/file"], "", "--from-file A=/no/such/file: not a file"),
        (["--from-env-file", "/no/such/file"], "", "--from-env-file /no/such/file: not a file"),
        (["--from-stdin", "a b"], "planted-value-0815", "--from-stdin 'a b': not a valid key"),
        (["--from-stdin", "A", "--from-env-file", "-"], "", "--from-stdin: cannot be combined"),
        (["--from-env", "HOME", "--from-stdin", "HOME"], "", "given twice"),
    ],
)
def test_bad_input_names_the_option_and_quotes_no_value(run, name, words, stdin, message):
    ended = run("secret", "create", name, *words, stdin=stdin, HOLDFAST_GATEWAY="unknown")
    assert ended.returncode == 2
    assert message in ended.stderr
    assert VALUE not in ended.stderr + ended.stdout
    assert len(ended.stderr.splitlines()) <= 2


def test_deletion_needs_confirmation_and_names_the_sandboxes(run, secrets, sandboxes, name):
    secrets.create(name, {"A": VALUE})
    sandboxes.create(name, "app:1", workspace=False, secrets=[name])
    refused = run("secret", "delete", name)
    assert refused.returncode == 2
    assert f"Used by {name}: they cannot be resumed without it." in refused.stderr
    assert secrets.get(name).sandboxes == [name]
    assert run("secret", "delete", name, "--yes").returncode == 0
    assert run("secret", "delete", name, "--yes", "--ignore-missing").returncode == 0
    assert secrets.delete(name, ignore_missing=True).deleted is False


def test_missing_secret_is_an_error_with_the_command_that_creates_it(run, source, sandboxes, name):
    words = ("sandbox", "create", name, "--image", "app:1", "--no-workspace", "--secret", name)
    failed = run(*words)
    assert failed.returncode == 3
    (command,) = hint_commands(
        failed.stderr, "Run `holdfast secret create {}` with KEY=VALUE lines on its standard input."
    )
    assert run(*command.split()[1:], stdin=f"A={VALUE}\n").returncode == 0
    assert run(*words).returncode == 0
    assert sandboxes.sandbox(name).get().phase == "Ready"


def test_unknown_secret_hint(run, source):
    printed = run("secret", "get", "ghost").stderr
    assert "secret ghost: not found on gateway source [secret-missing]" in printed
    execute_hint(source.holdfast, printed, "Run `holdfast secret list` to list all secrets.")


def test_sdk_creates_replaces_and_deletes_secrets(secrets, sandboxes, name):
    assert secrets.create(name, {"A": VALUE, "B": b"\xff"}).effect == "created"
    assert secrets.create(name, {"A": VALUE, "B": b"\xff"}).effect == "unchanged"
    with pytest.raises(ObjectConflictError) as caught:
        secrets.create(name, {"A": "other"})
    assert VALUE not in str(caught.value)
    assert secrets.create(name, {"A": VALUE}, replace=True).effect == "replaced"
    assert secrets.get(name).keys == ["A"]
    assert name in [view.name for view in secrets.list()]
    sandboxes.create(name, "app:1", workspace=False, secrets=[SandboxSecret(name=name, path="/etc/x")])
    assert secrets.delete(name).sandboxes == [name]
    with pytest.raises(SecretNotFoundError):
        secrets.get(name)
    with pytest.raises(SecretNotFoundError, match=name):
        sandboxes.create(f"{name}-b", secrets=[name])


def test_async_clients_have_the_same_methods(source, name):
    async def use():
        async with source.gateway.secrets() as secrets:
            await secrets.create(name, {"A": VALUE})
            keys = (await secrets.get(name)).keys, [view.name for view in await secrets.list()]
            await secrets.delete(name)
        async with source.gateway.sandboxes() as sandboxes:
            sandbox = await sandboxes.create(name, "app:1", workspace=False)
            result = await sandbox.update(labels={"team": "red"})
            usage = await sandboxes.usage()
            return keys, result, [one.name for one in usage.sandboxes]

    (keys, listed), result, used = asyncio.run(use())
    assert keys == ["A"]
    assert name in listed
    assert result.sandbox.labels["team"] == "red"
    assert name in used


@pytest.mark.parametrize("values", [{}, {"": "x"}, {"a b": VALUE}, {"A": 1}, VALUE, None])
def test_sdk_rejects_bad_values_without_quoting_them(secrets, name, values):
    with pytest.raises(UsageError) as caught:
        secrets.create(name, values)
    assert VALUE not in str(caught.value)


def test_update_prints_what_waits_and_the_commands_that_apply_it(run, sandboxes, name):
    box = sandboxes.create(name, "app:1", workspace=False)
    box.wait()
    ended = run("sandbox", "update", name, "-e", "A=1", "-l", "team=red", "--idle-suspend-after", "900")
    assert ended.returncode == 0, ended.stderr
    applied, pending, *commands = ended.stdout.splitlines()
    assert applied == f"Sandbox {name}: in effect: labels, idle_suspend_after."
    assert pending == f"Sandbox {name}: at the next resume: env."
    assert commands == [f"holdfast sandbox suspend {name}", f"holdfast sandbox resume {name}"]
    for command in commands:
        assert run(*command.split()[1:]).returncode == 0
    again = run("sandbox", "update", name, "-e", "A=1")
    assert again.stdout == f"Sandbox {name}: in effect: env.\n"
    removed = run("sandbox", "update", name, "--unset-env", "A", "--unset-label", "team", "--json")
    assert json.loads(removed.stdout)["pending"] == ["env"]
    assert "team" not in json.loads(removed.stdout)["sandbox"]["labels"]
    assert run("sandbox", "update", name, "--idle-suspend-after", "never").returncode == 0
    assert box.get().idle_suspend_after is None


def test_update_of_suspended_sandbox_names_the_resume_only(run, sandboxes, name):
    box = sandboxes.create(name, "app:1", workspace=False)
    box.suspend()
    box.wait("Suspended")
    ended = run("sandbox", "update", name, "--memory", "1Gi")
    assert ended.stdout.splitlines()[-1] == f"holdfast sandbox resume {name}"
    assert "suspend" not in ended.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "no changes given"),
        (["--memory", "1k"], "--memory 1k"),
        (["--cpu", "-1"], "cpu"),
        (["--env", "=x"], "env"),
        (["--env", "A=1", "--unset-env", "A"], "--unset-env A"),
        (["--label", "kubernetes.io/x=1"], "reserved"),
        (["--idle-suspend-after", "0"], "--idle-suspend-after 0: less than 1; write"),
        (["--shutdown-after", "ä"], "--shutdown-after ä: not a whole number"),
        (["--failed-pods", "maybe"], "--failed-pods maybe: not one of the choices"),
        (["--image", "a b"], "image"),
    ],
)
def test_bad_updates_are_usage_errors_before_any_network_access(run, name, words, message):
    ended = run("sandbox", "update", name, *words, HOLDFAST_GATEWAY="unknown")
    assert ended.returncode == 2
    assert message in ended.stderr
    assert "unknown" not in ended.stderr


def test_usage_without_a_kubelet_shows_sandboxes_with_missing_figures(run, sandboxes, name):
    box = sandboxes.create(name, "app:1", workspace=False, cpu="500m", memory="1Gi")
    box.wait()
    report = sandboxes.usage()
    (usage,) = [one for one in report.sandboxes if one.name == name]
    assert (usage.cpu, usage.cpu_limit, usage.memory, usage.memory_limit) == (None, 0.5, None, 1 << 30)
    assert report.node is None
    printed = run("top").stdout
    row = next(line for line in printed.splitlines() if line.startswith(name))
    assert row.split()[1:5] == ["Ready", "-/500m", "-/1Gi", "-"]
    assert "The kubelet does not report CPU, memory and disk." in printed
    assert [one["name"] for one in json.loads(run("top", "--json").stdout)["sandboxes"]] == [name]
