"""Spares a request what urllib3 does anew for each one and need not; this pays for all that `resilient` adds.

A PoolManager parses the whole address and hashes all of its settings to find the connections of a server that
stays the same, a connection sends the head of a request and its small body apart, and the head of an answer
is read as if it were a mail (`plain_answers`). What is sent and what comes back is the same. Anything unusual
(proxies, dots in paths, retries asked for) goes the long way.
"""

from __future__ import annotations

import os
import weakref
from functools import cache, lru_cache
from typing import Any

from holdfast.kube import curfew
from holdfast.kube.plain_answers import PlainAnswer

_LONGEST_SCHEME = len("https://")
# Beyond this, putting head and body together costs more than sending them apart.
_SMALL = 16 * 1024


_MOST_POOLS = 10
_STRAIGHT: weakref.WeakSet[_Straight] = weakref.WeakSet()


def _leave_behind() -> None:
    for each in list(_STRAIGHT):
        each.leave_behind()


os.register_at_fork(after_in_child=_leave_behind)


def go_straight(manager: Any) -> None:
    """Let a PoolManager, whose retries are off, look up the connections of a server once."""
    if manager.proxy is None:
        _Straight(manager)


class _Straight:
    """The short way through one PoolManager."""

    def __init__(self, manager: Any) -> None:
        self._urlopen, self._clear = manager.urlopen, manager.clear
        self._pool_of = manager.connection_from_host
        self._pools: dict[str, Any] = {}
        self._manager = manager
        manager.urlopen, manager.clear = self.urlopen, self.clear
        _STRAIGHT.add(self)

    def clear(self) -> None:
        self._clear()
        self._pools = {}

    def leave_behind(self) -> None:
        """In a forked child: the connections are the parent's, and so are the locks on them."""
        self._manager.pools = type(self._manager.pools)(_MOST_POOLS)
        self._pools = {}

    def urlopen(self, method: str, url: str, **terms: Any) -> Any:
        """As PoolManager.urlopen; redirects are not followed, as inner retries are off."""
        # Taken before the pool is looked up: what `clear` throws away meanwhile is not kept.
        pools = self._pools
        cut = url.find("/", _LONGEST_SCHEME)
        origin, target = url[:cut], url[cut:]
        if cut < 0 or "/." in target or "#" in target or "retries" in terms:
            return self._urlopen(method, url, **terms)
        pool = pools.get(origin)
        if pool is None and (pool := self._find(origin)) is None:
            return self._urlopen(method, url, **terms)
        pools[origin] = pool
        terms["redirect"] = terms["assert_same_host"] = False
        if curfew.watches():
            # The curfew ends the waits for bytes: a socket without a timeout is spared a poll for each.
            terms["timeout"] = _only_to_connect(terms.get("timeout"))
        return pool.urlopen(method, target, **terms)

    def _find(self, origin: str) -> Any:
        from urllib3.util import parse_url

        address = parse_url(origin)
        # As urllib3 would write it: neither a user name nor anything of a path is in it.
        if address.auth is not None or f"{address.scheme}://{address.netloc}" != origin:
            return None
        pool = self._pool_of(address.host, address.port, address.scheme)
        # Of its class, so that two threads that come here at once do the same.
        pool.ConnectionCls = _in_one_go(type(pool).ConnectionCls)
        pool._put_conn = _letting_go(type(pool)._put_conn.__get__(pool))  # noqa: SLF001 - there is no other door
        return pool


def _letting_go(put: Any) -> Any:
    def put_back(connection: Any) -> None:
        curfew.lets_go()
        put(connection)

    return put_back


def _only_to_connect(timeout: Any) -> Any:
    return timeout if timeout is None else _connecting(timeout.connect_timeout)


@lru_cache(maxsize=64)
def _connecting(seconds: float) -> Any:
    from urllib3 import Timeout

    return Timeout(connect=seconds, read=None)


@cache
def _in_one_go(connection: Any) -> Any:
    """The same kind of connection, which sends head and small body together: one write, one TLS record."""

    class InOneGo(connection):  # type: ignore[misc]
        response_class = PlainAnswer
        timeout: Any
        _holds_back, _head = False, b""

        def connect(self) -> None:
            left = curfew.left()
            if left is not None:
                self.timeout = min(self.timeout, left) if isinstance(self.timeout, int | float) else left
            super().connect()
            curfew.uses(self.sock)

        def _new_conn(self) -> Any:
            """The plain connection; the handshake that follows is given what is left of the time."""
            made, left = super()._new_conn(), curfew.left()
            if left is not None:
                made.settimeout(left)
            return made

        def request(self, method: str, url: str, body: Any = None, **terms: Any) -> None:
            if self.sock is not None:
                curfew.uses(self.sock)
                if curfew.watches():
                    self.timeout = None
            self._holds_back, self._head = isinstance(body, str | bytes) and 0 < len(body) <= _SMALL, b""
            super().request(method, url, body=body, **terms)

        def send(self, data: Any) -> None:
            if self._holds_back:
                self._holds_back, self._head = False, data
            else:
                head, self._head = self._head, b""
                super().send(head + data if head else data)

    return InOneGo
