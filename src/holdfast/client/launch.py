"""How commands start in a sandbox so that their processes can be found and signalled later.

Kubernetes can neither set variables for a command nor signal it. `env` starts the command with a marker in
its environment, which its processes inherit. `TERMINATE_SCRIPT` and `SIGNAL_SCRIPT` find them by the marker.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from holdfast.client.paths import remote_path
from holdfast.errors import (
    ApiRequestRejectedError,
    ArgumentTypeError,
    HoldfastError,
    InvalidArgumentError,
    PathNotFoundError,
    UsageError,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

MARKER_VARIABLE = "HOLDFAST_COMMAND_ID"
ID_LENGTH = 12
START_HINT = "Check the command's name and path."
_CANNOT_EXECUTE_CODES = (126, 127)
_MAX_HELD_BYTES = 4096
_CHANGE_DIRECTORY = 'cd -- "$1" 2>/dev/null || { echo "$0" >&2; exit 126; }; shift; exec "$@"'
# Sets `pids` to the processes with the marker in their environment, and to all processes in sessions that
# such a process leads: a command may clear the environment of its children, and the container runtime starts
# each command in a new session. The scripts signal processes and not groups, so that a signal reaches only
# processes that they have examined. A session belongs to the command only while it has processes: its number
# may be used again later.
# `read` ignores the null bytes in an environment; `grep` of busybox stops at the first.
_FIND_PROCESSES = r"""
marker=$1
sessions=' '
has_marker() {
  while IFS= read -r line || [ -n "$line" ]; do
    case $line in *"$marker"*) return 0 ;; esac
  done <"/proc/$1/environ"
  return 1
}
find_processes() {
  entries= marked=' ' own_sessions=' ' pids=
  for process in /proc/[0-9]*; do
    pid=${process#/proc/}
    [ "$pid" != 1 ] && { read -r line <"$process/stat"; } 2>/dev/null || continue
    set -- ${line##*) }
    session=${4:-none}
    [ "$1" != Z ] || continue
    entries="$entries $pid:$session"
    case $sessions in *" $session "*) continue ;; esac
    { has_marker "$pid"; } 2>/dev/null || continue
    marked="$marked$pid "
    [ "$session" != "$pid" ] || sessions="$sessions$pid "
  done
  for entry in $entries; do
    pid=${entry%:*} session=${entry#*:}
    case $sessions in *" $session "*) own_sessions="$own_sessions$session " ;; esac
    case $own_sessions$marked in *" $session "* | *" $pid "*) pids="$pids $pid" ;; esac
  done
  sessions=$own_sessions
}
find_processes
[ -n "$pids" ] || exit 1
"""
# Succeeds if all processes of the command have ended: after SIGTERM, or 2 seconds later after SIGKILL.
TERMINATE_SCRIPT = (
    _FIND_PROCESSES
    + r"""
for signal in TERM KILL; do
  kill -s "$signal" $pids 2>/dev/null
  for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    find_processes
    [ -n "$pids" ] || exit 0
    [ "$signal" = TERM ] || kill -s KILL $pids 2>/dev/null
    sleep 0.1
  done
done
exit 1
"""
)
SIGNAL_SCRIPT = _FIND_PROCESSES + 'kill -s "$2" $pids\n'

# Background commands: `BACKGROUND_SCRIPT` creates the directory of the records and starts the supervisor,
# which starts the command, waits for it and records its exit code. The supervisor has no marker in its
# environment, so that signals for the command do not reach it.
RECORD_ROOTS = "/sandbox /tmp"
MAX_FINISHED_RECORDS = 100
NO_DIRECTORY_CODE, NO_RECORD_CODE = 122, 121
# A shell starts `command &` with SIGINT ignored, and the command cannot change that. `setsid` forks if its
# process leads a group, as the process of an exec does; then no `&` is needed.
BACKGROUND_SCRIPT = (
    r"""
id=$1 group=$2 cwd=$3
shift 3
record=
for root in ROOTS; do
  [ -d "$root" ] || continue
  records=$root/.holdfast/$group
  if (umask 077; mkdir -p "$records/$id"; date +%s >"$records/$id/started") 2>/dev/null &&
    [ -s "$records/$id/started" ]; then record=$records/$id; break; fi
  rm -rf "$records/$id" 2>/dev/null
done
[ -n "$record" ] || { mkdir -p "$records/$id" && date +%s >"$records/$id/started"; exit NO_RECORD; }
fail() { rm -rf "$record"; exit "$1"; }
[ -z "$cwd" ] || cd -- "$cwd" 2>/dev/null || fail NO_DIRECTORY
HOLDFAST_RECORD= "$@" || fail 127
count=0
for old in $(ls -t "$records" 2>/dev/null); do
  count=$((count + 1))
  [ "$count" -le MAX_FINISHED ] || [ ! -f "$records/$old/exit" ] || rm -rf "$records/$old"
done
process_group() {
  read -r line <"/proc/$$/stat"
  set -- ${line##*) }
  echo "$3"
}
export HOLDFAST_RECORD="$record"
if command -v setsid >/dev/null && [ "$(process_group)" = "$$" ]; then
  exec setsid "$@" </dev/null >"$record/stdout" 2>"$record/stderr"
fi
"$@" </dev/null >"$record/stdout" 2>"$record/stderr" &
""".replace("ROOTS", RECORD_ROOTS)
    .replace("MAX_FINISHED", str(MAX_FINISHED_RECORDS))
    .replace("NO_RECORD", str(NO_RECORD_CODE))
    .replace("NO_DIRECTORY", str(NO_DIRECTORY_CODE))
)
# Without a record, it only checks whether the program exists. Files are renamed into place: a reader never
# sees a part of one, and a full disk leaves no exit code.
_SUPERVISOR_SCRIPT = r"""
record=$HOLDFAST_RECORD marker=$1
unset HOLDFAST_RECORD
shift
[ -n "$record" ] || { command -v -- "$1" >/dev/null 2>&1; exit; }
printf '%s\0' "$#" "$@" >"$record/command" &&
  echo "$$ $marker" >"$record/pid.new" && mv -f "$record/pid.new" "$record/pid" || exit
(
  export MARKER="$marker"
  command -v setsid >/dev/null 2>&1 && exec setsid "$@"
  exec "$@"
)
code=$?
echo "$code $(date +%s)" >"$record/exit.new" && mv -f "$record/exit.new" "$record/exit"
""".replace("MARKER", MARKER_VARIABLE)


class Launch:
    """The start of one command, as the sandbox executes it.

    Attributes:
        marker: value of the marker variable, which all processes of the command inherit.
        id: name of the command, if it runs in the background.
        argv: program and arguments that start the command.
        cwd: absolute path of its working directory; empty if it is that of the image.
    """

    def __init__(
        self,
        command: tuple[str, ...],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
    ) -> None:
        if not command:
            raise UsageError("no command given", hint="Name the program to run.")
        _check_words(command)
        self.command = command
        self.marker = secrets.token_hex(16)
        self.id = self.marker[:ID_LENGTH]
        self.cwd = str(remote_path(cwd)) if cwd is not None else ""
        if not _is_encodable(self.cwd):
            raise InvalidArgumentError("cwd", f"{cwd!r} cannot be encoded as UTF-8")
        self._env = _assignments(env or {})
        self._has_options = bool(env) or cwd is not None
        # `env` would take such a name for another variable.
        prefix = ("sh", "-c", 'exec "$@"', "sh") if "=" in command[0] else ()
        self.argv = ("env", f"{MARKER_VARIABLE}={self.marker}", *self._env, *prefix, *command)
        if self.cwd:
            self.argv = ("sh", "-c", _CHANGE_DIRECTORY, self.marker, self.cwd, *self.argv)
        self._failure_messages = self._expected_failures()

    def background_argv(self, group: str) -> tuple[str, ...]:
        """Program and arguments that start the command in the background and end at once.

        Args:
            group: name of the directory with the records of such commands.
        """
        # An absolute path: the variables of the command may contain PATH.
        supervisor = ("env", *self._env, "/bin/sh", "-c", _SUPERVISOR_SCRIPT, "holdfast", self.marker)
        start = ("sh", "-c", BACKGROUND_SCRIPT, "holdfast", self.id, group, self.cwd)
        return (*start, *supervisor, *self.command)

    def is_start_failure(self, output: bytes) -> bool:
        """Whether the output of the command until now could be the message of a failed start."""
        first, newline, rest = output.partition(b"\n")
        is_expected = any(
            first.startswith(message) or (not newline and message.startswith(first))
            for message in self._failure_messages
        )
        # GNU coreutils add a second line if the name contains a space.
        return is_expected and b"env: ".startswith(rest[:5]) and len(output) <= _MAX_HELD_BYTES

    def start_error(self, output: bytes, exit_code: int, description: str) -> HoldfastError | None:
        """The error of a failed start with this output and exit code; None if the command has started."""
        if exit_code not in _CANNOT_EXECUTE_CODES or not output or not self.is_start_failure(output):
            return None
        first = output.decode(errors="replace").split("\n", 1)[0].strip()
        if first == self.marker:
            return PathNotFoundError(
                f"{description}: {self.cwd}: not a directory that the sandbox's user can enter",
                hint="Create the directory, or check the path.",
            )
        reason = first.rpartition(": ")[2]
        if reason == "No such file or directory":
            reason = "executable file not found"
        return ApiRequestRejectedError(
            f'{description}: the command could not be started: exec: "{self.command[0]}": {reason}',
            hint=START_HINT,
        )

    def is_unsupported(self, reason: str) -> bool:
        """Whether the runtime's reason for a failed start is that the image lacks `env` or `sh`."""
        return f'"{self.argv[0]}"' in reason

    def plain_command(self, description: str) -> tuple[str, ...]:
        """The command for an image without `env`; its processes cannot be found later.

        Raises:
            ApiRequestRejectedError: the command has variables or a working directory.
        """
        if self._has_options:
            raise ApiRequestRejectedError(
                f"{description}: variables and a working directory need `env` and `sh` in the image",
                hint="Use an image that contains them, or omit `env` and `cwd`.",
            )
        return self.command

    def _expected_failures(self) -> list[bytes]:
        name = self.command[0]
        # Of GNU coreutils, without and with a UTF-8 locale, of busybox and of toybox.
        messages = [f"env: '{name}': ", f"env: \u2018{name}\u2019: ", f"env: can't execute '{name}': "]
        messages += [f"env: exec {name}: "]
        # Printed by the script that changes the directory.
        messages += [self.marker] if self.cwd else []
        return [message.encode(errors="surrogateescape") for message in messages]


def _check_words(command: tuple[str, ...]) -> None:
    for word in command:
        if not isinstance(word, str):
            raise ArgumentTypeError("command", f"must consist of text, not {word!r}")
        if "\0" in word:
            raise InvalidArgumentError("command", f"{word!r} contains a null byte")
        if not _is_encodable(word):
            raise InvalidArgumentError("command", f"{word!r} cannot be encoded as UTF-8")


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _assignments(env: Mapping[str, str]) -> list[str]:
    for name, value in env.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise ArgumentTypeError("env", f"must map names to text, not {name!r} to {value!r}")
        if not name or "=" in name or "\0" in name + value or not _is_encodable(name + value):
            raise InvalidArgumentError("env", f"{name!r} is not a valid environment variable")
    return [f"{name}={value}" for name, value in env.items()]
