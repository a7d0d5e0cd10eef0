"""`up --recreate` and `up --wipe`: the old container and network go first, the data only when it was named.

Comes after everything that can be checked beforehand, so that a refusal changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.containers.containers import remove_container, stop_container
from holdfast.containers.networks import find_network, find_volume, remove_network, remove_volume
from holdfast.engine import Verdict, absent, done
from holdfast.gateway.steps.base import GatewayStep
from holdfast.gateway.steps.container import refuse_other_version
from holdfast.gateway.steps.upgrade import remove_predecessor
from holdfast.gateway.upgrade.volume import clear_helpers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.engine import Context, RunRecord
    from holdfast.gateway.work import Work

REPLACE_OLD = "replace-old"


class ReplaceOld(GatewayStep):
    """Take the old gateway away when that was asked for; the steps after this one make it anew.

    Whether this was done cannot be seen: a new container looks like an old one. The record says it, as long
    as the same words are all that was said since: a second run leaves alone what the first has just made.
    The last step of `up` forgets the record, and any other command in between makes it history.
    """

    name = REPLACE_OLD
    title = "Replacement"
    needs = ("ensure-image",)

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        if work.asked.wipe:
            self.touches = (f"volume {work.object}: ALL data of the gateway and of its sandboxes is removed",)
        elif work.asked.recreate:
            self.touches = (f"container and network {work.object} are made anew; the data stays",)

    def probe(self, ctx: Context) -> Verdict:
        if not self.work.replaces:
            return done("not asked for")
        if self._goes_on(ctx):
            return done("done already by the run that this one goes on from")
        return absent("its data is removed too, as asked" if self.work.asked.wipe else "asked for")

    def _goes_on(self, ctx: Context) -> bool:
        before: dict[str, Any] = ctx.previous or {}
        if ctx.in_flight or before.get("wipe") is not self.work.asked.wipe:
            return False
        return is_last_word(self._history(), str(before.get("run", "")), besides=ctx.run_id)

    def _history(self) -> list[RunRecord]:
        from holdfast.engine import SQLiteStore

        store = SQLiteStore(self.work.files.state, readonly=True)
        store.open()
        try:
            return store.runs()
        finally:
            store.close()

    def run(self, ctx: Context) -> dict[str, Any]:
        if not self.work.replaces:
            return {}
        engine, name, wipe = self.work.engine, self.work.object, self.work.asked.wipe
        self._refuse_what_is_not_ours()
        container = self.work.container()
        if container is not None:
            if not wipe:
                refuse_other_version(self.work, container)
            self.work.old_image = container.image_id
            ctx.progress("stopping the old container")
            stop_container(engine, name, grace_seconds=self.work.stop_seconds)
            remove_container(engine, name)
        remove_network(engine, name)
        if wipe:
            ctx.check_lock()
            clear_helpers(self.work)
            remove_predecessor(self.work)
            remove_volume(engine, name)
        ctx.note("the old one is gone with all its data" if wipe else "the old one is gone; its data stays")
        return {"wipe": wipe, "image": self.work.old_image, "run": ctx.run_id}

    def restore(self, ctx: Context, result: dict[str, Any] | None) -> None:
        """The new container runs the very image of the old one, whatever its name means by now."""
        del ctx
        self.work.old_image = (result or {}).get("image", "")

    def _refuse_what_is_not_ours(self) -> None:
        engine, name = self.work.engine, self.work.object
        for kind, found in (("network", find_network(engine, name)), ("volume", find_volume(engine, name))):
            if found is not None:
                self.work.refuse_foreign(kind, found.labels)


def is_last_word(runs: Sequence[RunRecord], run: str, *, besides: str) -> bool:
    """Whether since a run nothing was done with the gateway but tries of the same command."""
    that = next((each for each in runs if each.id == run), None)
    if that is None:
        return False  # old runs may be forgotten: then the same words are a new wish
    since = [each for each in runs if each.started >= that.started and each.id not in (run, besides)]
    return all(each.command == that.command for each in since)
