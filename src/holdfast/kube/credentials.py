"""After a 401: fetch new credentials, once for everybody who was refused with the old ones.

Many threads or tasks may be refused at the same moment; one of them refreshes, the others wait for it and use
what it got. Not here: 403, which no new credentials cure, and how a client finds its first credentials.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any

from holdfast.retry import current_deadline

if TYPE_CHECKING:
    from collections.abc import Callable

_kept: weakref.WeakKeyDictionary[Any, Credentials] = weakref.WeakKeyDictionary()
_keeping = threading.Lock()


def _forget() -> None:
    global _keeping  # noqa: PLW0603 - the lock of the parent may be held for ever in a child
    _keeping = threading.Lock()
    for each in list(_kept.values()):
        each.forget()


os.register_at_fork(after_in_child=_forget)


class Credentials:
    """The credentials of one client, counted in generations."""

    def __init__(self, refresh: Callable[[], Any] | None, *, in_tasks: bool = False) -> None:
        self.generation = 0
        self.in_tasks = in_tasks
        self.refresh = refresh
        self.forget()

    def forget(self) -> None:
        """Begin with locks that nobody holds: a forked child has them as they were, without their holder."""
        self._lock = threading.Lock()
        self._alock = asyncio.Lock()

    def renew(self, refused: int) -> bool:
        """Whether there are credentials newer than generation `refused`; fetches them if nobody did yet."""
        if self.refresh is None:
            return False
        deadline = current_deadline()
        if not self._lock.acquire(timeout=-1 if deadline is None else deadline.remaining()):
            return False
        try:
            if self.generation == refused:
                self.refresh()
                self.generation += 1
        finally:
            self._lock.release()
        return True

    async def arenew(self, refused: int) -> bool:
        """`renew` for tasks: the loop goes on meanwhile, also while a plain function fetches."""
        if self.refresh is None:
            return False
        async with self._alock:
            if self.generation == refused:
                if inspect.iscoroutinefunction(self.refresh):
                    await self.refresh()
                elif inspect.isawaitable(made := await asyncio.to_thread(self.refresh)):
                    await made
                self.generation += 1
            return True


def credentials_of(api_client: Any, refresh: Callable[[], Any] | None = None) -> Credentials:
    """The one Credentials of a client; `refresh` replaces the way in which the client gets new ones."""
    with _keeping:
        kept = _kept.get(api_client)
        if kept is None or refresh not in {None, kept.refresh}:
            in_tasks = hasattr(api_client.rest_client, "ssl_context")
            kept = _kept[api_client] = Credentials(refresh or _own_way(api_client), in_tasks=in_tasks)
        return kept


def _own_way(api_client: Any) -> Callable[[], Any] | None:
    """How a client refreshes by itself: the hook of its configuration, which every request asks anyway."""
    configuration = api_client.configuration
    hook = getattr(configuration, "refresh_api_key_hook", None)
    if hook is None:
        return None
    # Weakly: the table above is keyed by the client, and a value that holds its key would keep both for ever.
    client = weakref.ref(api_client)

    def refresh() -> Any:
        kept = client()
        # A hook of `kubernetes.aio` may give something to await.
        return None if kept is None else kept.configuration.refresh_api_key_hook(kept.configuration)

    return refresh
