"""Watches, by kopf: each change of an object that matters is brought to the desk.

Of kopf only `on.event` is used. It watches, resumes, and gets new credentials; it writes nothing: no
finalizers, no annotations, no events, no peering. Not here: what a change means (desk.py).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from holdfast.controller.lists import CHUNK
from holdfast.controller.watched import WATCHED

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    import kopf

    from holdfast.controller.desk import Desk

_NAME: Any = "holdfast"
_CONNECT = 10.0
_REQUEST = 30.0


async def feed(
    api_client: Any,
    desk: Desk,
    namespaces: Sequence[str],
    *,
    stop: asyncio.Event,
    began_anew: Callable[[], None],
) -> None:
    """Watch until `stop`; `began_anew` is called when a watch lists what is there: that tells of no end."""
    import kopf

    logging.getLogger("kopf").setLevel(logging.WARNING)
    # kopf would write events of its own about handlers through this one.
    logging.getLogger("kopf.objects").setLevel(logging.ERROR)
    await kopf.operator(
        registry=_registry(api_client, desk, began_anew),
        settings=_settings(),
        standalone=True,
        # It would look for the user's name, and in a container the user may have none.
        identity=_NAME,
        clusterwide=not namespaces,
        namespaces=list(namespaces),
        stop_flag=stop,
    )
    # It listens to the signals of the process itself, and ends in peace for no other reason.
    stop.set()


def _settings() -> kopf.OperatorSettings:
    import kopf

    from holdfast.controller.forgetful import NoDifferences, NoProgress

    settings = kopf.OperatorSettings()
    settings.persistence.diffbase_storage = NoDifferences()
    settings.persistence.progress_storage = NoProgress()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.networking.connect_timeout = _CONNECT
    settings.networking.request_timeout = _REQUEST
    settings.watching.chunk_size = CHUNK
    # A worker for an object that is quiet costs memory, and is quickly made again.
    settings.queueing.idle_timeout = 1.0
    for each in WATCHED:
        if each.labels:
            settings.watching.label_selectors[each.group, each.version, each.plural] = each.labels
    return settings


def _registry(api_client: Any, desk: Desk, began_anew: Callable[[], None]) -> kopf.OperatorRegistry:
    import kopf

    registry = kopf.OperatorRegistry()

    async def changed(event: Any, **_: Any) -> None:
        if event["type"] == "DELETED":
            desk.gone(event["object"])
            return
        if event["type"] is None:
            began_anew()
        desk.changed(event["object"])

    for each in WATCHED:
        kopf.on.event(each.group, each.version, each.plural, registry=registry, id=each.plural)(changed)

    async def login(**_: Any) -> kopf.ConnectionInfo:
        return await connection(api_client.configuration)

    kopf.on.login(registry=registry, id="login")(login)
    return registry


async def connection(configuration: Any) -> kopf.ConnectionInfo:
    """Where and as whom a client of the official library talks to the server, in kopf's words."""
    import inspect

    import kopf

    hook = getattr(configuration, "refresh_api_key_hook", None)
    if hook is not None and inspect.isawaitable(waiting := hook(configuration)):
        await waiting
    scheme, _, token = str(configuration.api_key.get("BearerToken") or "").partition(" ")
    return kopf.ConnectionInfo(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert,
        insecure=not configuration.verify_ssl,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
        scheme=scheme.capitalize() or None,
        token=token or None,
        proxy_url=configuration.proxy,
    )
