"""The cases of the crash matrix: kills at every step, and the troubles a store and a machine can have.

Each case makes trouble, then runs the workflow until it is done, as a person would: with the same command and
nothing else. Not here: processes (`crash_lab`), and what counts as wrong (`crash`).
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from holdfast.testing.crash_child import TRACEBACK
from holdfast.testing.crash_lab import Case, Lab

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

LOCKED = 4
KILLED = -9
Told = tuple[str, str, Case, list[str]]
"""group, case, the case, what is wrong so far"""


class NotReached(list[str]):
    """Nothing is wrong, but nothing was tried either: the moment of the kill never came."""


def kills(lab: Lab, steps: Sequence[str], lines: dict[str, int], moments: int) -> Iterator[Told]:
    """SIGKILL before, inside and after every step, then run to the end.

    A step without an entry in `lines` had nothing to do in an untroubled run: it cannot be killed.
    """
    for step in steps:
        if step not in lines:
            yield "killed", step, lab.case(), NotReached()
            continue
        places: list[dict[str, Any]] = [{"at": "before"}]
        places += [{"at": "inside", "line": line} for line in _spread(lines.get(step, 0), moments)]
        places += [{"at": "after"}]
        for place in places:
            case = lab.case()
            words = f"line {place['line']}" if place["at"] == "inside" else str(place["at"])
            wrong = _killed(case, step, **place)
            # How many lines a step takes may differ from run to run, but it always has a first one.
            if wrong and place.get("line", 1) > 1 and case.codes[-1] == 0:
                yield "killed", f"{step}, {words}", case, NotReached()
                continue
            yield "killed", f"{step}, {words}", case, wrong + _finish(case)


def random_kills(lab: Lab, count: int, seconds: float, seed: int) -> Iterator[Told]:
    """SIGKILL at random moments, several in a row, then run to the end."""
    rng = random.Random(seed)  # noqa: S311  a script, not a secret
    for number in range(count):
        case = lab.case()
        for _ in range(rng.randint(1, 3)):
            killed = case.run(kill_after=rng.uniform(0, seconds)) < 0
            # Runs get faster once all is warm: the moments follow, so that most of them fall into a run.
            seconds *= 1.03 if killed else 0.9
        yield "killed at random", f"random moments, {number + 1}", case, _finish(case)


def torn_store(lab: Lab, steps: Sequence[str], seed: int) -> Iterator[Told]:
    """Cut a file of the store short, or flip a bit of it, after a kill in the middle."""
    rng = random.Random(seed)  # noqa: S311  a script, not a secret
    middle = steps[len(steps) // 2]
    for suffix, flip in (("", False), ("", True), ("-wal", False), ("-wal", True), ("", None)):
        case = lab.case()
        wrong = _killed(case, middle, at="after")
        path = case.home / f"state.db{suffix}"
        how = "emptied" if flip is None else "a bit flipped" if flip else "cut short"
        reached = path.exists() and path.stat().st_size > 0
        if reached:
            _damage(path, flip, rng)
        yield _told("torn store", f"state.db{suffix} {how}", case, wrong + _finish(case), reached=reached)


def full_disk(lab: Lab, steps: Sequence[str]) -> Iterator[Told]:
    """Let no file grow past a limit: while the store is made, and while it is written."""
    for limit in (1, 8_192, 24_576):
        yield _cramped(lab.case(), f"at {limit:,} bytes", limit=limit)
    for step in dict.fromkeys((steps[0], steps[len(steps) // 2])):
        yield _cramped(lab.case(), f"in {step}", full_in=step)


def _cramped(case: Case, name: str, **job: Any) -> Told:
    code = case.run(**job)
    wrong = ["a traceback"] if code == TRACEBACK else []
    return _told("disk full", name, case, wrong + _finish(case), reached=code != 0)


def _told(group: str, name: str, case: Case, wrong: list[str], *, reached: bool) -> Told:
    """A case that went well although its trouble never came has shown nothing, and is not counted."""
    return group, name, case, wrong if wrong or reached else NotReached()


def read_only(lab: Lab, steps: Sequence[str]) -> Iterator[Told]:
    """Take the right to write the store away; nothing may be done then."""
    for what in ("file", "directory"):
        case = lab.case()
        wrong = _killed(case, steps[len(steps) // 2], at="before")
        begun = case.effects("enter")
        _set_modes(case.home, what, 0o400, 0o500)
        code = case.run(unprivileged=True)
        _set_modes(case.home, what, 0o600, 0o700)
        wrong += [] if code not in {0, TRACEBACK} else [f"exit {code} in place of a clear refusal"]
        if case.effects("enter") != begun:
            wrong += ["an effect without a store"]
        yield "read-only store", what, case, wrong + _finish(case)


def two_at_once(lab: Lab, steps: Sequence[str]) -> Iterator[Told]:
    """Start a second run while the first is at work; then kill the first and go on."""
    case = lab.case()
    pid = case.run_until_stopped(steps[0])
    wrong = []
    if pid is None:
        wrong += ["the first run never reached its first step"]
    else:
        begun = case.effects("enter")
        if case.run() != LOCKED:
            wrong += [f"the second run ended with {case.codes[-1]}, not {LOCKED}"]
        if str(pid) not in case.log():
            wrong += ["the second run did not say who holds the lock"]
        if case.effects("enter") != begun:
            wrong += ["the second run had an effect"]
        case.kill(pid)
    yield "two runs at once", "the holder killed", case, wrong + _finish(case)


def changed_input(lab: Lab, steps: Sequence[str], changed: Any) -> Iterator[Told]:
    """Go on with other parameters, where there are any: after a kill, and when all was done before."""
    group = "changed input"
    if changed is None:
        yield group, "no other parameters were given", lab.case(), NotReached()
        return
    for words, step in (("after a kill", steps[len(steps) // 2]), ("after a kill at the end", steps[-1])):
        case = lab.case()
        wrong = _killed(case, step, at="after")
        yield group, words, case, wrong + _finish(case, params=changed)
    case = lab.case()
    wrong = _finish(case)
    yield group, "after a finished run", case, wrong + _finish(case, params=changed)


def clock_jump(lab: Lab, steps: Sequence[str]) -> Iterator[Told]:
    """Go on after a kill with the clock set back, and far ahead."""
    middle = steps[len(steps) // 2]
    for words, jump in (("a day back", -86_400), ("ten years on", 315_360_000)):
        case = lab.case()
        wrong = _killed(case, middle, at="after")
        yield "clock jump", words, case, wrong + _finish(case, clock=jump)


def changed_code(before: Lab, after: Lab, steps: Sequence[str]) -> Iterator[Told]:
    """Go on after a kill with a program whose steps were edited."""
    case = before.case()
    wrong = _killed(case, steps[len(steps) // 2], at="after")
    moved = case.carried_on_in(after)
    yield "changed code", "after a kill", moved, wrong + _finish(moved)


def _killed(case: Case, step: str, **place: Any) -> list[str]:
    """Run until the kill; a run that ended in any other way has tried nothing, and that is wrong."""
    code = case.run(kill={"step": step, **place})
    return [] if code == KILLED else [f"it was not killed in {step}: the run ended with {code}"]


def _finish(case: Case, **job: Any) -> list[str]:
    if case.run_to_the_end(**job):
        return ["a traceback"] if TRACEBACK in case.codes else []
    return [f"not done after {len(case.codes)} runs"]


def _spread(count: int, wanted: int) -> list[int]:
    """Up to `wanted` of the numbers 1 … count, the first and the last among them."""
    if count <= wanted:
        return list(range(1, count + 1))
    return sorted({1 + round(i * (count - 1) / (wanted - 1)) for i in range(wanted)}) if wanted > 1 else [1]


def _damage(path: Path, flip: bool | None, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    if flip is None or not data:
        data.clear()
    elif flip:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    else:
        del data[rng.randrange(len(data)) :]
    path.write_bytes(data)


def _set_modes(home: Path, what: str, file: int, directory: int) -> None:
    for path in home.glob("state.db*"):
        path.chmod(file)
    if what == "directory":
        home.chmod(directory)
