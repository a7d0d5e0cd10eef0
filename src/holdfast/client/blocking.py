"""Methods of synchronous clients, generated from asynchronous ones: same names, parameters and docstrings."""

from __future__ import annotations

import functools
import inspect
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from holdfast.client import portal
from holdfast.client.exec import AsyncExecSession

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

    from holdfast.client.exec import ExecOutput

A = TypeVar("A")
P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")


def describe(call: Any, method: Callable[..., Any]) -> None:
    """Give a generated method the name, docstring and signature of its asynchronous counterpart."""
    functools.update_wrapper(call, method)
    signature = inspect.signature(method)
    # `Async` is the only difference between the return types: AsyncIterator[bytes], AsyncSandbox.
    returns = str(signature.return_annotation).replace("Async", "")
    call.__signature__ = signature.replace(return_annotation=returns)
    call.__annotations__ = {**call.__annotations__, "return": returns}
    # Tools that follow `__wrapped__` would take this for a coroutine function.
    del call.__wrapped__


def blocking(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return portal.run(method(self._delegate, *args, **kwargs))

    describe(call, method)
    return call


def iterator(
    method: Callable[Concatenate[A, P], AsyncIterator[T]],
) -> Callable[Concatenate[Any, P], Iterator[T]]:
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return portal.iterate(method(self._delegate, *args, **kwargs))

    describe(call, method)
    return call


def context(
    method: Callable[Concatenate[A, P], AbstractAsyncContextManager[S]],
    convert: Callable[[Any, S], T],
) -> Callable[Concatenate[Any, P], AbstractContextManager[T]]:
    """Generate a context manager; `convert` makes the block's value from the asynchronous one."""

    @contextmanager
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        with portal.SyncContextManager(method(self._delegate, *args, **kwargs)) as value:
            yield convert(self, value)

    describe(call, method)
    return call


class ExecSession:
    """A running command. Iterate over it to read the output, then read `exit_code`."""

    def __init__(self, session: AsyncExecSession) -> None:
        self._delegate = session

    @property
    def exit_code(self) -> int:
        """The command's exit code; known after the output has been read to its end."""
        return self._delegate.exit_code

    write = blocking(AsyncExecSession.write)
    close_stdin = blocking(AsyncExecSession.close_stdin)
    resize = blocking(AsyncExecSession.resize)
    terminate = blocking(AsyncExecSession.terminate)
    communicate = blocking(AsyncExecSession.communicate)

    def __iter__(self) -> Iterator[ExecOutput]:
        return portal.iterate(self._delegate.__aiter__())
