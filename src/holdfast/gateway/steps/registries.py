"""Where the node gets images from: the setting `registries` as files on its volume.

containerd and the kubelet read them when they pull, so a node that runs needs no restart. Logins are written
through the engine's API into files that root alone reads, and are nowhere else.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from holdfast.containers.archives import read_folder, replace_folder, write_private_file
from holdfast.containers.commands import read_file
from holdfast.engine import Verdict, absent, done, partial
from holdfast.gateway.registries import NO_LOGINS, NodeFiles, node_files, registry_hosts
from holdfast.gateway.steps.base import GatewayStep

if TYPE_CHECKING:
    from holdfast.engine import Context
    from holdfast.gateway.registries import Sources
    from holdfast.gateway.work import Work


class WriteRegistries(GatewayStep):
    """The node's registry files are just those that the setting asks for; without one, there are none."""

    name = "write-registries"
    title = "Registries"
    needs = ("ensure-container",)

    def __init__(self, work: Work, sources: Sources) -> None:
        super().__init__(work)
        self.sources = sources

    def probe(self, ctx: Context) -> Verdict:
        del ctx
        if self.work.container() is None:
            return absent("no container yet")
        wanted, found = self._wanted(), self._found()
        if found.hosts == wanted.hosts and found.logins == wanted.logins:
            return done(self._words() or "none asked for")
        return partial("they differ from what is asked for")

    def run(self, ctx: Context) -> None:
        for login in self.sources.logins.values():
            ctx.secret(login.ref, login.reveal())
            ctx.secret(login.ref, login.text().partition(":")[2])
        engine, name, wanted, found = self.work.engine, self.work.object, self._wanted(), self._found()
        state = PurePosixPath(self.work.profile.state_path)
        if found.hosts != wanted.hosts:
            folder = PurePosixPath(self.work.profile.registries_path)
            replace_folder(engine, name, str(folder.parent), folder.name, wanted.hosts)
        if found.logins != wanted.logins:
            path = str(PurePosixPath(self.work.profile.logins_path).relative_to(state))
            write_private_file(engine, name, str(state), path, wanted.logins)
        ctx.note(self._words() or "what was asked for before is gone")

    def _wanted(self) -> NodeFiles:
        return node_files(self.sources, self.work.profile.registries_path)

    def _found(self) -> NodeFiles:
        engine, name, profile = self.work.engine, self.work.object, self.work.profile
        return NodeFiles(
            hosts=read_folder(engine, name, profile.registries_path) or {},
            logins=read_file(engine, name, profile.logins_path) or NO_LOGINS,
        )

    def _words(self) -> str:
        return ", ".join(registry_hosts(self.sources.registries))
