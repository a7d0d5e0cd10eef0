"""Secrets, updates and usage on a real gateway: what programs in a sandbox see and the kubelet does."""

from __future__ import annotations

import json
import subprocess

import pytest
from tests.support.holdfast_cli import HoldfastCli

from holdfast.retry import Policy, constant

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

# The limits that the kernel enforces, on cgroup v1 and v2: bytes, and CPU time of 100 ms.
LIMITS = """
cd /sys/fs/cgroup
cat memory/memory.limit_in_bytes cpu/cpu.cfs_quota_us 2>/dev/null ||
  { cat memory.max; cut -d' ' -f1 cpu.max; }
"""
USED_MEMORY = "cd /sys/fs/cgroup; cat memory/memory.usage_in_bytes 2>/dev/null || cat memory.current"
EVENTUALLY = Policy(attempts=None, deadline=180, backoff=constant(1.0), retry_on=AssertionError)


class RealGateway:
    def __init__(self, gateway):
        self.gateway, self.holdfast = gateway, gateway.holdfast

    def run(self, *words, stdin=""):
        ended = subprocess.run(
            self.holdfast.argv(*words), input=stdin, env=self.holdfast.environment, capture_output=True,
            text=True, timeout=300, check=False,
        )  # fmt: skip
        assert ended.returncode == 0, f"{words}: {ended.stdout}{ended.stderr}"
        return ended.stdout

    def json(self, *words):
        return json.loads(self.run(*words, "--json"))

    def sh(self, sandbox, script):
        return self.run("sandbox", "exec", sandbox, "--", "sh", "-c", script)

    def limits(self, sandbox):
        memory, quota = self.sh(sandbox, LIMITS).split()
        return int(memory), int(quota)


@pytest.fixture(scope="module")
def real(new_gateway, tmp_path_factory):
    """A gateway with its own API server and controller, and one sandbox with secrets."""
    made = new_gateway("resize", holdfast=HoldfastCli(tmp_path_factory.mktemp("home")))
    made.up()
    found = RealGateway(made)
    found.run("secret", "create", "db", stdin="TOKEN=first\nUSER=me\n")
    words = ("--secret", "db", "--secret", "db:/run/secrets/db", "--cpu", "1", "--memory", "256Mi")
    found.run("sandbox", "create", "a", *words)
    return found


def test_program_sees_variables_and_read_only_files(real):
    assert real.sh("a", "echo $TOKEN $USER") == "first me\n"
    assert real.sh("a", "cat /run/secrets/db/TOKEN; ls /run/secrets/db") == "firstTOKEN\nUSER\n"
    assert "denied" in real.sh("a", "touch /run/secrets/db/x 2>/dev/null || echo denied")


def test_replaced_values_reach_files_now_and_variables_at_the_resume(real):
    real.run("secret", "create", "db", "--replace", stdin="TOKEN=second\nUSER=me\n")

    def has_new_file():
        assert real.sh("a", "cat /run/secrets/db/TOKEN") == "second"

    EVENTUALLY.call(has_new_file)
    assert real.sh("a", "echo $TOKEN") == "first\n"
    real.run("sandbox", "suspend", "a")
    real.run("sandbox", "resume", "a")
    assert real.sh("a", "echo $TOKEN") == "second\n"


def test_cpu_and_memory_of_a_running_sandbox_change_in_its_cgroup(real):
    pod = real.gateway.get("pod", "a")
    assert real.limits("a") == (256 << 20, 100_000)
    result = real.json("sandbox", "update", "a", "--cpu", "500m", "--memory", "512Mi", "--label", "team=red")
    assert (sorted(result["applied"]), result["pending"]) == (["cpu", "labels", "memory"], [])
    assert real.limits("a") == (512 << 20, 50_000)
    after = real.gateway.get("pod", "a")
    assert after["metadata"]["uid"] == pod["metadata"]["uid"]
    assert after["metadata"]["labels"]["team"] == "red"
    assert after["status"]["containerStatuses"][0]["restartCount"] == 0


def test_memory_limit_below_the_use_waits_for_the_resume(real):
    script = "head -c 150000000 /dev/zero | tail | sleep 60"
    with subprocess.Popen(
        real.holdfast.argv("sandbox", "exec", "a", "--", "sh", "-c", script), env=real.holdfast.environment
    ) as busy:
        try:

            def uses_memory():
                assert int(real.sh("a", USED_MEMORY)) > 100_000_000

            EVENTUALLY.call(uses_memory)
            result = real.json("sandbox", "update", "a", "--memory", "64Mi")
        finally:
            busy.terminate()
    assert result["pending"] == ["memory"]
    assert real.limits("a")[0] == 512 << 20
    real.run("sandbox", "suspend", "a")
    real.run("sandbox", "resume", "a")
    assert real.limits("a")[0] == 64 << 20


def test_top_shows_what_the_kubelet_measures(real):
    real.run("sandbox", "create", "idle", "--no-workspace")
    real.run("sandbox", "suspend", "idle")

    def has_figures():
        report = real.json("top")
        running, suspended = sorted(report["sandboxes"], key=lambda usage: usage["name"])
        assert running["memory"] > 0
        assert running["cpu"] is not None
        assert (suspended["phase"], suspended["memory"]) == ("Suspended", None)
        assert report["node"]["cpu_capacity"] >= 1
        assert 0 < report["node"]["memory"] < report["node"]["memory_capacity"]

    EVENTUALLY.call(has_figures)
    printed = real.run("top")
    assert f"Node holdfast-{real.gateway.name}: cpu " in printed


def test_api_server_cannot_use_the_proxy_of_the_node_or_other_secrets(real):
    account = "system:serviceaccount:holdfast:holdfast-api"
    node = f"nodes/holdfast-{real.gateway.name}"

    def can(*words):
        command = ("auth", "can-i", *words, "--as", account)
        try:
            return real.gateway.kubectl(*command).strip() == "yes"
        except AssertionError:
            return False

    assert can("get", node, "--subresource=stats")
    assert not can("get", node, "--subresource=proxy")
    assert not can("get", "nodes/other", "--subresource=stats")
    assert not can("list", "secrets", "-n", "holdfast")
    assert not can("get", "secrets", "-n", "kube-system")
    assert can("patch", "pods/a", "--subresource=resize")
    assert not can("patch", "pods/a")
    assert not can("create", "pods")
