"""Results of `holdfast sandbox delete`."""

import json
from contextlib import contextmanager

import msgspec
from tests.support.stubs import stub

from holdfast.api import DeletionResult
from holdfast.cli import cli
from holdfast.cli.output import run_command
from holdfast.cli.sandbox import delete
from holdfast.errors import SandboxNotFoundError


class MissingSandbox:
    """A sandbox that does not exist."""

    def get(self):
        raise SandboxNotFoundError("sandbox a: does not exist")


def test_deletion_of_a_missing_sandbox_has_all_fields_of_the_result(monkeypatch, capsys):
    @contextmanager
    def open_sandbox(_name, _gateway):
        yield MissingSandbox(), None

    stub(monkeypatch, delete, "open_sandbox", open_sandbox)
    assert run_command(cli, ["sandbox", "delete", "a", "--ignore-missing", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert msgspec.convert(result, DeletionResult) == DeletionResult(deleted=False, workspace="none")
    assert set(result) == set(DeletionResult.__struct_fields__)
