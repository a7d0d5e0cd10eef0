"""The tunnel to a gateway on another host: opened when it runs, closed when it stops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.engine import Verdict, absent, done
from holdfast.gateway.remote import reach
from holdfast.gateway.steps.base import GatewayStep

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.engine import Context
    from holdfast.gateway.tunnel import Tunnel
    from holdfast.gateway.work import Work


class OpenTunnel(GatewayStep):
    """Local ports that lead to the gateway's ports over there; they outlive the command."""

    name = "open-tunnel"
    title = "Tunnel"
    needs = ("start-container",)

    def probe(self, ctx: Context) -> Verdict:
        del ctx
        spec, tunnel = self.work.spec, _tunnel(self.work)
        if tunnel.is_open((spec.port, spec.gateway_port), spec.listen):
            return done(tunnel.words())
        return absent("it is down")

    def run(self, ctx: Context) -> None:
        reach(self.work)
        ctx.note(f"{self.work.server} leads to port {self.work.spec.port} of {self.work.place.remote}")


class CloseTunnel(GatewayStep):
    """End the tunnel; its local ports stay remembered."""

    name = "close-tunnel"
    title = "Tunnel closed"
    needs = ("stop-container",)

    def probe(self, ctx: Context) -> Verdict:
        del ctx
        return absent("it is still there") if _tunnel(self.work).master.pid() else done("there is none")

    def run(self, ctx: Context) -> None:
        _tunnel(self.work).close()
        ctx.note(f"to {self.work.place.remote}")


class ForgetTunnel(GatewayStep):
    """Forget the host of a gateway: the last thing of all, for until then it is how the rest is found."""

    name = "forget-tunnel"
    title = "Host forgotten"
    needs: Sequence[str] = ("forget-gateway",)

    def __init__(self, work: Work, *, after: Sequence[str] = ()) -> None:
        super().__init__(work)
        self.needs = (*self.needs, *after)

    def probe(self, ctx: Context) -> Verdict:
        del ctx
        return absent("it is remembered") if _tunnel(self.work).file.exists() else done("it is forgotten")

    def run(self, ctx: Context) -> None:
        _tunnel(self.work).forget()
        ctx.note(self.work.place.remote)


def _tunnel(work: Work) -> Tunnel:
    tunnel = work.place.tunnel
    if tunnel is None:
        raise TypeError("a gateway on this machine has no tunnel")
    return tunnel
