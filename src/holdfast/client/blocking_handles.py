"""Synchronous handles for the files and the background commands of a sandbox; loaded on first use."""

from __future__ import annotations

from holdfast.client.background import AsyncBackgroundCommand
from holdfast.client.blocking import blocking, iterator
from holdfast.client.files import AsyncFiles


class BackgroundCommand:
    """A command that runs in the background of a sandbox, also while no client is connected.

    Attributes:
        id: name of the command; `Sandbox.command` returns a handle for it.
    """

    def __init__(self, command: AsyncBackgroundCommand) -> None:
        self._delegate = command
        self.id = command.id

    get = blocking(AsyncBackgroundCommand.get)
    is_running = blocking(AsyncBackgroundCommand.is_running)
    poll = blocking(AsyncBackgroundCommand.poll)
    wait = blocking(AsyncBackgroundCommand.wait)
    kill = blocking(AsyncBackgroundCommand.kill)
    stdout = blocking(AsyncBackgroundCommand.stdout)
    stderr = blocking(AsyncBackgroundCommand.stderr)
    output = iterator(AsyncBackgroundCommand.output)

    def __repr__(self) -> str:
        return repr(self._delegate)


class Files:
    """Files of one sandbox. Paths are relative to `/sandbox`; the commands of the image run as its user."""

    def __init__(self, files: AsyncFiles) -> None:
        self._delegate = files

    read = blocking(AsyncFiles.read)
    read_text = blocking(AsyncFiles.read_text)
    stream = iterator(AsyncFiles.stream)
    write = blocking(AsyncFiles.write)
    list = blocking(AsyncFiles.list)
    stat = blocking(AsyncFiles.stat)
    exists = blocking(AsyncFiles.exists)
    make_dir = blocking(AsyncFiles.make_dir)
    remove = blocking(AsyncFiles.remove)
    rename = blocking(AsyncFiles.rename)
