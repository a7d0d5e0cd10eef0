"""A command on a terminal of its own, with a person's eyes and fingers."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import termios
import time


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, running, *words):
        self.child, self.screen = pty.fork()
        if self.child == 0:
            argv = running.holdfast.argv("sandbox", *words)
            os.execve(argv[0], argv, running.holdfast.environment)
        self.seen = b""

    def resize(self, rows, columns):
        fcntl.ioctl(self.screen, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text):
        os.write(self.screen, text.encode())

    def wait_for(self, pattern, seconds=60):
        """Read until the screen shows something."""
        until = time.monotonic() + seconds
        while not (found := re.search(pattern, self.seen)):
            ready, _, _ = select.select([self.screen], [], [], max(0, until - time.monotonic()))
            assert ready, f"never saw {pattern!r} in {self.seen!r}"
            self.seen += os.read(self.screen, 65536)
        self.seen = self.seen[found.end() :]
        return found

    def end(self):
        """Its exit code, once the rest of the screen has been read."""
        while True:
            try:
                if not os.read(self.screen, 65536):
                    break
            except OSError:
                break
        return os.waitstatus_to_exitcode(os.waitpid(self.child, 0)[1])

    def is_raw(self):
        return not termios.tcgetattr(self.screen)[3] & termios.ICANON
