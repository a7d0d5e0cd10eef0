"""docs/reference/json-output.md describes every object that `--json` prints."""

import json
import re
from pathlib import Path

import click
import pytest

from holdfast import events
from holdfast.api import (
    Condition,
    DeletionResult,
    EventView,
    NetworkPolicy,
    NodeUsage,
    PoolDeletionResult,
    PoolView,
    SandboxChange,
    SandboxUpdateResult,
    SandboxUsage,
    SandboxView,
    SecretDeletion,
    SecretResult,
    SecretView,
    TemplateDeletionResult,
    TemplateView,
    UsageReport,
    Workspace,
    WorkspaceView,
)
from holdfast.cli import cli
from holdfast.cli.click_extensions import LazyGroup
from holdfast.cli.output import JSON_SCHEMA_VERSION, print_error
from holdfast.cli.sandbox.bulk import BulkReport, OutcomeReport
from holdfast.client import CommandView, FileEntry
from holdfast.client.copy import CopyResult
from holdfast.errors import PermanentError
from holdfast.gateway.commands import GatewayResult
from holdfast.gateway.doctor.findings import Diagnosis, DoctorReport, Finding, Repair
from holdfast.gateway.plan_summary import GatewayPlan, SettingChange
from holdfast.gateway.registry import GatewayMetadata
from holdfast.gateway.status import GatewayStatus
from holdfast.images import LoadedImage, SavedArchive
from holdfast.images.archive_format import SavedImage
from holdfast.images.build import BuiltImage, ImageState
from holdfast.timeline import (
    Comparison,
    RetryMark,
    RunSummary,
    SkippedSteps,
    StepChange,
    Timeline,
    TimelineStep,
    ValueChange,
)
from holdfast.workflow import PlannedStep, ProbeLog, RunRecord, StepLog

PAGE = (Path(__file__).resolve().parents[4] / "docs" / "reference" / "json-output.md").read_text()
EVENTS = [
    value
    for value in vars(events).values()
    if isinstance(value, type) and issubclass(value, events.Event) and value is not events.Event
]
RESULTS = [
    GatewayResult, GatewayPlan, SettingChange, PlannedStep, GatewayStatus, GatewayMetadata, Diagnosis,
    DoctorReport, Finding, Repair, RunRecord, StepLog, ProbeLog, BuiltImage, ImageState, SavedArchive,
    Timeline, RunSummary, TimelineStep, RetryMark, SkippedSteps, Comparison, StepChange, ValueChange,
    SavedImage, LoadedImage, SandboxView, WorkspaceView,
    TemplateView, TemplateDeletionResult, PoolView, PoolDeletionResult, Workspace, NetworkPolicy,
    Condition, EventView, SandboxChange, BulkReport, OutcomeReport, DeletionResult, CopyResult,
    CommandView, FileEntry, SandboxUpdateResult,
    SecretView, SecretResult, SecretDeletion, UsageReport, SandboxUsage, NodeUsage,
]  # fmt: skip


def described_fields(heading):
    """The fields in the table below a heading."""
    (section,) = re.findall(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return re.findall(r"^\| `(\w+)` \| .+ \|$", section, re.MULTILINE)


def headings(level):
    return re.findall(rf"^{'#' * level} (.+)$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.__name__)
def test_every_event_is_described_with_its_fields(event):
    fields = [field for field in event.__struct_fields__ if field != "at"]
    assert sorted(described_fields(f"`{event.__struct_config__.tag}`")) == sorted(fields)


@pytest.mark.parametrize("result", RESULTS, ids=lambda result: result.__name__)
def test_every_result_is_described_with_its_fields(result):
    assert sorted(described_fields(result.__name__)) == sorted(result.__struct_fields__)


def test_nothing_else_is_described():
    objects = [f"`{event.__struct_config__.tag}`" for event in EVENTS] + [each.__name__ for each in RESULTS]
    assert sorted(headings(3)) == sorted(objects)


def test_error_is_described_with_its_fields(capsys):
    print_error(PermanentError("it broke", hint="Repair it."), as_json=True, gateway="")
    assert described_fields("Errors") == list(json.loads(capsys.readouterr().err))


def test_result_of_every_command_is_described():
    commands = set(re.findall(r"`([a-z ]+)`", "".join(re.findall(r"^\| (`.+?`) \|", PAGE, re.MULTILINE))))
    assert {name for name in public_commands(cli) if name not in commands} == set()


def public_commands(group, path=()):
    """The names of all commands that print a result."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if not isinstance(command, LazyGroup):
            yield " ".join((*path, name))
        if isinstance(command, click.Group):
            yield from public_commands(command, (*path, name))


def test_version_of_the_schema_is_described():
    assert f"This page describes version {JSON_SCHEMA_VERSION}." in PAGE
