"""The sandbox image and workspaces on a real node: the published client as it is, seeding in real pods."""

from __future__ import annotations

import asyncio
import io
import os
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from tests.support.controller_process import ControllerProcess, SandboxNamespace, install_crds
from tests.support.seeded_image import SeededImage
from tests.support.workspace_integrity import PausedSeeding

from holdfast.api import SandboxRequest
from holdfast.kube import Objects, api_client
from holdfast.remote import connect
from holdfast.sandbox import from_request
from holdfast.testing.apiserver.processes import node_binary

pytestmark = pytest.mark.engine

IMAGE = from_request.DEFAULT_IMAGE
GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "k8s-agent-sandbox.yaml"
LISTING = "cd /sandbox && find . -type f -print0 | sort -z | xargs -0 sha256sum"


@pytest.fixture(scope="module")
def seeded_image():
    made = SeededImage(connect())
    yield made
    made.remove()


@pytest.fixture(scope="module")
def node(new_gateway, seeded_image, tmp_path_factory):
    """A node with both images and the controller, and the client's surroundings as the guide has them."""
    made = new_gateway("image")
    made.up("--push-image", IMAGE, "--push-image", seeded_image.name)
    folder = tmp_path_factory.mktemp("client")
    (folder / "kubectl").symlink_to(node_binary())
    made.kubeconfig = made.holdfast.home / "config" / "gateways" / made.name / "kubeconfig"
    controller = ControllerProcess(made.kubeconfig, "default", folder / "log", all_namespaces=True)
    with api_client(made.kubeconfig) as api, pytest.MonkeyPatch.context() as patch:
        install_crds(api)
        made.ns = SandboxNamespace(Objects(api), "default")
        # The client starts kubectl, and so does the test of the router.
        patch.setenv("KUBECONFIG", str(made.kubeconfig))
        patch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        try:
            controller.start()
            made.apply(*yaml.safe_load_all(GUIDE.read_text()))
            yield made
        finally:
            controller.kill()


def is_ready(found):
    rows = (found.get("status") or {}).get("conditions") or ()
    return any(row["type"] == "Ready" and row["status"] == "True" for row in rows)


@pytest.fixture(scope="module")
def pool(node):
    """The guide's pool, with a sandbox that waits in it, behind the guide's router."""
    node.kubectl("wait", "--for=condition=Available", "deploy/sandbox-router", "-n", "agent-sandbox-system",
                 "--timeout=90s")  # fmt: skip
    node.ns.wait(
        "SandboxWarmPool", "python", lambda found: (found.get("status") or {}).get("readyReplicas") == 1, 90
    )
    return "python"


@pytest.fixture
def router(node, pool):
    """The router at an address of this machine."""
    words = ["kubectl", "port-forward", "-n", "agent-sandbox-system", "svc/sandbox-router-svc", ":8080"]
    running = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    port = re.search(r"127\.0\.0\.1:(\d+)", running.stdout.readline()).group(1)
    yield f"http://127.0.0.1:{port}"
    running.kill()
    running.communicate()


def test_published_client_works_unmodified(node, pool):
    from k8s_agent_sandbox import SandboxClient, SandboxNotFoundError, SandboxRequestError
    from kubernetes import config

    api = config.new_client_from_config(str(node.kubeconfig))
    with SandboxClient(api_client=api) as client:
        sandbox = client.create_sandbox(pool)
        assert sandbox.status()[0] == "SandboxReady"
        ended = sandbox.commands.run("sh -c 'echo out; echo err >&2; exit 3'")
        assert (ended.stdout, ended.stderr, ended.exit_code) == ("out\n", "err\n", 3)
        assert sandbox.commands.run("sleep 60", command_timeout=0.5).timed_out

        content = os.urandom(300_000)
        sandbox.files.write('deep/er/ü " file', content)
        sandbox.files.write("streamed", io.BytesIO(content))
        assert sandbox.files.read('deep/er/ü " file') == content
        copy = io.BytesIO()
        assert sandbox.files.read_to("streamed", copy) == len(content)
        assert copy.getvalue() == content
        assert sandbox.files.exists("streamed")
        assert not sandbox.files.exists("missing")
        found = {entry.name: (entry.type, entry.size) for entry in sandbox.files.list(".")}
        assert found == {"deep": ("directory", found["deep"][1]), "streamed": ("file", len(content))}
        assert sandbox.commands.run("sha256sum streamed").exit_code == 0
        assert sandbox.commands.run("no-such-program").exit_code == 1
        with pytest.raises(SandboxRequestError) as missing:
            sandbox.files.read("missing")
        assert missing.value.status_code == 404
        with pytest.raises(SandboxRequestError) as outside:
            sandbox.files.write("../outside", b"x", allow_unsafe_paths=True)
        assert outside.value.status_code == 403

        name = sandbox.claim_name
        assert client.list_active_sandboxes() == [("default", name)]
        assert client.list_all_sandboxes() == [name]
        sandbox.close_connection()
        again = client.get_sandbox(name)
        assert again.files.read("streamed") == content
        client.delete_sandbox(name)
        node.ns.wait_gone("SandboxClaim", name)
        with pytest.raises(SandboxNotFoundError):
            client.get_sandbox(name, resolve_timeout=1)
        assert client.list_all_sandboxes() == []


def test_published_async_client_works_unmodified(node, pool, router):
    from k8s_agent_sandbox import AsyncSandboxClient
    from k8s_agent_sandbox.models import SandboxDirectConnectionConfig
    from kubernetes_asyncio import config

    async def use():
        way = SandboxDirectConnectionConfig(api_url=router)
        api = await config.new_client_from_config(str(node.kubeconfig))
        async with api, AsyncSandboxClient(connection_config=way, api_client=api) as client:
            # An environment variable requires a new sandbox for this SandboxClaim.
            sandbox = await client.create_sandbox(pool, env={"COLOUR": "blue"})
            ended = await sandbox.commands.run("sh -c 'echo $COLOUR; id -u; exit 4'")
            assert (ended.stdout, ended.exit_code) == ("blue\n1000\n", 4)
            content = os.urandom(200_000)
            await sandbox.files.write("a/b", content)
            assert await sandbox.files.read("a/b") == content
            assert await sandbox.files.exists("a/b")
            assert [entry.name for entry in await sandbox.files.list("a")] == ["b"]
            name = sandbox.claim_name
            assert name in await client.list_all_sandboxes()
            await client.delete_sandbox(name)
            return name

    node.ns.wait_gone("SandboxClaim", asyncio.run(use()))


def create_sandbox(node, name, **asked):
    box = from_request.sandbox_manifest(
        SandboxRequest(name=name, **asked), namespace=node.ns.namespace, endpoint=None
    )
    node.ns.objects.create(box)


def init_status(pod):
    (found,) = (pod.get("status") or {}).get("initContainerStatuses") or ({},)
    return found


def test_killed_seeding_is_completed_by_next_start(node, seeded_image):
    # With so little CPU the copy takes seconds: the test interrupts it in the middle.
    rest = "trap 'exit 0' TERM; tail -f /dev/null & wait"
    create_sandbox(node, "killed", image=seeded_image.name, command=["/bin/sh", "-c", rest], cpu="40m")
    box = SimpleNamespace(name="killed", gateway=node, engine=SimpleNamespace(connect=connect))
    seeding = PausedSeeding(box)
    assert 1 <= seeding.pause_after(1) < len(seeded_image.contents)
    seeding.kill_container()
    pod = node.ns.wait("Pod", "killed", is_ready, 120)
    assert init_status(pod)["restartCount"] == 1
    assert node.exec_in_pod("killed", "sh", "-c", LISTING) == seeded_image.listing()
    assert node.exec_in_pod("killed", "readlink", "/sandbox/link") == "folder 1/file 1\n"
    told = node.exec_in_pod("killed", "stat", "-c", "%a %u %g %Y", "/sandbox/folder 1/file 1")
    assert told == "640 1234 1234 1000000000\n"


def test_workspace_survives_pod_and_is_not_seeded_again(node, seeded_image):
    """Uses the sandbox of the previous test."""
    node.exec_in_pod("killed", "sh", "-c", "cd /sandbox && rm -r 'folder 1' && touch 'folder 2/mine'")
    before = node.exec_in_pod("killed", "sh", "-c", LISTING)
    first = node.ns.get("Pod", "killed")["metadata"]["uid"]
    node.ns.delete("Pod", "killed")
    node.ns.wait("Pod", "killed", lambda pod: pod["metadata"]["uid"] != first and is_ready(pod), 90)
    assert node.exec_in_pod("killed", "sh", "-c", LISTING) == before
    assert before != seeded_image.listing()


def test_default_image_is_unprivileged_with_writable_workspace(node):
    create_sandbox(node, "own", env={"COLOUR": "blue"})
    node.ns.wait("Pod", "own", is_ready, 90)
    told = node.exec_in_pod(
        "own", "sh", "-c", "id -u; cd /sandbox && touch x && git init -q . && echo $HOLDFAST_SANDBOX"
    )
    assert told == "1000\nown\n"
    status = node.exec_in_pod("own", "cat", "/proc/self/status")
    assert re.search(r"CapBnd:\s*0+\n", status)
    assert re.search(r"NoNewPrivs:\s*1\n", status)
    assert re.search(r"Seccomp:\s*2\n", status)
    pod = node.ns.get("Pod", "own")
    assert "serviceaccount" not in str(pod["spec"]["containers"][0].get("volumeMounts"))
    # Only clients that may forward a port reach the runtime; other pods do not.
    ask = "curl --silent --max-time 5 http://{}:8888/ || echo failed $?"
    assert "failed 7" in node.exec_in_pod("own", "sh", "-c", ask.format(pod["status"]["podIP"]))
    assert '"ok"' in node.exec_in_pod("own", "sh", "-c", ask.format("127.0.0.1"))
