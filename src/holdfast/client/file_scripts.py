"""Shell scripts that read and change files in a sandbox; `holdfast.client.files` runs them.

They use POSIX shell, and `stat -c` and `readlink -n` as GNU coreutils, busybox and toybox have them. Their
exit codes name the problem: messages differ between programs and languages.
"""

from __future__ import annotations

MISSING, DENIED, IS_DIRECTORY, NOT_DIRECTORY, NOT_EMPTY, INCOMPLETE = 41, 42, 43, 44, 45, 46
_CODES = {
    "MISSING": MISSING, "DENIED": DENIED, "IS_DIRECTORY": IS_DIRECTORY, "NOT_DIRECTORY": NOT_DIRECTORY,
    "NOT_EMPTY": NOT_EMPTY, "INCOMPLETE": INCOMPLETE,
}  # fmt: skip
# `read_path` keeps newlines at the end of a path, which `$(...)` removes. `require` explains why a path does
# not exist: a directory on the way that may not be searched hides it.
_FUNCTIONS = r"""
LC_ALL=C
export LC_ALL
read_path() { path=$(printf '%b/' "$1"); path=${path%/}; }
exists() { [ -e "$1" ] || [ -L "$1" ]; }
parent_of() { parent=${1%/*}; parent=${parent:-/}; }
explain() {
  parent_of "$1"
  while [ "$parent" != / ] && ! exists "$parent"; do parent_of "$parent"; done
  if [ -d "$parent" ]; then [ -x "$parent" ] || exit DENIED; else exit NOT_DIRECTORY; fi
}
require() { exists "$1" || { explain "$1"; exit MISSING; }; }
read_path "$1"
"""


def _script(body: str) -> str:
    text = _FUNCTIONS + body
    for name, code in _CODES.items():
        text = text.replace(name, str(code))
    return text


READ_SCRIPT = _script(r"""
require "$path"
[ ! -d "$path" ] || exit IS_DIRECTORY
[ -e "$path" ] || exit MISSING
[ -r "$path" ] || exit DENIED
exec cat <"$path"
""")
# The file gets its name when all its bytes have arrived: the end of the input alone may be a lost connection.
# The client sends after `ready` and closes the input after `stop`: the container runtime may never report the
# end of a command that exits before its input ends.
WRITE_SCRIPT = _script(r"""
size=$2 mode=$3
stop() { echo stop; cat >/dev/null; exit "$1"; }
links=0
while [ -L "$path" ]; do
  links=$((links + 1))
  [ "$links" -le 40 ] || { echo 'too many links' >&2; stop 1; }
  parent_of "$path"
  target=$(readlink -n -- "$path" && echo /) || stop DENIED
  case $target in /*) path=${target%/} ;; *) path=$parent/${target%/} ;; esac
done
parent_of "$path"
(
  [ ! -d "$path" ] || exit IS_DIRECTORY
  mkdir -p -- "$parent" || { explain "$path"; exit 1; }
  [ -w "$parent" ] || exit DENIED
) || stop $?
partial=$parent/.holdfast-write-$$
trap 'rm -f -- "$partial"' EXIT
trap 'exit 1' HUP INT TERM
rm -f -- "$partial"
echo ready
(umask 077; exec cat >"$partial") || stop $?
[ "$(wc -c <"$partial")" -eq "$size" ] || exit INCOMPLETE
if [ -n "$mode" ]; then
  chmod "$mode" "$partial" || exit
elif [ -f "$path" ]; then
  chown "$(stat -c %u:%g -- "$path")" "$partial" 2>/dev/null
  chmod "$(stat -c %a -- "$path")" "$partial" || exit
else
  chmod "$(printf %o $((0666 & ~0$(umask))))" "$partial" || exit
fi
[ ! -d "$path" ] || exit IS_DIRECTORY
mv -f -- "$partial" "$path" && stat -c 's%f %s %Y /' -- "$path"
""")
# A name contains no slash, so that a slash ends it; a target of a link contains no null byte.
LIST_SCRIPT = _script(r"""
require "$path"
[ -d "$path" ] || exit NOT_DIRECTORY
[ -r "$path" ] || exit DENIED
cd -- "$path" || exit DENIED
print_entries() {
  stat -c 's%f %s %Y %n/' -- "$@"
  for entry; do
    [ ! -L "$entry" ] || { printf 'l%s/' "$entry"; readlink -n -- "$entry"; printf '\0'; }
  done
}
set --
for entry in * .[!.]* ..?*; do
  exists "$entry" || continue
  set -- "$@" "$entry"
  [ $# -lt 200 ] || { print_entries "$@"; set --; }
done
[ $# -eq 0 ] || print_entries "$@"
exit 0
""")
STAT_SCRIPT = _script(r"""
require "$path"
stat -c 's%f %s %Y /' -- "$path" || exit
[ ! -L "$path" ] || { printf 'l/'; readlink -n -- "$path"; printf '\0'; }
""")
EXISTS_SCRIPT = _script(r"""
exists "$path" || { explain "$path"; exit MISSING; }
""")
MAKE_DIR_SCRIPT = _script(r"""
if [ -d "$path" ]; then exit; elif exists "$path"; then exit NOT_DIRECTORY; fi
mkdir -p -- "$path" || { explain "$path"; exit 1; }
""")
REMOVE_SCRIPT = _script(r"""
require "$path"
if [ -L "$path" ] || [ ! -d "$path" ]; then
  rm -f -- "$path"
elif [ "$2" = 1 ]; then
  rm -rf -- "$path"
else
  for entry in "$path"/* "$path"/.[!.]* "$path"/..?*; do ! exists "$entry" || exit NOT_EMPTY; done
  rmdir -- "$path"
fi
""")
RENAME_SCRIPT = _script(r"""
source=$path
require "$source"
read_path "$2"
echo target >&2
if [ -d "$path" ] && [ ! -L "$path" ]; then exit IS_DIRECTORY; fi
if [ -d "$source" ] && [ ! -L "$source" ] && exists "$path"; then exit NOT_DIRECTORY; fi
parent_of "$path"
require "$parent"
[ -d "$parent" ] || exit NOT_DIRECTORY
# With a link to a directory as target, `mv` would move into that directory.
[ ! -L "$path" ] || rm -f -- "$path" || exit
mv -f -- "$source" "$path"
""")
