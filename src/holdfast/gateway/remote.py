"""Keeping a gateway on another host within reach: any command that needs its ports opens the tunnel again.

Not here: how a tunnel works (tunnel.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast import home
from holdfast.gateway import kubeconfig

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.events import RetryScheduled
    from holdfast.gateway.work import Work


def reach(work: Work) -> bool:
    """Open the tunnel to a gateway again where it is down, and keep the kubeconfig pointed at it.

    False when nothing had to be done, as always for a gateway on this machine.
    """
    tunnel = work.place.tunnel
    if tunnel is None:
        return False
    spec = work.spec
    opened = tunnel.open((spec.port, spec.gateway_port), spec.listen)
    path = work.files.kubeconfig
    if path.exists():
        before = path.read_bytes()
        if kubeconfig.credentials(before).server != work.server:
            home.write_atomic(path, kubeconfig.for_host(before, name=work.name, server=work.server))
    return opened


def reopening(
    work: Work, then: Callable[[RetryScheduled], None] | None = None
) -> Callable[[RetryScheduled], None] | None:
    """What calls through the tunnel have for `on_retry`: one that was cut is open again for the next try.

    One that is only slow is left alone: others use it too, and ssh itself ends one that stays silent. One
    that cannot be opened now is not their error: they go on trying as long as they may.
    """
    tunnel = work.place.tunnel
    if tunnel is None:
        return then

    def reopen(event: RetryScheduled) -> None:
        if then is not None:
            then(event)
        if tunnel.has_gone():
            reach(work)

    return reopen
