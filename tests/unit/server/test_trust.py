"""Whom the server still believes: under which CA somebody came in, and until when."""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from types import SimpleNamespace

import pytest

from holdfast.pki import issue
from holdfast.server import trust
from holdfast.server.trust import Client, Trust


@pytest.fixture
def trusted(tmp_path):
    bundle = issue(["localhost"], at=dt.datetime.now(dt.UTC))
    files = {"certificate": bundle.server.certificate, "key": bundle.server.key, "client_ca": bundle.ca}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    return Trust(**{name: tmp_path / name for name in files})


def client(*, ends=60.0, generation=1):
    return Client("c", "f", time.time() + ends, generation)


def test_a_client_is_held_until_its_certificate_ends_or_its_ca_is_renewed(trusted):
    assert trusted.holds(client())
    assert not trusted.holds(client(ends=-1.0))
    assert not trusted.holds(client(generation=0))
    assert not trusted.holds(None)


def test_an_open_connection_is_cut_when_its_certificate_ends(trusted, monkeypatch):
    monkeypatch.setattr(trust, "_LOOK_EVERY", 0.02)
    cut, was_cut = [], asyncio.Event()

    def connection(name, ends):
        ending = client(ends=ends)

        def abort():
            cut.append((name, time.time() >= ending.ends))
            was_cut.set()

        return SimpleNamespace(app_state={"client": ending}, transport=SimpleNamespace(abort=abort))

    open_ones = [connection("short", 0.3), connection("long", 600.0)]

    async def scenario():
        watching = asyncio.create_task(trusted.watch(lambda: open_ones))
        async with asyncio.timeout(30):
            await was_cut.wait()
        watching.cancel()

    asyncio.run(scenario())
    assert set(cut) == {("short", True)}
