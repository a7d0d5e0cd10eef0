"""docs/reference/python documents the public API: what it names exists, and nothing public is missing."""

import re
from importlib import import_module
from pathlib import Path

import pytest

import holdfast
from holdfast import client, workflow

PAGES = Path(__file__).resolve().parents[2] / "docs" / "reference" / "python"
IDENTIFIERS = [
    name
    for page in sorted(PAGES.glob("*.md"))
    for name in re.findall(r"^::: (\S+)$", page.read_text(), re.MULTILINE)
]
# Helpers of the command line, and types of parameters.
NOT_LISTED = {
    "content_size", "signal_name", "validate_command_id", "name_gateway", "end_after", "remote_path",
    "summarize", "build_secret_request", "Transport", "GatewayEndpoint", "CommandState", "FileType",
    "RemotePath", "Signal",
}  # fmt: skip


def resolve(identifier):
    """The object or module of an identifier."""
    try:
        return import_module(identifier)
    except ModuleNotFoundError:
        module, _, name = identifier.rpartition(".")
        return getattr(import_module(module), name)


DOCUMENTED = [resolve(identifier) for identifier in IDENTIFIERS]


def is_documented(package, name):
    """Whether a name, or its asynchronous form with the same methods, is documented."""
    forms = [getattr(package, name), getattr(package, f"Async{name}", None)]
    return any(form is each for form in forms if form is not None for each in DOCUMENTED)


@pytest.mark.parametrize("name", sorted(set(holdfast.__all__) - {"__version__", "Sandbox", "retry"}))
def test_public_name_of_the_root_package_is_documented(name):
    assert is_documented(holdfast, name)


@pytest.mark.parametrize("name", sorted(set(client.__all__) - NOT_LISTED))
def test_client_is_documented(name):
    assert is_documented(client, name)


def test_names_that_are_not_listed_exist():
    assert set(client.__all__) >= NOT_LISTED


@pytest.mark.parametrize(
    "name", ["Workflow", "Step", "StepContext", "SQLiteStore", "FileLock", "Secret", "result_of"]
)
def test_part_of_a_workflow_is_documented(name):
    assert is_documented(workflow, name)
