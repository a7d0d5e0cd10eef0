"""The example of an agent: the loop ends with a success or at its limit; a hanging program is a result."""

from examples.agent_loop import Turn, run_program, scripted_model, solve

from holdfast.client import ExecResult
from holdfast.errors import DeadlineExceededError


class FakeSandbox:
    """Runs nothing: fails or hangs by the text of the program."""

    def __init__(self):
        self.files, self.written = self, {}

    def write(self, path, data):
        self.written[path] = data

    def exec(self, *command, timeout):
        program = self.written[command[-1]]
        if "loop" in program:
            raise DeadlineExceededError("exec: not finished in time")
        is_broken = "total =" not in program
        error = b"NameError" if is_broken else b""
        return ExecResult(exit_code=int(is_broken), stdout=b"" if is_broken else b"5050\n", stderr=error)


def test_agent_corrects_its_program():
    turns = solve(FakeSandbox(), "sum", scripted_model)
    assert [turn.exit_code for turn in turns] == [1, 0]
    assert (turns[0].output, turns[1].output) == ("NameError", "5050\n")


def test_agent_stops_at_its_limit():
    assert len(solve(FakeSandbox(), "sum", lambda goal, turns: "fail", max_turns=3)) == 3


def test_program_that_does_not_end_is_a_result():
    turn = run_program(FakeSandbox(), "loop", timeout=5)
    assert turn == Turn("loop", 124, "the program did not end within 5 seconds")
