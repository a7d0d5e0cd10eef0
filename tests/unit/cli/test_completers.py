"""Names that the shell completes, and what happens if an API does not answer."""

import socket
import subprocess
import sys
import time

import msgspec
import pytest
from click.shell_completion import ZshComplete
from tests.support.completion_world import (
    GATEWAYS,
    IMAGES,
    POOLS,
    SANDBOXES,
    TEMPLATES,
    completion_world,
    record_run,
)

from holdfast.cli import cli, completers
from holdfast.gateway.registry import GatewayMetadata, read_metadata, write_metadata
from holdfast.gateway.tunnel import Tunnel
from holdfast.remote import parse_target


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def world(home, monkeypatch):
    with completion_world(home) as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        # The servers run in this process, on a machine that may be busy.
        monkeypatch.setattr(completers, "RESPONSE_TIMEOUT", 30.0)
        monkeypatch.setattr(completers, "COMPLETION_TIMEOUT", 60.0)
        yield environment


def set_remote(name, remote):
    write_metadata(msgspec.structs.replace(read_metadata(name), remote=remote))


def completion_items(line):
    *words, incomplete = line.split(" ")
    return ZshComplete(cli, {}, "holdfast", "_HOLDFAST_COMPLETE").get_completions(words, incomplete)


def complete(line):
    """The completions of the last word of a command line, without local files."""
    return [item.value for item in completion_items(line) if item.type == "plain"]


@pytest.mark.parametrize("line", ["status ", "up ", "sandbox list -g ", "image push --gateway ", "runs -g "])
def test_gateway_names(world, line):
    assert complete(line) == GATEWAYS
    assert complete(f"{line}b") == ["betagate"]


@pytest.mark.parametrize("command", ["get", "exec", "connect", "delete", "logs", "suspend", "forward", "ps"])
def test_sandbox_names_of_the_active_gateway(world, command):
    assert complete(f"sandbox {command} ") == SANDBOXES
    assert complete(f"sandbox {command} r") == ["redbox"]


@pytest.mark.parametrize("command", ["delete", "suspend", "resume", "wait"])
def test_further_sandboxes_are_completed_without_those_already_given(world, command):
    assert complete(f"sandbox {command} redbox ") == ["bluebox"]
    assert complete(f"sandbox {command} -g betagate bluebox --timeout 9 r") == ["redbox"]
    assert complete(f"sandbox {command} redbox bluebox ") == []


def test_formats_of_the_output(home):
    assert complete("sandbox list -o ") == ["wide", "yaml", "name", "json"]
    assert complete("sandbox list --output w") == ["wide"]
    assert complete("sandbox get a -o ") == ["yaml", "name", "json"]
    assert {"--selector", "--all"} <= set(complete("sandbox delete --"))
    assert {"--selector", "--watch", "--output"} <= set(complete("sandbox list --"))


def test_commands_of_manual_pages(home):
    assert complete("man show sa") == ["sandbox"]
    assert complete("man show sandbox de") == ["delete"]
    assert complete("man show sandbox delete ") == complete("man show nothing ") == []


def test_sandbox_names_of_the_chosen_gateway(world):
    assert complete("sandbox get -g betagate ") == SANDBOXES
    assert complete("sandbox get -g ghost ") == []


@pytest.mark.parametrize(
    "command", ["template get", "template delete", "pool create p --template", "sandbox create a --template"]
)
def test_template_names_of_the_active_gateway(world, command):
    assert complete(f"{command} ") == TEMPLATES
    assert complete(f"{command} x") == []


@pytest.mark.parametrize("command", ["get", "scale", "wait", "delete"])
def test_pool_names_of_the_active_gateway(world, command):
    assert complete(f"pool {command} ") == POOLS
    (item,) = completion_items(f"pool {command} w")
    assert item.help == "1/3 ready"


def test_copy_completes_sandboxes_and_local_files(world):
    assert complete("sandbox cp ") == complete("sandbox ls ") == ["redbox:", "bluebox:"]
    assert completion_items("sandbox ls fi") == []
    assert [(item.type, item.value) for item in completion_items("sandbox cp a fi")] == [("file", "fi")]


@pytest.mark.parametrize(
    "line", ["image push ", "sandbox create a --image ", "up --push-image ", "upgrade --image "]
)
def test_image_names_of_the_local_engine(world, line):
    assert complete(line) == IMAGES


def test_run_ids_of_all_gateways_or_one(world):
    ids = [record_run(name) for name in GATEWAYS]
    assert complete("runs show ") == ["last", *reversed(ids)]
    assert complete("runs show -g alphagate ") == ["last", ids[0]]
    assert complete(f"runs show {ids[1][:-1]}") == [ids[1]]


def test_commands_and_options(home):
    assert complete("sandbox res") == ["resume"]
    assert complete("completion ") == ["install", "show"]
    assert "--json" in complete("up --")


def test_unreadable_store_prints_nothing(home, capfd):
    path = home / "state" / "gateways" / "dev" / "state.db"
    path.parent.mkdir(parents=True)
    path.write_text("not a database")
    assert complete("runs show ") == []
    assert capfd.readouterr().err == ""


def test_nothing_is_completed_without_gateways_and_engine(home, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{home}/no.sock")
    for line in ("status ", "sandbox get ", "runs show ", "image push "):
        assert complete(line) == []


def test_silent_api_and_silent_engine_complete_nothing(world, home, monkeypatch):
    """A server that accepts connections and never answers, such as the proxy of a paused container."""
    with socket.create_server(("127.0.0.1", 0)) as api, socket.socket(socket.AF_UNIX) as engine:
        engine.bind(str(home / "silent.sock"))
        engine.listen()
        monkeypatch.setenv("DOCKER_HOST", f"unix://{home}/silent.sock")
        monkeypatch.setattr(completers, "RESPONSE_TIMEOUT", 0.05)
        port = api.getsockname()[1]
        write_metadata(GatewayMetadata(name=GATEWAYS[0], image="x", port=1, gateway_port=port))
        assert complete("sandbox get ") == []
        assert complete("image push ") == []


def test_tunnel_of_a_remote_gateway_is_not_opened(home, monkeypatch):
    """ssh may take seconds, or ask for a password on the terminal."""
    monkeypatch.setenv("PATH", str(home))  # an attempt to start ssh would fail with another error
    write_metadata(GatewayMetadata(name="far", image="x", port=1, gateway_port=2, remote="user@host"))
    assert complete("sandbox get -g far ") == []


def test_tunnel_process_that_hangs_does_not_delay_the_shell(world, monkeypatch):
    """ssh itself waits for the process of the tunnel, which accepts connections and never answers."""
    monkeypatch.setenv("HOLDFAST_TIMEOUTS_SSH", "600")
    monkeypatch.setattr(completers, "COMPLETION_TIMEOUT", 0.2)
    set_remote(GATEWAYS[0], "me@far")
    tunnel = Tunnel(GATEWAYS[0], parse_target("me@far"))
    tunnel.save_if_new()
    tunnel.state_file.write_text(tunnel.state_file.read_text().replace("{", '{"pid": 1, ', 1))
    tunnel.control_master.directory.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    with socket.socket(socket.AF_UNIX) as hanging:
        hanging.bind(str(tunnel.control_master.directory / "ctl"))
        hanging.listen()
        assert complete("sandbox get ") == []
        hanging.settimeout(0.1)
        hanging.accept()[0].close()  # ssh has asked it
    assert time.monotonic() - started < 60  # ssh would wait longer


@pytest.mark.parametrize(
    ("line", "heavy"),
    [
        ("status ", {"docker", "kubernetes", "asyncio", "rich", "sqlite3"}),
        ("sandbox get ", {"docker", "kubernetes", "aiohttp", "rich", "sqlite3", "holdfast.workflow.runner"}),
        ("pool scale ", {"docker", "kubernetes", "aiohttp", "rich", "sqlite3", "holdfast.workflow.runner"}),
        ("template get ", {"docker", "kubernetes", "aiohttp", "rich", "sqlite3", "holdfast.workflow.runner"}),
        ("image push ", {"docker", "kubernetes", "aiohttp", "rich", "sqlite3"}),
        ("runs show ", {"docker", "kubernetes", "aiohttp", "rich"}),
        ("s", {"docker", "kubernetes", "asyncio", "rich", "sqlite3", "msgspec", "holdfast.gateway"}),
    ],
)
def test_completions_import_nothing_heavy(world, line, heavy):
    record_run(GATEWAYS[0])
    program = (
        "import sys; from click.shell_completion import ZshComplete; from holdfast.cli import cli\n"
        f"words = {line.split(' ')!r}; complete = ZshComplete(cli, {{}}, 'holdfast', 'X')\n"
        "complete.get_completions(words[:-1], words[-1])\n"
        "print(*sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not heavy & set(ended.stdout.split())
