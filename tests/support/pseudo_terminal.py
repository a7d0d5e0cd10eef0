"""A program on a pseudo-terminal: type keys, resize it, wait for output, read its screen."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import termios
import time


class ProgramOnTerminal:
    """A program on a pseudo-terminal.

    Args:
        argv: the program with its arguments.
        environment: its environment.
        columns: the width of the terminal; None leaves it unknown.
    """

    def __init__(self, argv, environment, columns=None):
        self.child, self.fd = pty.fork()
        if self.child == 0:
            if columns is not None:
                fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
            os.execve(argv[0], argv, environment)
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
        """Its exit code, once the rest of the output has been read."""
        self.read_rest()
        return os.waitstatus_to_exitcode(os.waitpid(self.child, 0)[1])

    def read_rest(self):
        """Read and return the output until the program closes the terminal."""
        while True:
            try:
                data = os.read(self.fd, 65536)
            except OSError:  # the end of a pseudo-terminal
                return self.output
            if not data:
                return self.output
            self.output += data

    def is_raw(self):
        return not termios.tcgetattr(self.fd)[3] & termios.ICANON


class PseudoTerminal(ProgramOnTerminal):
    """A sandbox command of a running gateway on a pseudo-terminal."""

    def __init__(self, running, *words):
        super().__init__(running.holdfast.argv("sandbox", *words), running.holdfast.environment)


class Screen:
    """What a terminal of a given width shows after some output.

    Attributes:
        wrapped: how many lines the terminal had to wrap.
        cursor_visible: whether the cursor is shown.
    """

    _TOKEN = re.compile(r"\x1b\[(\??[0-9;]*)([A-Za-z])|(.)", re.DOTALL)

    def __init__(self, output, columns):
        self._columns = columns
        self._rows, self._row, self._column = [""], 0, 0
        self.wrapped = 0
        self.cursor_visible = True
        for argument, command, character in self._TOKEN.findall(output.decode()):
            if command:
                self._control(argument, command)
            else:
                self._put(character)

    @property
    def lines(self):
        """The lines of the screen, without trailing spaces and empty lines at the end."""
        return "\n".join(row.rstrip() for row in self._rows).rstrip().split("\n")

    def _put(self, character):
        if character == "\r":
            self._column = 0
        elif character == "\n":
            self._next_row()
        else:
            assert character >= " ", f"control character {character!r}"
            if self._column == self._columns:
                self.wrapped += 1
                self._next_row()
                self._column = 0
            row = self._rows[self._row].ljust(self._column)
            self._rows[self._row] = row[: self._column] + character + row[self._column + 1 :]
            self._column += 1

    def _next_row(self):
        self._row += 1
        if self._row == len(self._rows):
            self._rows.append("")

    def _control(self, argument, command):
        match command, argument:
            case "A", count:
                self._row = max(0, self._row - int(count or 1))
            case "K", "2":
                self._rows[self._row] = ""
            case (("h" | "l"), "?25"):
                self.cursor_visible = command == "h"
            case "m", _:
                pass
            case _:
                raise AssertionError(f"unknown control sequence {argument}{command}")
