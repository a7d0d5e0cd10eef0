"""The built sandbox image: its user, the runtime server on its port, and its isolation from the workspace."""

from __future__ import annotations

import base64
import io
import shlex
import time
import zipfile

import pytest
import requests
from tests.support.holdfast_cli import HoldfastCli

from holdfast.remote import connect
from holdfast.sandbox.from_request import DEFAULT_IMAGE, is_sandbox_image

pytestmark = pytest.mark.engine

RUNTIME = ["/usr/bin/python3", "-I", "/usr/lib/holdfast/runtime"]
BAD_MODULES = """
site=.local/lib/python3.11/site-packages
mkdir -p $site
for name in json socket http threading holdfast sitecustomize usercustomize; do
  echo 'raise SystemExit(9)' > $name.py
  echo 'raise SystemExit(9)' > $site/$name.py
done
"""


@pytest.fixture(scope="module")
def client():
    return connect().client


@pytest.fixture(scope="module")
def image(tmp_path_factory, client):
    HoldfastCli(tmp_path_factory.mktemp("home"))("image", "build", "sandbox")
    return client.inspect_image(DEFAULT_IMAGE)


@pytest.fixture
def start_container(image, client):
    """Starts a container with as few rights as a sandbox has; returns its id."""
    made = []

    def begin(command=None, **environment):
        limits = client.create_host_config(
            cap_drop=["ALL"], security_opt=["no-new-privileges"], port_bindings={8888: ("127.0.0.1", None)},
            mem_limit="128m", pids_limit=64,
        )  # fmt: skip
        container = client.create_container(
            DEFAULT_IMAGE, command, ports=[8888], host_config=limits, environment=environment
        )["Id"]
        made.append(container)
        client.start(container)
        return container

    yield begin
    for container in made:
        client.remove_container(container, force=True)


def address(client, container):
    """Where its runtime is reached from here."""
    ports = client.inspect_container(container)["NetworkSettings"]["Ports"]["8888/tcp"]
    return f"http://127.0.0.1:{ports[0]['HostPort']}"


def get_inside_container(client, container, url):
    words = ["curl", "--silent", "--retry", "20", "--retry-connrefused", "--retry-delay", "1", url]
    return client.exec_start(client.exec_create(container, words))


def wait_for(url):
    deadline = time.monotonic() + 30
    while True:
        try:
            return requests.get(url, timeout=5).json()
        except requests.ConnectionError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def run(url, script):
    command = f"sh -c {shlex.quote(script)}"
    return requests.post(f"{url}/execute", json={"command": command}, timeout=30).json()


def test_is_default_sandbox_image(image):
    assert is_sandbox_image(DEFAULT_IMAGE)
    assert image["Config"]["User"] == "1000:1000"
    assert image["Config"]["WorkingDir"] == "/sandbox"
    # At most 1.5 times the size without pip, uv and the other tools.
    assert image["Size"] < 286e6


def wheel(name):
    """A wheel with one module and one command, as base64: the tests need no network."""
    packed, info = io.BytesIO(), f"{name}-1.0.dist-info"
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(f"{name}.py", f"def main():\n    print('{name} works')\n")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/entry_points.txt", f"[console_scripts]\n{name} = {name}:main\n")
        archive.writestr(f"{info}/RECORD", "")
    return base64.b64encode(packed.getvalue()).decode()


INSTALLATIONS = {
    "pip": "pip install -q /tmp/{file} && {name} && bash -lc {name} && python3 -c 'import {name}'",
    "venv": "python3 -m venv v && v/bin/pip install -q /tmp/{file} && v/bin/{name}",
    "uv venv": "uv venv -q && uv pip install -q --offline /tmp/{file} && .venv/bin/{name}",
    "uv tool": "uv tool install -q --offline /tmp/{file} && {name}",
}


@pytest.mark.parametrize("way", INSTALLATIONS)
def test_user_can_install_python_packages_into_the_workspace(start_container, client, way):
    url = address(client, start_container())
    wait_for(url)
    name = "example_" + way.replace(" ", "_")
    file = f"{name}-1.0-py3-none-any.whl"
    write = f"echo {wheel(name)} | base64 -d > /tmp/{file}"
    told = run(url, f"{write} && {INSTALLATIONS[way].format(file=file, name=name)}")
    assert told["exit_code"] == 0, told
    assert f"{name} works" in told["stdout"]
    # Only the workspace survives the pod.
    found = run(url, f"find / -xdev -name '{name}*' -not -path '/tmp/*' -not -path '/proc/*' 2>/dev/null")
    assert found["stdout"]
    assert {line.split("/")[1] for line in found["stdout"].split()} == {"sandbox"}


def test_contains_the_usual_tools(start_container, client):
    url = address(client, start_container())
    wait_for(url)
    for tool in ("pip", "uv", "uvx", "git", "curl", "jq", "rg", "less"):
        assert run(url, f"{tool} --version")["exit_code"] == 0, tool
    assert run(url, "python3 --version")["stdout"].startswith("Python 3.11.")


def test_new_workspace_is_empty(start_container, client):
    url = address(client, start_container())
    wait_for(url)
    assert run(url, "find /sandbox -mindepth 1")["stdout"] == ""


def test_runtime_responds_and_user_can_write_only_workspace(start_container, client):
    url = address(client, start_container())
    assert wait_for(url)["status"] == "ok"
    words = "id -un; echo $HOME; touch /sandbox/x && echo wrote; touch /usr/x; python3 -c 'print(6 * 7)'"
    told = run(url, f"{words}; git --version")
    assert told["stdout"].startswith("sandbox\n/sandbox\nwrote\n42\ngit version")
    assert "Permission denied" in told["stderr"]


def test_runtime_does_not_import_from_workspace(start_container, client):
    container = start_container()
    wait_for(address(client, container))
    run(address(client, container), BAD_MODULES)
    client.restart(container, timeout=5)
    url = address(client, container)
    assert wait_for(url)["status"] == "ok"
    assert run(url, "ls json.py")["exit_code"] == 0


def test_listens_on_configured_port(start_container, client):
    container = start_container(HOLDFAST_RUNTIME_LISTEN="127.0.0.1")
    assert b'"ok"' in get_inside_container(client, container, "http://127.0.0.1:8888/")
    with pytest.raises(requests.ConnectionError):
        requests.get(address(client, container), timeout=5)


def test_stops_immediately_with_its_child_processes(start_container, client):
    container = start_container()
    url = address(client, container)
    wait_for(url)
    run(url, "sleep 600 > /dev/null 2>&1 &")
    began = time.monotonic()
    client.stop(container, timeout=60)
    assert time.monotonic() - began < 30
    assert client.inspect_container(container)["State"]["ExitCode"] == 143


def test_contains_router(start_container, client):
    container = start_container([*RUNTIME, "router"], ALLOW_UNAUTHENTICATED_ROUTER="true")
    assert b"ok" in get_inside_container(client, container, "http://127.0.0.1:8080/healthz")


def test_invalid_argument_or_setting_is_reported_in_one_line(start_container, client):
    for command, environment, words in (
        ([*RUNTIME, "rooter"], {}, b"serve or router"),
        ([*RUNTIME, "router"], {}, b"set ALLOW_UNAUTHENTICATED_ROUTER=true"),
        (None, {"HOLDFAST_RUNTIME_PORT": "many"}, b"HOLDFAST_RUNTIME_PORT is not a port"),
    ):
        container = start_container(command, **environment)
        assert client.wait(container)["StatusCode"] == 1
        log = client.logs(container)
        assert words in log
        assert b"Traceback" not in log
