"""Parsing of ssh targets, and classification of the error messages of ssh."""

import subprocess

import pytest

from holdfast.errors import HostAccessError, HostUnreachableError, UsageError
from holdfast.remote.ssh_target import connection_error, parse_target

HOST = parse_target("me@far")


@pytest.mark.parametrize(
    ("text", "destination", "options", "written"),
    [
        ("far", "far", [], "far"),
        ("me@far", "me@far", [], "me@far"),
        ("me@far:2222", "me@far", ["-p", "2222"], "me@far:2222"),
        ("ssh://me@far:2222/", "me@far", ["-p", "2222"], "me@far:2222"),
        ("me@[fe80::1]:22", "me@fe80::1", ["-p", "22"], "me@[fe80::1]:22"),
        (" me@10.0.0.1 ", "me@10.0.0.1", [], "me@10.0.0.1"),
        ("me@corp.example@far", "me@corp.example@far", [], "me@corp.example@far"),
    ],
)
def test_parse_target(text, destination, options, written):
    target = parse_target(text)
    assert (target.destination, target.options, str(target)) == (destination, options, written)
    assert parse_target(str(target)) == target


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "-oProxyCommand=x", "me@-far", "-me@far", "me@far:0", "me@far:70000", "me@far:x", "far;ls",
        "a b", "far`x`", "$(x)", "me@far/path", "tcp://far", "far\nx", "me@",
    ],
)  # fmt: skip
def test_invalid_target_is_rejected(text):
    with pytest.raises(UsageError, match="not an ssh destination"):
        parse_target(text)


@pytest.mark.parametrize(
    ("stderr", "kind", "text"),
    [
        ("ssh: connect to host far port 22: Connection refused", HostUnreachableError, "Connection refused"),
        ("ssh: connect to host far port 22: Connection timed out", HostUnreachableError, "timed out"),
        ("ssh: connect to host far port 22: No route to host", HostUnreachableError, "No route"),
        ("kex_exchange_identification: read: Connection reset by peer", HostUnreachableError, "reset"),
        ("Connection closed by 10.0.0.1 port 22", HostUnreachableError, "closed"),
        ("Timeout, server far not responding.", HostUnreachableError, "not responding"),
        (
            "ssh: Could not resolve hostname far: Temporary failure in name resolution",
            HostUnreachableError,
            "Temporary failure",
        ),
        (
            "ssh: Could not resolve hostname far: Name or service not known",
            HostAccessError,
            "host name cannot be resolved",
        ),
        ("me@far: Permission denied (publickey).", HostAccessError, "accepts no key"),
        ("Received disconnect from far: Too many authentication failures", HostAccessError, "no key"),
        ("Host key verification failed.", HostAccessError, "host key is unknown"),
        (
            "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.",
            HostAccessError,
            "host key has changed",
        ),
        ("/home/me/.ssh/config: line 3: Bad configuration option: x", HostAccessError, "Bad configuration"),
        ("", HostAccessError, "no error message"),
    ],
)
def test_ssh_error_messages_are_classified(stderr, kind, text):
    error = connection_error(HOST, stderr)
    assert type(error) is kind
    assert text in error.message
    assert error.hint


def test_rejected_key_is_permanent_even_if_connection_closes():
    stderr = "me@far: Permission denied (publickey).\nConnection closed by 10.0.0.1 port 22"
    assert isinstance(connection_error(HOST, stderr), HostAccessError)


def test_failed_proxy_command_is_reported_and_retried():
    """A jump host may be down only briefly."""
    stderr = subprocess.run(
        ["ssh", "-F", "none", "-o", "BatchMode=yes", "-o", "ProxyCommand=false", "nowhere.example", "true"],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    ).stderr
    error = connection_error(HOST, stderr)
    assert isinstance(error, HostUnreachableError)
    assert "jump host or proxy command" in error.message
    assert "ssh me@far" in error.hint
