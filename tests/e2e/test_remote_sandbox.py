"""Sandboxes of a gateway on another host: everything goes through the tunnel, also after it was cut."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from contextlib import suppress

import pytest
from tests.support.ssh_host import SshHost

pytestmark = [
    pytest.mark.engine,
    pytest.mark.slow,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(os.geteuid() != 0, reason="a host of one's own needs root"),
]

NAME = "far-boxes"


@pytest.fixture(scope="module")
def laptop(tmp_path_factory):
    with SshHost() as host:
        made = host.laptop(tmp_path_factory.mktemp("far") / "laptop")
        made.environment["HOLDFAST_WORKLOADS"] = "true"
        made.host = host
        yield made
        made.run("destroy", NAME, "--data", "--yes", NAME)
        for control in made.home.glob("state/ssh/*/ctl"):
            words = ["ssh", "-F", "none", "-o", f"ControlPath={control}", "-O", "exit", "--", "far"]
            subprocess.run(words, capture_output=True, check=False)


def test_sandbox_lifecycle_on_remote_gateway(laptop, tmp_path):
    laptop("up", NAME, "--remote", "far", timeout=900)
    made = laptop.run("sandbox", "create", "one", "-g", NAME, timeout=600)
    assert made.returncode == 0, made.stderr
    assert "Images: 1 image" in made.stderr  # the host did not have our image
    assert laptop("sandbox", "exec", "-g", NAME, "one", "--", "sh", "-c", "echo $((6*7)); pwd") == (
        "42\n/sandbox\n"
    )
    (tmp_path / "blob").write_bytes(os.urandom(5_000_000))
    laptop("sandbox", "cp", "-g", NAME, str(tmp_path / "blob"), "one:")
    # A tunnel that is gone is opened again by whichever command comes next.
    tunnel = json.loads((laptop.home / "state" / "gateways" / NAME / "tunnel.json").read_text())["pid"]
    os.kill(tunnel, signal.SIGKILL)
    laptop("sandbox", "cp", "-g", NAME, "one:blob", str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == (tmp_path / "blob").read_bytes()
    assert laptop.host.kill_ssh_sessions() > 0
    assert laptop.json("sandbox", "get", "-g", NAME, "one")["phase"] == "Ready"
    assert "Its workspace is deleted" in laptop("sandbox", "delete", "-g", NAME, "one", "--yes")
    assert laptop.json("sandbox", "list", "-g", NAME)["sandboxes"] == []


def cut_link(laptop):
    """End every ssh connection and the tunnel, as a lost network does."""
    record = laptop.home / "state" / "gateways" / NAME / "tunnel.json"
    with suppress(OSError):
        os.kill(json.loads(record.read_text())["pid"], signal.SIGKILL)
    laptop.host.kill_ssh_sessions()


@pytest.mark.parametrize("direction", ["upload", "download"])
def test_copy_over_a_cut_link_leaves_whole_files(laptop, tmp_path, direction):
    """The target has the old or the new content, and the same command finishes the copy."""
    laptop("up", NAME, "--remote", "far", timeout=900)
    laptop("sandbox", "create", "cut", "-g", NAME, timeout=600)
    old, new, local = (tmp_path / name for name in ("old", "new", "local"))
    for file in (old, new):
        file.write_bytes(os.urandom(40 << 20))

    def copy(*words):
        return laptop.argv("sandbox", "cp", "-g", NAME, *map(str, words))

    def run_checked(*words):
        subprocess.run(copy(*words), env=laptop.environment, check=True, capture_output=True)

    def content():
        if direction == "upload":
            run_checked("cut:target", local)
        return local.read_bytes()

    run_checked(new, "cut:new")
    words = (new, "cut:target") if direction == "upload" else ("cut:new", local)
    started = time.monotonic()
    run_checked(*words)
    duration = time.monotonic() - started
    cuts = 0
    while cuts < 3:
        if direction == "upload":
            run_checked(old, "cut:target")
        else:
            local.write_bytes(old.read_bytes())
        running = subprocess.Popen(
            copy(*words), env=laptop.environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        time.sleep(random.uniform(0.3, 0.9) * duration)
        was_running = running.poll() is None
        cut_link(laptop)
        _, error = running.communicate(timeout=300)
        cuts += was_running
        assert b"Traceback" not in error
        assert content() == (old if running.returncode else new).read_bytes() or (
            running.returncode and content() == new.read_bytes()
        )
        run_checked(*words)
        assert content() == new.read_bytes()
    leftovers = laptop("sandbox", "exec", "-g", NAME, "cut", "--", "ls", "-A", "/sandbox").split()
    assert [name for name in leftovers if name.startswith(".holdfast-")] == []
