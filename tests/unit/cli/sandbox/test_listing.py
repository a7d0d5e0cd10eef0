"""`holdfast sandbox list` and the formats of `-o`: tables, YAML, names, JSON, and the table of `--watch`."""

import datetime as dt
import json
from contextlib import contextmanager

import pytest
import yaml
from tests.support.stubs import stub

from holdfast.api import Phase, SandboxChange, SandboxView, WorkspaceView
from holdfast.cli import cli
from holdfast.cli.output import progress_renderer, run_command
from holdfast.cli.sandbox import inspection, listing

CONTROLS = "\x1b[31m\x07\x9b31m\x85\u202e"
ESCAPED = r"\x1b[31m\x07\x9b31m\x85\u202e"


def sandbox_view(name, phase=Phase.READY, **fields):
    created = (dt.datetime.now(dt.UTC) - dt.timedelta(hours=3)).isoformat()
    return SandboxView(name=name, id=f"id-{name}", phase=phase, created=created, image="app:1", **fields)


class FakeSandboxes:
    """The client for all sandboxes; `changes` are what a watch reports before Ctrl-C."""

    def __init__(self, views, changes=()):
        self.views, self.changes = views, changes

    def list(self, *, selector=None):
        return iter(self.views)

    def watch(self, *, selector=None):
        yield from (SandboxChange(type=kind, sandbox=view) for kind, view in self.changes)
        raise KeyboardInterrupt


@pytest.fixture
def list_sandboxes(monkeypatch, capsys):
    """Run `sandbox list`; return its exit code, stdout and stderr."""

    def run(*words, views=(), changes=()):
        @contextmanager
        def open_sandboxes(_gateway):
            with progress_renderer() as renderer:
                yield FakeSandboxes(views, changes), renderer

        stub(monkeypatch, listing, "open_sandboxes", open_sandboxes)
        exit_code = run_command(cli, ["sandbox", "list", *words])
        return exit_code, *capsys.readouterr()

    return run


@pytest.fixture
def get(monkeypatch, capsys):
    """Run `sandbox get`; return stdout."""

    def run(view, *words):
        class FakeSandbox:
            def get(self):
                return view

        @contextmanager
        def open_sandbox(_name, _gateway):
            yield FakeSandbox(), None

        stub(monkeypatch, inspection, "open_sandbox", open_sandbox)
        assert run_command(cli, ["sandbox", "get", view.name, *words]) == 0
        return capsys.readouterr().out

    return run


VIEWS = [
    sandbox_view("b", Phase.SUSPENDED, reason="PodTerminated"),
    sandbox_view(
        "a", reason="DependenciesReady", pod="a", pod_ip="10.0.0.9", node="n", cpu="2", memory="1Gi",
        workspace=WorkspaceView(pvc="workspace-a", size="2Gi"), template="t",
    ),
]  # fmt: skip


def test_table_is_sorted_and_aligned(list_sandboxes):
    _, out, _ = list_sandboxes(views=VIEWS)
    assert out.splitlines() == [
        "NAME  PHASE      REASON         IMAGE  POD IP    AGE",
        "a     Ready                     app:1  10.0.0.9  3h",
        "b     Suspended  PodTerminated  app:1            3h",
    ]


def test_wide_table_has_more_columns(list_sandboxes):
    _, out, _ = list_sandboxes("-o", "wide", views=VIEWS)
    headings, first, _ = out.splitlines()
    assert headings.split()[-6:] == ["POD", "NODE", "CPU", "MEMORY", "WORKSPACE", "TEMPLATE"]
    assert first.split()[-7:] == ["3h", "a", "n", "2", "1Gi", "2Gi", "t"]


def test_names_are_arguments_for_other_commands(list_sandboxes, get):
    assert list_sandboxes("-o", "name", views=VIEWS) == (0, "a\nb\n", "")
    assert get(VIEWS[0], "-o", "name") == "b\n"


def test_yaml_and_json_have_the_same_content(list_sandboxes, get):
    _, as_json, _ = list_sandboxes("--json", views=VIEWS)
    assert list_sandboxes("-o", "json", views=VIEWS)[1] == as_json
    _, as_yaml, _ = list_sandboxes("-o", "yaml", views=VIEWS)
    assert yaml.safe_load(as_yaml) == json.loads(as_json)
    assert as_yaml.startswith("sandboxes:\n- name: a\n  id: id-a\n  phase: Ready\n")
    assert get(VIEWS[1], "-o", "json") == get(VIEWS[1], "--json")
    assert yaml.safe_load(get(VIEWS[1], "-o", "yaml")) == json.loads(get(VIEWS[1], "--json"))


@pytest.mark.parametrize("words", [(), ("-o", "wide"), ("-o", "yaml"), ("--json",), ("-w",)], ids=" ".join)
def test_control_characters_of_the_cluster_are_escaped(list_sandboxes, words):
    view = sandbox_view("a", Phase.PENDING, reason=CONTROLS, message=CONTROLS)
    _, out, _ = list_sandboxes(*words, views=[view], changes=[("added", view)])
    # A right-to-left override does not control a terminal; tables and YAML escape it too.
    allowed = {"\n", "\u202e"} if words == ("--json",) else {"\n"}
    assert {character for character in out if not character.isprintable()} <= allowed
    if words == ("--json",):
        assert json.loads(out)["sandboxes"][0]["reason"] == CONTROLS
    elif words == ("-o", "yaml"):
        assert yaml.safe_load(out)["sandboxes"][0]["reason"] == CONTROLS
    else:
        assert ESCAPED in out


def test_empty_list_says_so_in_each_format(list_sandboxes):
    assert list_sandboxes()[1] == "No sandboxes yet. Create one with `holdfast sandbox create work`.\n"
    text = "No sandboxes match the selector team=red.\n"
    assert list_sandboxes("-l", "team=red") == (0, text, "")
    assert list_sandboxes("-l", "team=red", "-o", "name") == (0, "", text)
    assert list_sandboxes("-o", "yaml") == (0, "sandboxes: []\n", "")
    assert list_sandboxes("-o", "json") == (0, '{"sandboxes":[]}\n', "")


CHANGES = [
    ("added", VIEWS[1]),
    ("modified", sandbox_view("a", reason="DependenciesReady", pod_ip="10.0.0.9", last_used="2026-01-01")),
    ("added", sandbox_view("a-much-longer-name-than-before")),
    ("modified", sandbox_view("a", Phase.SUSPENDED, reason="PodTerminated")),
    ("deleted", sandbox_view("a", Phase.DELETING)),
    ("added", sandbox_view("a")),
]


def test_watch_prints_one_line_per_visible_change_until_interrupted(list_sandboxes):
    exit_code, out, err = list_sandboxes("--watch", changes=CHANGES)
    assert (exit_code, err) == (130, "")
    headings, *rows = out.splitlines()
    assert headings.split() == ["NAME", "PHASE", "REASON", "IMAGE", "POD", "IP", "AGE"]
    assert [row.split()[:2] for row in rows] == [
        ["a", "Ready"],
        ["a-much-longer-name-than-before", "Ready"],
        ["a", "Suspended"],
        ["a", "Deleted"],
        ["a", "Ready"],
    ]
    # Columns become wider and never narrower.
    phases = [row.index(row.split()[1]) for row in rows]
    assert phases == sorted(phases)
    assert headings.index("IMAGE") == rows[0].index("app:1")


def test_watch_in_other_formats_prints_every_change(list_sandboxes):
    exit_code, out, _ = list_sandboxes("-w", "--json", changes=CHANGES)
    changes = [json.loads(line) for line in out.splitlines()]
    assert exit_code == 130
    assert [(each["type"], each["sandbox"]["name"]) for each in changes] == [
        (kind, view.name) for kind, view in CHANGES
    ]
    assert list(yaml.safe_load_all(list_sandboxes("-w", "-o", "yaml", changes=CHANGES)[1])) == changes
    names = list_sandboxes("-w", "-o", "name", changes=CHANGES)[1]
    assert names.split() == [view.name for _, view in CHANGES]
