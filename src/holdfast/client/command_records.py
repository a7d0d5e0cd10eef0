"""Records of the commands that run in the background of a sandbox: their state and their output.

They are files in the sandbox, so that they outlive the client and, on the workspace, also the pod.
`holdfast.client.launch` has the scripts that write them. The supervisor of a command writes the exit code. If
the supervisor is gone and there is no exit code, the command is lost.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from holdfast.client.launch import ID_LENGTH, RECORD_ROOTS
from holdfast.errors import ApiRequestRejectedError, ArgumentTypeError, InvalidArgumentError

if TYPE_CHECKING:
    from holdfast.client.scripts import ScriptRunner

CommandState: TypeAlias = Literal["running", "finished", "lost"]

_STATES: dict[str, CommandState] = {"running": "running", "finished": "finished", "lost": "lost"}
_ID = re.compile(f"[0-9a-f]{{{ID_LENGTH}}}")
LOST_CODE, NO_COMMAND_CODE = 75, 44
# The supervisor is recognised by the marker in its arguments: another process may have its number.
_STATE_FUNCTIONS = r"""
is_supervised() {
  read -r pid marker <"$1/pid" || return
  while IFS= read -r line || [ -n "$line" ]; do
    case $line in *"$marker"*) return 0 ;; esac
  done <"/proc/$pid/cmdline"
  return 1
}
read_state() {
  marker= code= ended= state=lost
  read -r started <"$1/started" || started=0
  if { is_supervised "$1"; } 2>/dev/null; then state=running; fi
  # Last: the supervisor writes the exit code and then ends.
  if [ -f "$1/exit" ]; then
    state=finished
    read -r code ended <"$1/exit"
  elif [ ! -f "$1/pid" ] && [ $(($(date +%s) - started)) -lt 10 ]; then
    state=running
  fi
}
"""
_LIST_SCRIPT = (
    _STATE_FUNCTIONS
    + r"""
for root in ROOTS; do
  for record in "$root/.holdfast/$1"/${2:-*}; do
    [ -f "$record/started" ] || continue
    read_state "$record"
    printf '%s\0' "${record##*/}" "$marker" "$state" "$code" "$started" "$ended"
    if [ -f "$record/pid" ]; then cat "$record/command"; else printf '0\0'; fi
  done
done
"""
).replace("ROOTS", RECORD_ROOTS)
# `cat` continues where the previous one has ended: both read the same open file.
OUTPUT_SCRIPT = (
    _STATE_FUNCTIONS
    + r"""
for root in ROOTS; do
  record=$root/.holdfast/$1/$2
  [ -f "$record/started" ] && break
  record=
done
[ -n "$record" ] || exit NO_COMMAND
for name in stdout stderr; do [ -f "$record/$name" ] || : >>"$record/$name"; done
exec 3<"$record/stdout" 4<"$record/stderr"
[ "$3" = 0 ] || tail -c "+$(($3 + 1))" <&3
[ "$4" = 0 ] || tail -c "+$(($4 + 1))" <&4 >&2
while :; do
  read_state "$record"
  cat <&3
  cat <&4 >&2
  [ "$state" != lost ] || exit LOST
  [ "$state" = running ] && [ "$5" = 1 ] || exit 0
  sleep 0.2
done
""".replace("ROOTS", RECORD_ROOTS)
    .replace("NO_COMMAND", str(NO_COMMAND_CODE))
    .replace("LOST", str(LOST_CODE))
)


class CommandView(msgspec.Struct, frozen=True, kw_only=True):
    """State of a background command.

    Attributes:
        id: name of the command in its sandbox.
        command: program and arguments.
        state: `running`, `finished`, or `lost`: its pod ended before the command did.
        exit_code: exit code of a finished command, else None; 128 and the number of the signal that ended it.
        started: time of the start, by the clock of the sandbox.
        ended: time of the end, if the command has finished.
    """

    id: str
    command: list[str]
    state: CommandState
    exit_code: int | None = None
    started: datetime
    ended: datetime | None = None


def record_group(container: str | None) -> str:
    """Directory of the records of one container: process numbers are valid only there."""
    return f"commands.{container}" if container else "commands"


async def read_records(
    scripts: ScriptRunner,
    container: str | None,
    id: str = "",  # noqa: A002 (as of the handle)
) -> list[tuple[CommandView, str]]:
    """Read the records of all background commands, or of one, with the marker of each."""
    group = record_group(container)
    result = await scripts.run(_LIST_SCRIPT, group, id, container=container)
    try:
        records = parse_records(result.stdout)
    except ValueError as error:
        # A sandbox is not trusted: its programs may have changed the files.
        raise ApiRequestRejectedError(
            f"sandbox {scripts.name}: the records of background commands are damaged",
            hint=f"Delete /sandbox/.holdfast/{group} in the sandbox.",
        ) from error
    return sorted(records, key=lambda record: record[0].started)


def parse_records(output: bytes) -> list[tuple[CommandView, str]]:
    """Parse the fields that the script prints for each command.

    Raises:
        ValueError: a field is missing or has another form.
    """
    fields = [field.decode("utf-8", "surrogateescape") for field in output.split(b"\0")[:-1]]
    records = []
    while fields:
        (name, marker, state, code, started, ended, count), rest = fields[:7], fields[7:]
        words, fields = rest[: int(count)], rest[int(count) :]
        if not 0 <= int(count) == len(words):
            raise ValueError(f"{name}: {count} words")
        if _ID.fullmatch(name):
            records.append((_to_view(name, words, state, code, started, ended), marker))
    return records


def _to_view(name: str, words: list[str], state: str, code: str, started: str, ended: str) -> CommandView:
    try:
        return CommandView(
            id=name,
            command=words,
            state=_STATES[state],
            exit_code=int(code) if code else None,
            started=datetime.fromtimestamp(int(started), UTC),
            ended=datetime.fromtimestamp(int(ended), UTC) if ended else None,
        )
    except (KeyError, OverflowError, OSError) as error:
        raise ValueError(name) from error


def validate_command_id(id: str) -> str:  # noqa: A002 (as of the handle)
    """Return the id of a background command.

    Raises:
        InvalidArgumentError: no command can have this id.
    """
    if not isinstance(id, str):
        raise ArgumentTypeError("id", f"must be text, not {id!r}")
    if not _ID.fullmatch(id):
        raise InvalidArgumentError(
            "id", f"{id!r} is not the id of a command: {ID_LENGTH} characters 0-9 and a-f"
        )
    return id
