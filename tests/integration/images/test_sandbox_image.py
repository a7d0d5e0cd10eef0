"""The sandbox image as it was built: who runs in it, what answers on its port, what cannot disturb that."""

from __future__ import annotations

import time

import pytest
import requests
from tests.support.commands import Holdfast

from holdfast.containers.engine import connect
from holdfast.sandbox.creation import DEFAULT_IMAGE, is_own_image

pytestmark = pytest.mark.engine

RUNTIME = ["/usr/bin/python3", "-I", "/usr/lib/holdfast/runtime"]
BAD_MODULES = """
for name in json socket http threading holdfast sitecustomize usercustomize; do
  echo 'raise SystemExit(9)' > $name.py
done
"""


@pytest.fixture(scope="module")
def client():
    return connect().client


@pytest.fixture(scope="module")
def image(tmp_path_factory, client):
    Holdfast(tmp_path_factory.mktemp("home"))("image", "build", "sandbox")
    return client.inspect_image(DEFAULT_IMAGE)


@pytest.fixture
def start(image, client):
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


def asked_inside(client, container, url):
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


def run(url, command):
    return requests.post(f"{url}/execute", json={"command": command}, timeout=30).json()


def test_it_is_the_image_that_sandboxes_get_by_default(image):
    assert is_own_image(DEFAULT_IMAGE)
    assert image["Config"]["User"] == "1000:1000"
    assert image["Config"]["WorkingDir"] == "/sandbox"
    assert image["Size"] < 220e6


def test_the_runtime_answers_and_its_user_may_write_the_workspace_alone(start, client):
    url = address(client, start())
    assert wait_for(url)["status"] == "ok"
    words = "id -un; echo $HOME; touch /sandbox/x && echo wrote; touch /usr/x; python3 -c 'print(6 * 7)'"
    told = run(url, f"{words}; git --version")
    assert told["stdout"].startswith("sandbox\n/sandbox\nwrote\n42\ngit version")
    assert "Permission denied" in told["stderr"]


def test_what_lies_in_the_workspace_is_not_imported_by_the_runtime(start, client):
    container = start()
    wait_for(address(client, container))
    run(address(client, container), BAD_MODULES)
    client.restart(container, timeout=5)
    url = address(client, container)
    assert wait_for(url)["status"] == "ok"
    assert run(url, "ls json.py")["exit_code"] == 0


def test_it_listens_where_it_is_told(start, client):
    container = start(HOLDFAST_RUNTIME_LISTEN="127.0.0.1")
    assert b'"ok"' in asked_inside(client, container, "http://127.0.0.1:8888/")
    with pytest.raises(requests.ConnectionError):
        requests.get(address(client, container), timeout=5)


def test_it_stops_at_once_and_takes_its_commands_along(start, client):
    container = start()
    url = address(client, container)
    wait_for(url)
    run(url, "sleep 600 > /dev/null 2>&1 &")
    began = time.monotonic()
    client.stop(container, timeout=60)
    assert time.monotonic() - began < 30
    assert client.inspect_container(container)["State"]["ExitCode"] == 143


def test_the_router_is_in_the_same_image(start, client):
    container = start([*RUNTIME, "router"])
    assert b"the router is there" in asked_inside(client, container, "http://127.0.0.1:8080/healthz")


def test_a_wrong_word_or_setting_is_said_in_one_line(start, client):
    for command, environment, words in (
        ([*RUNTIME, "rooter"], {}, b"serve or router"),
        (None, {"HOLDFAST_RUNTIME_PORT": "many"}, b"HOLDFAST_RUNTIME_PORT is not a port"),
    ):
        container = start(command, **environment)
        assert client.wait(container)["StatusCode"] == 1
        log = client.logs(container)
        assert words in log
        assert b"Traceback" not in log
