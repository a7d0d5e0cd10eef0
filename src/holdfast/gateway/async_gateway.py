"""`holdfast.gateway.AsyncGateway`: the methods of `Gateway` for programs with an event loop.

A command blocks, so it runs in a thread. Python cannot stop a thread: a cancelled call ends immediately, but
its command continues and holds the lock of the gateway until it ends. After Ctrl-C, `asyncio.run` waits for
that end. If the program is killed instead, the same call continues from the checkpoints.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from holdfast.gateway.gateway import Gateway

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from pathlib import Path

    from holdfast.client import (
        AsyncPools,
        AsyncSandbox,
        AsyncSandboxes,
        AsyncSecrets,
        AsyncTemplates,
        Transport,
    )
    from holdfast.events import Event

P = ParamSpec("P")
T = TypeVar("T")


def _in_thread(
    method: Callable[Concatenate[Gateway, P], T],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    @functools.wraps(method)
    async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(method, self._gateway, *args, **kwargs)

    return call


class AsyncGateway:
    """One gateway by name, for programs with an event loop. A cancelled call does not stop its command.

    Args:
        name: name of the gateway, with the default of `Gateway`.
        listener: receives every event of a run, in the thread of the run.

    Raises:
        InvalidGatewayNameError: The name is not valid.
        GatewayNotFoundError: There are several gateways, but no name and no active gateway.
    """

    def __init__(self, name: str | None = None, *, listener: Callable[[Event], None] | None = None) -> None:
        self._gateway = Gateway(name, listener=listener)
        self.name = self._gateway.name

    @staticmethod
    def all() -> list[AsyncGateway]:
        """Return all gateways that are recorded on this machine."""
        return [AsyncGateway(gateway.name) for gateway in Gateway.all()]

    @property
    def kubeconfig(self) -> Path:
        """The file that `up` writes the kubeconfig to."""
        return self._gateway.kubeconfig

    use = _in_thread(Gateway.use)
    up = _in_thread(Gateway.up)
    plan = _in_thread(Gateway.plan)
    stop = _in_thread(Gateway.stop)
    start = _in_thread(Gateway.start)
    restart = _in_thread(Gateway.restart)
    upgrade = _in_thread(Gateway.upgrade)
    plan_upgrade = _in_thread(Gateway.plan_upgrade)
    push_images = _in_thread(Gateway.push_images)
    doctor = _in_thread(Gateway.doctor)
    merge_kubeconfig = _in_thread(Gateway.merge_kubeconfig)
    runs = _in_thread(Gateway.runs)
    status = _in_thread(Gateway.status)
    timeline = _in_thread(Gateway.timeline)
    push_sandbox_image = _in_thread(Gateway.push_sandbox_image)
    destroy = _in_thread(Gateway.destroy)

    async def logs(
        self, *, component: str | None = None, tail: int = 200, follow: bool = False
    ) -> AsyncIterator[str]:
        loop, stopped = asyncio.get_running_loop(), threading.Event()
        lines = asyncio.Queue[str | Exception | None]()

        def read() -> None:
            end = None
            try:
                for line in self._gateway.logs(component=component, tail=tail, follow=follow):
                    if stopped.is_set():
                        return
                    loop.call_soon_threadsafe(lines.put_nowait, line)
            except Exception as error:  # noqa: BLE001 (raised in the caller's task)
                end = error
            with suppress(RuntimeError):  # the event loop is closed
                loop.call_soon_threadsafe(lines.put_nowait, end)

        # A daemon: with `follow`, the next line may never come, and the program has to end without it.
        threading.Thread(target=read, daemon=True).start()
        try:
            while isinstance(line := await lines.get(), str):
                yield line
            if line is not None:
                raise line
        finally:
            stopped.set()

    logs.__doc__ = Gateway.logs.__doc__

    def sandbox(self, name: str) -> AsyncSandbox:
        """Return one sandbox of the gateway: use `async with`, or close it."""
        from holdfast.client import AsyncSandbox

        return AsyncSandbox(name, self._open_transport(), push_image=self._gateway.push_sandbox_image)

    def sandboxes(self) -> AsyncSandboxes:
        """Return the sandboxes of the gateway: list, create, or use a temporary one."""
        from holdfast.client import AsyncSandboxes

        return AsyncSandboxes(self._open_transport(), push_image=self._gateway.push_sandbox_image)

    def templates(self) -> AsyncTemplates:
        """Return the templates of the gateway: create, list and delete them."""
        from holdfast.client import AsyncTemplates

        return AsyncTemplates(self._open_transport())

    def pools(self) -> AsyncPools:
        """Return the warm pools of the gateway: create, scale, wait for and delete them."""
        from holdfast.client import AsyncPools

        return AsyncPools(self._open_transport(), push_image=self._gateway.push_sandbox_image)

    def secrets(self) -> AsyncSecrets:
        """Return the secrets of the gateway: create, list and delete them; no method returns values."""
        from holdfast.client import AsyncSecrets

        return AsyncSecrets(self._open_transport())

    def _open_transport(self) -> Transport:
        """Return the connection of one client, which closes it."""
        from holdfast.client import Transport

        return Transport(self._gateway._api_access, on_retry=self._gateway._listener)  # noqa: SLF001

    def __repr__(self) -> str:
        return repr(self._gateway)
