"""Keeping a gateway on another host within reach: any command that needs its ports opens the tunnel again.

Not here: how a tunnel works (tunnel.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast import home
from holdfast.gateway import kubeconfig

if TYPE_CHECKING:
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
