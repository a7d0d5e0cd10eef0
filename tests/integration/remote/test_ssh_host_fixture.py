"""The remote host of the tests removes what it created when its set-up fails."""

import subprocess

import pytest
from tests.support.ssh_host import SshHost

pytestmark = pytest.mark.engine


def namespaces():
    return subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout


def processes():
    return subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout


def test_failed_sshd_leaves_no_namespace_process_or_folder():
    host = SshHost()
    host.sshd = "/bin/false"
    with pytest.raises(OSError), host:
        pytest.fail("the host started without sshd")
    assert host.namespace not in namespaces()
    assert str(host.folder) not in processes()
    assert not host.folder.exists()
