"""The lock check reports a running command, and records nothing about the host of the lock."""

from types import SimpleNamespace

import msgspec

from holdfast.gateway.doctor.checks.local_state import check_lock
from holdfast.gateway.doctor.facts import GatewayFacts
from holdfast.gateway.hosts import RemoteHost, lock_file_name
from holdfast.gateway.tunnel import recorded_host
from holdfast.workflow import LockHolder


class FakeSshHost:
    """A host whose commands run on this machine."""

    control_master = SimpleNamespace(command_prefix=[])

    def __init__(self, lock_directory):
        self.lock_directory = lock_directory

    def facts(self):
        return SimpleNamespace(lock_directory=str(self.lock_directory))


def test_lock_check_does_not_bind_the_name_to_a_remote_host(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", "ssh://me@far")
    holder = LockHolder(pid=7, host="elsewhere", command="up")
    (tmp_path / lock_file_name("typo")).write_bytes(msgspec.json.encode(holder))
    facts = GatewayFacts("typo")
    host = facts.gateway.host
    assert isinstance(host, RemoteHost)
    host.__dict__["_host"] = FakeSshHost(tmp_path)
    host.__dict__["_engine"] = SimpleNamespace(address="ssh://me@far")
    (finding,) = check_lock(facts)
    assert finding.code == "lock-held"
    assert "process 7 on elsewhere (up)" in finding.cause
    _ = host.engine()  # a later call of another check
    assert recorded_host("typo") is None
