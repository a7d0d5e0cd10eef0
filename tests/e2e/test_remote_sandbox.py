"""Sandboxes of a gateway on another host: everything goes through the tunnel, also after it was cut."""

from __future__ import annotations

import json
import os
import signal
import subprocess

import pytest
from tests.support.ssh_host import SshHost

pytestmark = [
    pytest.mark.engine,
    pytest.mark.slow,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(os.geteuid() != 0, reason="a host of one's own needs root"),
]

NAME = "far-boxes"


@pytest.fixture
def laptop(tmp_path):
    with SshHost() as host:
        made = host.laptop(tmp_path / "laptop")
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
