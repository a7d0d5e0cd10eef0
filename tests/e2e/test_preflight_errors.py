"""Invalid requests are refused with one error, before anything is created, changed or removed."""

import http.server
import json
import os
import shutil
import socket
import socketserver
import threading
from contextlib import contextmanager

import pytest
import yaml
from tests.support.gateway import TestGateway
from tests.support.hints import execute_hint
from tests.support.holdfast_cli import HoldfastCli
from tests.support.skewed_clock import skewed_clock_environment

from holdfast.containers import find_container, find_network, find_volume, labels
from holdfast.gateway.spec import CONTRACT_VERSION
from holdfast.remote import connect

YEAR = 365 * 24 * 3600


def assert_refused(ended, exit_code, code, *words):
    """One error of that code without a traceback."""
    assert ended.returncode == exit_code, ended.stderr
    assert "Traceback" not in ended.stderr
    assert f"[{code}]" in ended.stderr
    for word in words:
        assert word in ended.stderr, ended.stderr


@pytest.fixture(scope="module")
def gateway(new_gateway):
    """One gateway that is up, but not where it was to listen first; tests leave it as they found it."""
    made = new_gateway("refusals")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        made.taken = str(taken.getsockname()[1])
        made.refused = made.holdfast.run("up", made.name, "--port", made.taken)
        made.first = made.up("--port", "auto", "--use")
    return made


@pytest.fixture
def cli_without_engine(tmp_path):
    """A user without any engine, to whom no gateway is known."""
    made = HoldfastCli(tmp_path / "home", DOCKER_HOST=f"unix://{tmp_path}/none.sock")
    yield made
    assert not list((tmp_path / "home").rglob("*.json"))


INVALID_NAMES = (
    "größe", "日本", "e\u0301te\u0301", "dev\u200b", "\u202eved", "🚀", "\uff44\uff45\uff56",
    os.fsdecode(b"dev\xff"), "x" * 201,
)  # fmt: skip


@pytest.mark.parametrize("name", INVALID_NAMES, ids=ascii)
def test_invalid_name_is_rejected(cli_without_engine, name):
    assert_refused(cli_without_engine.run("up", name), 2, "illegal-name")


@pytest.mark.parametrize("command", ["status", "upgrade", "kubeconfig", "destroy"])
def test_invalid_name_is_rejected_by_every_command(cli_without_engine, command):
    assert_refused(cli_without_engine.run(command, "größe"), 2, "illegal-name", "größe")


def test_invalid_name_is_rejected_in_ascii_locale(tmp_path):
    """A terminal that knows ASCII alone."""
    plain = HoldfastCli(tmp_path, LC_ALL="C", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert_refused(plain.run("up", "größe"), 2, "illegal-name")


def test_unknown_key_in_settings_file(cli_without_engine, tmp_path):
    (tmp_path / "holdfast.toml").write_text("[timeouts]\nnode_redy = 5\n")
    ended = cli_without_engine.run("up", "dev", cwd=tmp_path)
    assert_refused(ended, 2, "bad-setting", "node_redy", "node_ready", "holdfast.toml")


@contextmanager
def old_engine(path):
    """An engine from years ago, as far as it is asked about itself."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            about = {"ApiVersion": "1.38", "MinAPIVersion": "1.12", "Version": "18.06.3-ce", "ID": "OLD"}
            known = self.path.endswith(("/version", "/info"))
            body = json.dumps(about if known else {"message": "No such object"}).encode()
            self.send_response(200 if known else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def address_string(self):
            return "local"

        def log_message(self, *_):
            """Quiet."""

    class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
        daemon_threads = True

    with Server(str(path), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"unix://{path}"
        server.shutdown()


def test_engine_version_too_old(tmp_path):
    with old_engine(tmp_path / "old.sock") as address:
        ended = HoldfastCli(tmp_path / "home", DOCKER_HOST=address).run("up", "dev")
    assert_refused(ended, 3, "engine-unfit", "1.38", "20.10")


@pytest.mark.engine
def test_node_image_for_other_architecture(new_gateway, small_images):
    other = small_images.build(
        [{"x": b"x"}], architecture="s390x", labels={labels.CONTRACT: CONTRACT_VERSION}
    )
    gateway, engine = new_gateway("arch"), connect()
    assert_refused(
        gateway.holdfast.run("up", gateway.name, "--image", other),
        3,
        "image-unfit",
        "s390x",
        "the engine runs",
    )
    assert find_container(engine, gateway.container) is None
    assert find_network(engine, gateway.container) is None
    assert find_volume(engine, gateway.container) is None


@pytest.mark.engine
def test_taken_port_names_its_holder_and_next_up_continues(gateway):
    holder = f"process {os.getpid()}"
    assert_refused(gateway.refused, 3, "port-taken", gateway.taken, holder, "--port auto")
    assert not gateway.first["server"].endswith(f":{gateway.taken}")


@pytest.mark.engine
def test_taken_port_and_foreign_address_change_nothing_of_a_running_gateway(gateway):
    before = gateway_state(gateway)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for words in (("--port", port), ("--port", port, "--recreate"), ("--port", port, "--plan")):
            assert_refused(gateway.holdfast.run("up", gateway.name, *words), 3, "port-taken", port)
        ended = gateway.holdfast.run("up", gateway.name, "--listen", "192.0.2.1")
        assert_refused(ended, 2, "bad-setting", "192.0.2.1", "nothing was changed")
    assert gateway_state(gateway) == before
    assert gateway.up()["changed"] == []


@pytest.mark.engine
def test_plan_of_an_inactive_gateway_has_no_changes(gateway):
    gateways = gateway.holdfast.home / "config" / "gateways"
    record = json.loads((gateways / gateway.name / "metadata.json").read_text())
    (gateways / "another").mkdir()
    (gateways / "another" / "metadata.json").write_text(json.dumps({**record, "name": "another"}))
    gateway.holdfast("use", "another")
    try:
        ended = gateway.holdfast.run("up", gateway.name, "--plan")
    finally:
        gateway.holdfast("use", gateway.name)
        shutil.rmtree(gateways / "another")
    assert (ended.returncode, ended.stdout) == (0, f"Gateway {gateway.name}: no changes\n")


@pytest.mark.engine
def test_unchanged_gateway_is_one_line(gateway):
    ended = gateway.holdfast.run("up", gateway.name)
    assert len((ended.stdout + ended.stderr).splitlines()) == 1
    assert "Nothing had to be changed" in ended.stdout


@pytest.mark.engine
@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="the engine can have GPUs")
def test_setting_that_the_engine_rejects_leaves_the_gateway_up(gateway):
    ended = gateway.holdfast.run("up", gateway.name, "--gpus", "all")
    assert ended.returncode in (1, 3), ended.stderr
    assert "previous settings" in ended.stderr
    assert gateway.holdfast.json("status", gateway.name)["state"] == "ready"
    assert gateway.up()["changed"] == []
    assert gateway.holdfast.run("doctor", gateway.name, "--fix").returncode == 0


def published_port(gateway, port):
    """The host's port for a port of the node, whether it runs or not."""
    return int(gateway.inspect()["HostConfig"]["PortBindings"][f"{port}/tcp"][0]["HostPort"])


@contextmanager
def start_on_taken_port(gateway, port):
    """Stop the gateway, listen on its port, and yield what `start` prints."""
    gateway.holdfast("stop", gateway.name)
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", port))
        taken.listen()
        ended = gateway.holdfast.run("start", gateway.name)
        assert_refused(ended, 3, "port-taken", str(port), f"process {os.getpid()}")
        yield ended.stderr


@pytest.mark.engine
def test_hint_for_kubernetes_port_taken_while_stopped(gateway):
    before = published_port(gateway, 6443)
    with start_on_taken_port(gateway, before) as printed:
        execute_hint(gateway.holdfast, printed, "Stop that program, or run `holdfast up {} --port auto`.")
    assert published_port(gateway, 6443) != before


@pytest.mark.engine
def test_hint_for_gateway_port_taken_while_stopped(gateway):
    before = published_port(gateway, 8443)
    with start_on_taken_port(gateway, before) as printed:
        execute_hint(
            gateway.holdfast,
            printed,
            "Stop that program, or run `HOLDFAST_GATEWAY_PORT=auto holdfast up {}`.",
        )
    assert published_port(gateway, 8443) != before


@pytest.mark.engine
def test_invalid_or_foreign_kubeconfig_merge_target_is_unchanged(gateway, tmp_path):
    file = tmp_path / "config"
    merging = HoldfastCli(gateway.holdfast.home, KUBECONFIG=str(file))
    for content in (b"\x00\xff binary", b"- a\n- list\n", b"clusters: {a: b}\n", b"{half"):
        file.write_bytes(content)
        ended = merging.run("kubeconfig", gateway.name, "--merge")
        assert_refused(ended, 3, "damaged-file", str(file), "was not changed")
        assert file.read_bytes() == content
    file.write_text("contexts: [{name: theirs, context: {cluster: a, user: b}}]\ncurrent-context: theirs\n")
    if os.geteuid() == 0:
        os.chown(file, 65534, 65534)
        assert_refused(
            merging.run("kubeconfig", gateway.name, "--merge"), 3, "damaged-file", "owned by another user"
        )
        os.chown(file, 0, 0)
    file.chmod(0o400)
    assert_refused(merging.run("kubeconfig", gateway.name, "--merge"), 3, "damaged-file", "read-only")
    file.chmod(0o600)
    merging("kubeconfig", gateway.name, "--merge")
    merged = yaml.safe_load(file.read_text())
    assert [one["name"] for one in merged["contexts"]] == ["theirs", gateway.container]


@pytest.mark.engine
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can take root's rights away")
def test_unreadable_kubeconfig_merge_target_is_unchanged(gateway, tmp_path):
    file = tmp_path / "config"
    file.write_text("apiVersion: v1\n")
    file.chmod(0o200)
    without_root_rights = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")
    outsider = HoldfastCli(gateway.holdfast.home, prefix=without_root_rights, KUBECONFIG=str(file))
    ended = outsider.run("kubeconfig", gateway.name, "--merge")
    assert_refused(ended, 3, "damaged-file", str(file), "Permission denied", "was not changed")
    assert file.read_text() == "apiVersion: v1\n"


def gateway_state(gateway):
    """What must be the same after a refusal."""
    container, folder = gateway.inspect(), gateway.holdfast.home / "config" / "gateways" / gateway.name
    files = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return container["Id"], container["State"]["StartedAt"], files


@pytest.mark.engine
@pytest.mark.skipif(
    shutil.which("cc") is None, reason="another clock for one command is made with a compiler"
)
@pytest.mark.parametrize("seconds", [-3 * YEAR, pytest.param(30 * YEAR, marks=pytest.mark.slow)])
def test_clock_skew_is_reported_before_any_change(gateway, tmp_path, seconds):
    before = gateway_state(gateway)
    wrong = HoldfastCli(
        gateway.holdfast.home, HOLDFAST_WORKLOADS="false", **skewed_clock_environment(seconds, tmp_path)
    )
    ended = wrong.run("up", gateway.name)
    assert ended.returncode == 3, ended.stderr
    assert "Traceback" not in ended.stderr
    assert "clock" in ended.stderr
    found = json.loads(wrong.run("doctor", gateway.name, "--json").stdout)["report"]["findings"]
    assert "clock-skew" in {one["code"] for one in found if one["severity"] == "problem"}
    assert gateway_state(gateway) == before
    assert gateway.up()["changed"] == []


def destroy_with_answer(gateway, *words, answer):
    """Run a command at a terminal, answer its question, and return its exit code and what it printed."""
    ours, theirs = os.openpty()
    try:
        running = gateway.holdfast.start(*words, stdin=theirs)
        os.write(ours, f"{answer}\n".encode())
        said, told = running.communicate(timeout=60)
        return running.returncode, said + told
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.engine
def test_destroy_prompts_for_name_and_rejects_other_name(gateway, new_gateway):
    """The active gateway is the one that is meant when none is named: what is typed has to be its name."""
    before, other = gateway_state(gateway), TestGateway("t-never-made", gateway.holdfast)
    for words in (["destroy", gateway.name, "--data"], ["destroy", "--data"]):
        for answer in (other.name, gateway.name.upper(), f"{gateway.name} ", ""):
            code, told = destroy_with_answer(gateway, *words, answer=answer)
            assert code == 2, told
            assert gateway.name in told
            assert "nothing was changed" in told
    ended = gateway.holdfast.run("destroy", "--data", "--yes", other.name)
    assert_refused(ended, 2, "usage", other.name, gateway.name, "nothing was changed")
    assert gateway_state(gateway) == before
    assert find_volume(connect(), gateway.container) is not None


@pytest.mark.engine
def test_destroy_without_terminal_requires_confirmation(gateway):
    ended = gateway.holdfast.run("destroy", gateway.name, "--data", "--yes", "another")
    assert_refused(ended, 2, "usage", "another", gateway.name, "nothing was changed")
    ended = gateway.holdfast.run("destroy", gateway.name, "--data")
    assert_refused(ended, 2, "usage", "has to be confirmed")
    assert find_volume(connect(), gateway.container) is not None
