"""Clients stay trusted until their CA is replaced or their certificate expires."""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from types import SimpleNamespace

import pytest
from tests.support.virtual_time import run_virtual

from holdfast.pki import issue_bundle
from holdfast.server.tls import CertificateReloader, PeerIdentity


@pytest.fixture
def server_tls(tmp_path):
    bundle = issue_bundle(["localhost"], at=dt.datetime.now(dt.UTC))
    files = {"certificate": bundle.server.certificate, "key": bundle.server.key, "client_ca": bundle.ca}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    return CertificateReloader(**{name: tmp_path / name for name in files})


def client(*, ends=60.0, generation=1):
    return PeerIdentity("f", time.time() + ends, generation)


def test_client_is_trusted_until_certificate_expires_or_ca_is_renewed(server_tls):
    assert server_tls.is_trusted(client())
    assert not server_tls.is_trusted(client(ends=-1.0))
    assert not server_tls.is_trusted(client(generation=0))
    assert not server_tls.is_trusted(None)


def test_open_connection_is_closed_when_certificate_expires(server_tls):
    cut, was_cut = [], asyncio.Event()

    def connection(name, ends):
        ending = client(ends=ends)

        def abort():
            cut.append((name, time.time() >= ending.expires_at))
            was_cut.set()

        return SimpleNamespace(app_state={"client": ending}, transport=SimpleNamespace(abort=abort))

    open_ones = [connection("short", 0.3), connection("long", 600.0)]

    async def scenario():
        watching = asyncio.create_task(server_tls.watch(lambda: open_ones))
        await was_cut.wait()
        watching.cancel()

    run_virtual(scenario())
    assert set(cut) == {("short", True)}
