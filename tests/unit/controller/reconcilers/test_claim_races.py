"""SandboxClaims whose watch, pool or template is late."""

from __future__ import annotations

import asyncio
import copy

from tests.support.fake_api_server import TEMPLATE, FakeApiServer, claim_manifest, pool_manifest
from tests.support.virtual_time import run_virtual, virtual_now

from holdfast.controller.controller import Controller
from holdfast.sandbox import find_condition


class Recorder(FakeApiServer):
    """Records each version of the SandboxClaim."""

    def __init__(self):
        super().__init__(notify_before_response=False)
        self.controller = Controller(self, clock=virtual_now)
        self.versions = []

    def store(self, found):
        if found["kind"] == "SandboxClaim":
            self.versions.append(copy.deepcopy(found))
        return super().store(found)

    def run(self, *notified, seconds=1.0):
        async def scenario():
            running = asyncio.create_task(self.controller.run())
            for each in notified:
                self.notify(each)
            await asyncio.sleep(seconds)
            running.cancel()

        run_virtual(scenario())


def reasons(server):
    told = [find_condition(one, "Ready").get("reason") for one in server.versions]
    return list(dict.fromkeys(filter(None, told)))


def test_pool_and_template_that_no_watch_has_reported_are_read():
    server = Recorder()
    for each in (TEMPLATE, pool_manifest(0)):
        server.store(each)
    server.run(server.store(claim_manifest("c")))
    assert ("read", "SandboxWarmPool") in server.requests
    assert ("read", "SandboxTemplate") in server.requests
    assert not {"WarmPoolNotFound", "TemplateNotFound"} & set(reasons(server))
    assert ("Sandbox", "c") in server.objects


def test_missing_pool_and_template_are_reported():
    server = Recorder()
    server.run(server.store(claim_manifest("c")))
    assert reasons(server) == ["WarmPoolNotFound"]
    server = Recorder()
    server.store(pool_manifest(0))
    server.run(server.store(claim_manifest("c")))
    assert reasons(server) == ["TemplateNotFound"]


def test_status_of_an_older_version_is_not_written():
    server, edits = Recorder(), []

    def edit(target):
        if server.requests.count(("status", "SandboxClaim")) == 1 and not edits:
            edited = copy.deepcopy(server.objects["SandboxClaim", "c"])
            edited["spec"]["warmPoolRef"]["name"] = "other"
            edits.append(server.store(edited))
            asyncio.get_running_loop().call_later(0.02, server.notify, edits[0])

    server.before_patch = edit
    server.run(server.store(claim_manifest("c")))
    assert edits
    told = {
        (one["spec"]["warmPoolRef"]["name"], condition["message"])
        for one in server.versions
        if (condition := find_condition(one, "Ready"))
    }
    assert told == {("other", 'SandboxWarmPool "other" not found')}
