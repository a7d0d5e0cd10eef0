"""An agent that writes code, runs it in a sandbox, and corrects it until it works.

The model is a function from the conversation to the next program. `scripted_model` needs no account; replace
it by a call of the model that you use.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass

from holdfast import Gateway, Sandbox
from holdfast.errors import DeadlineExceededError

PROGRAMS = (
    "print(total)",  # fails: the name is not defined
    "total = sum(number for number in range(1, 101))\nprint(total)",
)


@dataclass(frozen=True)
class Turn:
    """A program of the model, and what happened when it ran."""

    program: str
    exit_code: int
    output: str


Model = Callable[[str, list[Turn]], str]


def scripted_model(goal: str, turns: list[Turn]) -> str:  # noqa: ARG001 (a real model reads the goal)
    """Return the next program of a fixed list."""
    return PROGRAMS[min(len(turns), len(PROGRAMS) - 1)]


def run_program(sandbox: Sandbox, program: str, *, timeout: float = 60) -> Turn:
    """Run a program in the workspace. A program that does not end is a result for the model too."""
    sandbox.files.write("program.py", program)
    try:
        result = sandbox.exec("python3", "program.py", timeout=timeout)
    except DeadlineExceededError:
        return Turn(program, 124, f"the program did not end within {timeout:g} seconds")
    return Turn(program, result.exit_code, result.text + result.stderr.decode(errors="replace"))


def solve(sandbox: Sandbox, goal: str, model: Model, *, max_turns: int = 5) -> list[Turn]:
    """Ask the model for programs until one succeeds; return all turns."""
    turns: list[Turn] = []
    while len(turns) < max_turns and (not turns or turns[-1].exit_code != 0):
        turns.append(run_program(sandbox, model(goal, turns)))
    return turns


def main() -> int:
    parser = argparse.ArgumentParser(description="Let an agent solve a task in a sandbox.")
    parser.add_argument("goal", nargs="?", default="print the sum of the numbers from 1 to 100")
    parser.add_argument("--gateway", help="name of the gateway")
    options = parser.parse_args()
    # The sandbox is deleted after the block. Limits keep a faulty program from disturbing others.
    with Gateway(options.gateway).sandboxes().temporary(memory="512Mi", cpu="1", prefix="agent") as sandbox:
        turns = solve(sandbox, options.goal, scripted_model)
    for number, turn in enumerate(turns, 1):
        print(f"turn {number}: exit code {turn.exit_code}")
        print(turn.output.rstrip())
    return 0 if turns[-1].exit_code == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
