"""A command on a pseudo-terminal: type keys, resize it, wait for output."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import termios
import time


class PseudoTerminal:
    """A command on a pseudo-terminal."""

    def __init__(self, running, *words):
        self.child, self.fd = pty.fork()
        if self.child == 0:
            argv = running.holdfast.argv("sandbox", *words)
            os.execve(argv[0], argv, running.holdfast.environment)
        self.output = b""

    def resize(self, rows, columns):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text):
        os.write(self.fd, text.encode())

    def wait_for(self, pattern, seconds=60):
        """Read until the screen shows something."""
        until = time.monotonic() + seconds
        while not (found := re.search(pattern, self.output)):
            ready, _, _ = select.select([self.fd], [], [], max(0, until - time.monotonic()))
            assert ready, f"never saw {pattern!r} in {self.output!r}"
            self.output += os.read(self.fd, 65536)
        self.output = self.output[found.end() :]
        return found

    def wait_exit_code(self):
        """Its exit code, once the rest of the screen has been read."""
        while True:
            try:
                if not os.read(self.fd, 65536):
                    break
            except OSError:
                break
        return os.waitstatus_to_exitcode(os.waitpid(self.child, 0)[1])

    def is_raw(self):
        return not termios.tcgetattr(self.fd)[3] & termios.ICANON
