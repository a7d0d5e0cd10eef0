"""A router in a thread, and backends that it forwards to: real sockets on loopback."""

import asyncio
import socket
import threading
from contextlib import contextmanager

import requests

from holdfast.runtime.sandbox_router import Router, RouterSettings

TIMEOUT = 20


@contextmanager
def routing(**settings):
    """Run a router that accepts pods on loopback; yields its port."""
    settings = RouterSettings(**{"allows_loopback": True, "dial_delays": ()} | settings)
    listener = socket.create_server(("127.0.0.1", 0))
    loop = asyncio.new_event_loop()
    task = loop.create_task(Router(settings).serve(listener))

    def run():
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(wait_until_cancelled())

    async def wait_until_cancelled():
        await asyncio.wait([task])

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join()


@contextmanager
def backend(handle):
    """Call `handle` with each accepted connection, in a thread; yields the port."""
    listener = socket.create_server(("127.0.0.1", 0))
    threads = []

    def run(connection):
        with connection:
            connection.settimeout(TIMEOUT)
            handle(connection)

    def accept():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threads.append(threading.Thread(target=run, args=[connection]))
            threads[-1].start()

    acceptor = threading.Thread(target=accept)
    acceptor.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for thread in (acceptor, *threads):
            thread.join()


def address_headers(port, **more):
    """The headers of a request to a backend; `timeout=1` becomes `X-Sandbox-Timeout: 1`."""
    named = {"ID": "box", "Port": str(port), "Pod-IP": "127.0.0.1"} | more
    return {f"X-Sandbox-{name}": str(value) for name, value in named.items()}


def ask(router, port, path="/", *, method="GET", headers=(), timeout=None, **options):
    """Send one request through the router."""
    more = {} if timeout is None else {"Timeout": timeout}
    return requests.request(
        method, f"http://127.0.0.1:{router}{path}", headers=address_headers(port, **more) | dict(headers),
        timeout=TIMEOUT, **options,
    )  # fmt: skip


@contextmanager
def connected(router):
    """A plain connection to the router."""
    with socket.create_connection(("127.0.0.1", router), timeout=TIMEOUT) as client:
        yield client


def request_head(port, *lines, start="GET / HTTP/1.1"):
    """The bytes of a request's head."""
    addressed = [f"{name}: {value}" for name, value in address_headers(port).items()]
    return "\r\n".join([start, "Host: router", *addressed, *lines, "", ""]).encode()


def read_head(connection):
    """Read one message's head and nothing after it."""
    read = b""
    while not read.endswith(b"\r\n\r\n"):
        data = connection.recv(1)
        assert data, read
        read += data
    return read


def read_all(connection):
    """Read until the other side closes."""
    return b"".join(iter(lambda: connection.recv(65536), b""))
