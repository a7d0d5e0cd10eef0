"""Local images in a gateway: found by pods, sent once, whole or not at all, whatever comes in between."""

import json
import os
import signal
import socket
import threading

import pytest
from tests.support.gateway import pod_manifest

from holdfast.containers import read_file, run_in_container
from holdfast.remote import connect

pytestmark = pytest.mark.engine

MIB = 1 << 20


@pytest.fixture(scope="module")
def busybox(bare_gateway):
    return read_file(connect(), bare_gateway.container, "/usr/bin/busybox")


@pytest.fixture
def app_image(small_images, busybox):
    """A small image that a pod can run, with a word in it."""
    return small_images.build([{"bin/busybox": busybox}, {"word": b"first"}])


@pytest.fixture(scope="module")
def large_image(small_images):
    """Large enough to be caught in the middle."""
    return small_images.build([{"blob": os.urandom(40 * MIB)}, {"blob2": os.urandom(40 * MIB)}])


def push(gateway, *images):
    return gateway.holdfast.json("image", "push", *images, "--gateway", gateway.name)


def run_pod(gateway, name, image):
    made = pod_manifest(name)
    made["spec"]["containers"][0] |= {
        "image": image,
        "command": ["/bin/busybox", "sh", "-c", "/bin/busybox tail -f /dev/null"],
    }
    gateway.apply(made)
    gateway.wait_ready(name)
    return gateway.exec_in_pod(name, "/bin/busybox", "cat", "/word")


def image_names_in_node(gateway):
    return run_in_container(
        connect(), gateway.container, ["ctr", "-n", "k8s.io", "images", "ls", "-q"]
    ).output


def progress_events(events):
    return [event for event in events if event["event"] == "step.progress" and event.get("fraction")]


def test_pod_uses_pushed_image_by_short_name(bare_gateway, app_image, small_images, busybox):
    assert push(bare_gateway, app_image)["pushed"] == [app_image]
    assert run_pod(bare_gateway, "first", app_image) == "first"
    again = push(bare_gateway, app_image)
    assert again["changed"] == []
    assert "pushed" not in again
    # The same name with another content is another image: it is sent, and new pods get it.
    small_images.build([{"bin/busybox": busybox}, {"word": b"second"}], name=app_image)
    assert push(bare_gateway, app_image)["pushed"] == [app_image]
    assert run_pod(bare_gateway, "second", app_image) == "second"


def test_several_images_use_one_stream_and_alias_is_not_resent(bare_gateway, small_images, large_image):
    other = small_images.build([{"small": b"x"}])
    words = ("image", "push", large_image, other, "--gateway", bare_gateway.name)
    events = bare_gateway.holdfast.events(*words)
    told = progress_events(events)
    assert told[-1]["fraction"] > 0.9
    assert "MB" in told[-1]["message"]
    assert [event["note"] for event in events if event.get("step") == "push-images" and "note" in event] == [
        "2 images, 84 MB"
    ]
    alias = small_images.tag(large_image, f"example.org/team/{large_image}")
    events = bare_gateway.holdfast.events("image", "push", alias, "--gateway", bare_gateway.name)
    assert progress_events(events) == []
    assert alias in image_names_in_node(bare_gateway)


def test_up_pushes_requested_images(bare_gateway, small_images):
    images = [small_images.build([{"n": bytes([number])}]) for number in range(2)]
    flags = [word for image in images for word in ("--push-image", image)]
    assert bare_gateway.up(*flags)["changed"] == ["push-images"]
    assert bare_gateway.up(*flags)["changed"] == []
    assert all(f"docker.io/library/{image}" in image_names_in_node(bare_gateway) for image in images)


def test_killed_push_leaves_no_partial_image_and_resumes(bare_gateway, small_images):
    image = small_images.build([{"blob": os.urandom(60 * MIB)}])
    push_and_act(bare_gateway, image, lambda running: running.kill())
    assert image not in image_names_in_node(bare_gateway)
    assert push(bare_gateway, image)["pushed"] == [image]
    assert image in image_names_in_node(bare_gateway)


def test_ctrl_c_during_push_leaves_no_partial_image(bare_gateway, small_images):
    image = small_images.build([{"blob": os.urandom(60 * MIB)}])
    running, rest = push_and_act(bare_gateway, image, lambda running: running.send_signal(signal.SIGINT))
    assert running.returncode == 130, rest
    assert image not in image_names_in_node(bare_gateway)
    assert push(bare_gateway, image)["pushed"] == [image]


@pytest.mark.slow
def test_node_exit_fails_push_immediately_and_rerun_continues(bare_gateway, small_images):
    image = small_images.build([{"blob": os.urandom(60 * MIB)}])
    client = connect().client
    client.update_container(bare_gateway.container, restart_policy={"Name": "no"})
    running, rest = push_and_act(bare_gateway, image, lambda _: client.kill(bare_gateway.container))
    assert running.returncode == 1, rest
    assert json.loads(rest.splitlines()[-1])["code"] == "node-stopped", rest
    refused = bare_gateway.holdfast.run("image", "push", image, "--gateway", bare_gateway.name)
    assert "node-stopped" in refused.stderr
    assert f"holdfast start {bare_gateway.name}" in refused.stderr
    bare_gateway.up()
    assert push(bare_gateway, image)["pushed"] == [image]


def push_and_act(gateway, image, act):
    """Start a push, act when its bytes are under way, and return the process and what it still printed."""
    running = gateway.holdfast.start("image", "push", image, "--gateway", gateway.name, "--json")
    for line in running.stderr:
        if json.loads(line).get("fraction"):
            act(running)
            break
    _, rest = running.communicate(timeout=60)
    return running, rest


def test_push_survives_runtime_restart_and_cut_connection(bare_gateway, small_images, tmp_path):
    image = small_images.build([{"blob": os.urandom(20 * MIB)}])
    run_in_container(
        connect(),
        bare_gateway.container,
        ["sh", "-c", "kill -9 $(cat /run/containerd/*.pid || pidof containerd)"],
    )
    with CuttingProxy(tmp_path / "engine.sock", after=5 * MIB, times=2) as proxy:
        holdfast = type(bare_gateway.holdfast)(
            bare_gateway.holdfast.home, DOCKER_HOST=f"unix://{proxy.path}", HOLDFAST_WORKLOADS="false"
        )
        events = holdfast.events("image", "push", image, "--gateway", bare_gateway.name)
    assert proxy.cut == 2
    assert [event["event"] for event in events].count("retry.scheduled") >= 2
    assert image in image_names_in_node(bare_gateway)


class CuttingProxy:
    """The engine's socket, once removed: cuts connections that carried more than so many bytes."""

    def __init__(self, path, *, after, times):
        self.path, self.after, self.times, self.cut = path, after, times, 0
        self._lock = threading.Lock()

    def __enter__(self):
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(self.path))
        self._server.listen()
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _accept(self):
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            engine = socket.socket(socket.AF_UNIX)
            engine.connect("/var/run/docker.sock")
            for ends in ((client, engine), (engine, client)):
                threading.Thread(target=self._copy, args=ends, daemon=True).start()

    def _copy(self, source, sink):
        carried = 0
        try:
            while chunk := source.recv(65536):
                carried += len(chunk)
                if carried > self.after and self._may_cut():
                    for end in (source, sink):
                        end.shutdown(socket.SHUT_RDWR)
                    return
                sink.sendall(chunk)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def _may_cut(self):
        with self._lock:
            if self.cut >= self.times:
                return False
            self.cut += 1
            return True


def test_invalid_input_is_reported_in_one_line(bare_gateway, small_images):
    def refused(code, word, *words):
        ended = bare_gateway.holdfast.run("image", "push", *words)
        assert ended.returncode == code, ended.stderr
        assert word in ended.stderr
        assert "Traceback" not in ended.stderr
        return ended.stderr

    here = ("--gateway", bare_gateway.name)
    assert "Build or pull it" in refused(3, "image-missing", "hf-no-such-image:1", *here)
    assert "docker tag" in refused(2, "usage", "x@sha256:" + "0" * 64, *here)
    refused(2, "usage", "Not An Image", *here)
    assert "holdfast list" in refused(2, "unknown-gateway", "hf-x", "--gateway", "ghost")
    foreign = small_images.build([{"x": b"x"}], architecture="s390x")
    assert "s390x" in refused(3, "image-unfit", foreign, *here)
    assert foreign not in image_names_in_node(bare_gateway)
