"""What is remembered of the gateway on this machine, and which gateway is the active one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from holdfast.containers import labels
from holdfast.containers.images import find_image
from holdfast.engine import Verdict, absent, done, partial
from holdfast.gateway.spec import Metadata, is_active, read_metadata, set_active, write_metadata
from holdfast.gateway.steps.base import GatewayStep
from holdfast.gateway.steps.replacement import REPLACE_OLD

if TYPE_CHECKING:
    from holdfast.engine import Context


class WriteMetadata(GatewayStep):
    """Remember the gateway, and make it the active one."""

    name = "write-metadata"
    title = "Metadata"
    forgets = REPLACE_OLD
    needs = ("wait-api-ready",)

    def probe(self, ctx: Context) -> Verdict:
        del ctx
        remembered = read_metadata(self.work.name)
        if remembered is None:
            return absent("nothing is remembered yet")
        if remembered != self._wanted(remembered.created_at) or not is_active(self.work.name):
            return partial("what is remembered is not how it is")
        return done(f"{self.work.name} is the active gateway")

    def run(self, ctx: Context) -> None:
        remembered = read_metadata(self.work.name)
        created_at = (
            remembered.created_at if remembered else time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        )
        write_metadata(self._wanted(created_at))
        set_active(self.work.name)
        ctx.note(f"{self.work.name} is the active gateway")

    def _wanted(self, created_at: str) -> Metadata:
        container = self.work.container()
        image = find_image(self.work.engine, container.image_id) if container else None
        spec = self.work.spec
        wanted = Metadata(
            name=self.work.name,
            image=spec.image,
            port=spec.port,
            gateway_port=spec.gateway_port,
            listen=spec.listen,
            api_names=spec.api_names,
            gpus=spec.gpus,
            remote=self.work.place.remote,
            tunnel_port=self.work.place.address(spec.port, spec.listen)[1] if self.work.place.remote else 0,
            engine=self.work.engine.address,
            engine_id=self.work.engine.identity,
            kubernetes=image.labels.get(labels.KUBERNETES, "") if image else "",
        )
        return msgspec.structs.replace(wanted, created_at=created_at)
