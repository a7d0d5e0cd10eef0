"""One quick request to a gateway's two servers, Kubernetes and its own API, by the files on this machine.

For who asks whether they answer, or for one thing: no client of Kubernetes' whole API is loaded for it, and
nothing is repeated here. Each has `timeouts.glance`. Not here: what steps write and wait for (`Objects`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.gateway import kubeconfig
from holdfast.kube.reach import answers, ask

if TYPE_CHECKING:
    from holdfast.gateway.kubeconfig import Credentials
    from holdfast.gateway.work import Work
    from holdfast.kube.reach import Answer
    from holdfast.pki import Identity

_LARGEST = 16 << 20
"""Bytes of an answer: room for a page of a hundred objects."""


def ask_kubernetes(work: Work, path: str) -> Answer:
    """What the gateway's Kubernetes answers to a GET, by the kubeconfig on this machine."""
    return ask_by(kubeconfig.credentials(work.files.kubeconfig.read_bytes()), work, path)


def ask_by(credentials: Credentials, work: Work, path: str) -> Answer:
    """The same by other credentials than those on this machine's disk."""
    return ask(
        credentials.server,
        path,
        ca=credentials.ca,
        certificate=credentials.certificate,
        key=credentials.key,
        timeout=work.settings.timeouts.glance,
        largest=_LARGEST,
    )


def ask_gateway(work: Work, identity: Identity) -> bytes:
    """What the gateway's own API says of itself to this client."""
    return answers(
        work.gateway_api,
        "/v1/gateway",
        ca=identity.ca,
        certificate=identity.client.certificate,
        key=identity.client.key,
        timeout=work.settings.timeouts.glance,
    )
