"""A download tells a `tar` that fails in the sandbox from a lost connection."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from kubernetes.aio import client
from tests.support.gateway_api_server import LOOPBACK
from tests.support.spdy_pod import FAILURE, SUCCESS, RunningPod, spdy_pod

from holdfast.api import Problem
from holdfast.server.errors import PodResponseLostError
from holdfast.server.sandboxes import SandboxService
from holdfast.server.streams import files

ARCHIVE = b"a" * 2048
MARKER = "0123456789abcdef" * 2
DENIED = "tar: tree/secret: Cannot open: Permission denied"


def run_tar(status, stderr=""):
    """A pod whose `tar` sends an archive and these messages, and then exits or loses its connection."""

    async def run(side):
        await side.accept("error", "stdout", "stderr")
        side.send("stdout", ARCHIVE)
        if stderr:
            side.send("stderr", stderr.encode())
        if status is None:
            await side.writer.drain()
        else:
            side.end(status)

    return run


def downloaded(tar, marker=""):
    """Return what a download sends, and its error."""
    pieces = []

    async def run():
        async with (
            asyncio.timeout(30),
            spdy_pod(tar) as port,
            client.ApiClient(client.Configuration(host=f"http://{LOOPBACK}:{port}")) as api,
        ):
            service = SandboxService(RunningPod(api, "ns"), endpoint=None, workspace=None)
            try:
                async for piece in await files.download(service, "a", "/sandbox/tree", marker):
                    pieces.append(piece)  # noqa: PERF401 (what was sent before the error counts)
            except PodResponseLostError as error:
                return error
            return None

    error = asyncio.run(run())
    return b"".join(pieces), error


@pytest.mark.parametrize("marker", ["", MARKER])
def test_complete_archive_has_no_report(marker):
    assert downloaded(run_tar(SUCCESS), marker) == (ARCHIVE, None)


def test_failed_tar_is_reported_after_the_marker():
    data, error = downloaded(run_tar(FAILURE % 2, DENIED), MARKER)
    archive, marker, report = data.partition(MARKER.encode())
    assert (archive, marker.decode(), error) == (ARCHIVE, MARKER, None)
    problem = msgspec.json.decode(report, type=Problem)
    assert problem.message == f"tar: exit code 2 in the sandbox: {DENIED}"
    assert (problem.code, bool(problem.hint)) == ("path-denied", True)


def test_report_of_many_messages_is_short():
    data, _ = downloaded(run_tar(FAILURE % 2, "\x01" * 4000), MARKER)
    assert len(data) - len(ARCHIVE) < 8192


def test_failed_tar_cuts_the_response_of_a_client_that_sends_no_marker():
    data, error = downloaded(run_tar(FAILURE % 2, DENIED))
    assert data == ARCHIVE
    assert isinstance(error, PodResponseLostError)


@pytest.mark.parametrize("marker", ["", MARKER])
def test_lost_connection_to_the_pod_cuts_the_response(marker):
    data, error = downloaded(run_tar(None), marker)
    assert data == ARCHIVE
    assert isinstance(error, PodResponseLostError)
