"""Bad values of every option and argument: one line, exit code 2, and nothing is changed or requested.

The tests read the tree of commands, so a new option is tested too. It has to use a type of
`holdfast.cli.parameters`, which knows the accepted form.
"""

import datetime as dt
import json
import pkgutil
import sys
from importlib import import_module
from pathlib import Path

import click
import pytest
from tests.support.command_tree import all_commands, is_flag

import holdfast.cli
from holdfast.cli import cli
from holdfast.cli.checked_type import CheckedType, ChoiceType
from holdfast.cli.output import run_command
from holdfast.gateway.registry import GatewayFiles, GatewayMetadata, use_gateway, write_metadata
from holdfast.pki import ClientCertificateStore, ClientIdentity, issue_bundle

COMMANDS = dict(all_commands())
VALUES = {
    "empty": "",
    "blank": "  ",
    "word": "abc",
    "long": "x" * 10_000,
    "digits": "9" * 400,
    "unicode": "naïve☃",
    "control": "a\x1b[31mb\nc",
    "not UTF-8": "a\udcffb",
    "negative": "-5",
    "fraction": "1.5",
    "infinite": "inf",
    "not a number": "nan",
}
WORDS = {"word", "infinite", "not a number"}
TEXT = set(VALUES) - {"empty", "blank"}

VALID = {
    "GATEWAY": (WORDS | {"fraction"}, "names may contain dots"),
    "SANDBOX": (WORDS, "names"),
    "OBJECT": (WORDS, "names"),
    "IMAGE": (WORDS | {"fraction"}, "names of images may contain dots"),
    "SELECTOR": (WORDS | {"fraction"}, "labels that have to exist"),
    "GPUS": (WORDS | {"fraction"}, "device IDs"),
    "REMOTE": (WORDS | {"fraction"}, "hosts of the ssh configuration"),
    "RUN": (WORDS | {"negative"}, "parts of an ID"),
    "SANDBOX_PATH": (TEXT - {"long", "digits"}, "names of files contain any character"),
    "SANDBOX_LOCATION": (WORDS, "names of sandboxes"),
    "DIRECTORY": (TEXT - {"long", "digits"}, "names of files contain any character"),
    "COMMAND": (TEXT - {"not UTF-8"}, "any words; the sandbox reports a missing program"),
    "PATH": (TEXT - {"long", "digits"}, "names of files contain any character"),
    "FILE": (TEXT - {"long", "digits"}, "names of files contain any character"),
    "SECONDS": ({"fraction"}, "fractions of a second"),
    "SETTING_SECONDS": ({"fraction"}, "fractions of a second"),
    "QUANTITY": ({"fraction"}, "fractions of a CPU"),
    "KUBERNETES": ({"fraction"}, "the form of a version"),
    "LABEL_KEY": (WORDS | {"fraction"}, "keys may contain dots"),
    "VARIABLE_NAME": (WORDS, "names"),
    "SECRET_KEY": (WORDS | {"fraction", "negative"}, "keys may contain dots and dashes"),
    "SECRET_USE": (WORDS, "names"),
    "_INTERVAL": ({"fraction"}, "fractions of a second"),
    "_DOMAIN": (WORDS | {"fraction"}, "domains contain dots"),
    "_NODE": (WORDS | {"fraction"}, "names may contain dots"),
    "_SIZE": ({"fraction"}, "bytes"),
    "_RATE": ({"fraction"}, "requests per second"),
    "_NAME": (WORDS | {"fraction"}, "names may contain dots"),
    "_CLASS": (WORDS | {"fraction"}, "names may contain dots"),
}
"""Values that a type accepts, with the reason; it rejects all others."""

MORE_VALUES = {
    "MEMORY": ["512", "512m", "512MB", "1k", "15Mi"],
    "LABEL": ["=x", "a=b c", "team=naïve", "kubernetes.io/x=y", "holdfast.dev/x=y", f"a={'x' * 64}"],
    "VARIABLE": ["=x", "A-B=x", "1A=x", "naïve=x", "A=\udcff", "NO_SUCH_VARIABLE_HERE"],
    "PORT_MAPPING": ["80:", ":80", "80:0", "80:70000", "1:2:3"],
    "PORT": ["0", "65536", "auto"],
    "PORT_OR_AUTO": ["0", "65536"],
    "ADDRESS": ["::1", "127.0.0.1:80", "256.0.0.1"],
    "REMOTE": ["-oProxyCommand=x", "user@", "user@host:0", "a b"],
    "SELECTOR": ["a=b=c", "=x", "a in b"],
    "COMMAND": ["sh -c 'x"],
    "COMMAND_ID": ["0123456789AB", "0123456789abc", "../0123456789"],
    "SIGNAL": ["LOUD", "0", "-9", "SIG"],
    "SANDBOX_PATH": ["../x", "a/../b"],
    "SANDBOX_LOCATION": [":x", "Upper:x", "box:../x", f"box:{'x' * 5000}"],
    "SETTING_SECONDS": ["0", "90x", "86401"],
    "SECONDS": ["0", "1e999", "1h"],
    "SANDBOX": ["Upper", "a_b", "-a", "a-", "x" * 64],
    "GATEWAY": ["../x", "a/b", "..", "x" * 201],
    "KUBERNETES": ["1.33.1", "2.0"],
    "LABEL_KEY": ["a=b", "-a", "kubernetes.io/x", "holdfast.dev/x"],
    "VARIABLE_NAME": ["A=x", "A-B", "1A"],
    "SECRET_KEY": [".", "..", "a b", "a=b"],
    "SECRET_USE": ["Upper", "db:", "db:relative", "db:/", "db:/etc/", "x" * 64],
    "_KEY_FILE": ["KEY", "=/dev/null", "a b=/dev/null", "KEY=", "KEY=/no/such/file"],
    "_VARIABLE_NAME": ["NO_SUCH_VARIABLE_HERE"],
    "_SECONDS_OR_NEVER": ["0", "Never", "1h"],
    "_INTERVAL": ["0", "0.5", "1s"],
    "_DOMAIN": ["Upper", "a_b", "-a", "a-"],
    "_NODE": ["Upper", "a_b", "-a", "a-"],
    "_NODE_ADDRESS": ["127.0.0.1:80", "256.0.0.1", "::g"],
    "SIZE": ["0Gi", "1.5Gi", "much"],
}
"""More values that a type rejects."""

FREE_TEXT = {
    (("secret", "create"), "values"): "the command rejects every value, and does not show it",
    (("sandbox", "exec"), "command"): "the words of a command; the client checks them",
    (("man", "show"), "words"): "the words of a holdfast command; an unknown one is reported whole",
}
"""Parameters without a checked type, with the reason."""

TYPES = {
    id(value): name
    for module in pkgutil.walk_packages(holdfast.cli.__path__, "holdfast.cli.")
    if not module.name.endswith("__main__")
    for name, value in vars(import_module(module.name)).items()
    if isinstance(value, CheckedType)
}
"""The names of the types in the modules of the command line."""

CASES = [
    pytest.param(path, parameter, id=f"{' '.join(path)} {max(parameter.opts, key=len)}")
    for path, command in COMMANDS.items()
    for parameter in command.params
    if not is_flag(parameter) and (path, parameter.name) not in FREE_TEXT
]


class Effects:
    """Records connections and new processes; a hook of the interpreter cannot be removed."""

    def __init__(self):
        self.recorded = None
        sys.addaudithook(self._record)

    def _record(self, event, arguments):
        if self.recorded is not None and event in ("socket.connect", "subprocess.Popen", "os.posix_spawn"):
            self.recorded.append((event, repr(arguments)))


EFFECTS = Effects()


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A directory with an active gateway at a port that nothing listens on."""
    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("home")
        patch.setenv("HOLDFAST_HOME", str(home))
        patch.setenv("DOCKER_HOST", f"unix://{home}/none.sock")
        patch.delenv("HOLDFAST_GATEWAY", raising=False)
        patch.chdir(tmp_path_factory.mktemp("directory"))
        write_metadata(GatewayMetadata(name="dev", image="i", port=1, gateway_port=1))
        bundle = issue_bundle(["localhost"], at=dt.datetime.now(dt.UTC))
        ClientCertificateStore(GatewayFiles("dev").mtls).write(ClientIdentity(bundle.ca, bundle.client))
        use_gateway("dev")
        yield home


def files(world):
    return {path: path.lstat().st_mtime_ns for root in (world, Path.cwd()) for path in root.rglob("*")}


def example(parameter):
    return getattr(parameter.type, "example", "true")


def command_line(path, tested, value):
    """The command with a value of one parameter, and an example of each other one that is required."""
    options, arguments = [], []
    for parameter in COMMANDS[path].params:
        text = value if parameter is tested else example(parameter)
        if parameter is not tested and not parameter.required:
            continue
        if isinstance(parameter, click.Option):
            options.append(f"{max(parameter.opts, key=len)}={text}")
        else:
            arguments.append(text)
    return [*path, *options, "--", *arguments]


def display_name(path, parameter):
    if isinstance(parameter, click.Option):
        return max((*parameter.opts, *parameter.secondary_opts), key=len)
    return parameter.make_metavar(click.Context(COMMANDS[path])).strip("[].…")


def check_rejection(path, parameter, value, capsys, world):
    before = files(world)
    EFFECTS.recorded = []
    try:
        code = run_command(cli, command_line(path, parameter, value))
    finally:
        effects, EFFECTS.recorded = EFFECTS.recorded, None
    output, error = capsys.readouterr()
    first, *hint = error.splitlines() or [""]
    assert (effects, files(world)) == ([], before), "the command has effects"
    assert (code, output) == (2, ""), error
    assert first.startswith(f"x {display_name(path, parameter)} "), "the line names the parameter"
    assert "; write " in first, "the line names the accepted form"
    assert first.isprintable()
    assert len(first) < 400
    shown = value[:40].encode("unicode_escape").decode() if value.isascii() else value[:1]
    assert shown in first, "the line shows the value"
    assert hint == [f"  Run `holdfast {' '.join(path)} --help`."]


@pytest.mark.parametrize(("path", "parameter"), CASES)
def test_bad_values_are_rejected_in_one_line_without_effects(path, parameter, world, capsys):
    assert isinstance(parameter.type, CheckedType), (
        f"{parameter.type!r}: use a type of holdfast.cli.parameters, or add the parameter to FREE_TEXT"
    )
    type_name = TYPES.get(id(parameter.type), "")
    valid, _ = VALID.get(type_name, ((), ""))
    bad_values = [value for name, value in VALUES.items() if name not in valid]
    for value in (*bad_values, *MORE_VALUES.get(type_name, ())):
        check_rejection(path, parameter, value, capsys, world)


@pytest.mark.parametrize(("path", "parameter"), CASES)
def test_example_and_valid_values_are_accepted(path, parameter):
    kind = parameter.type
    assert kind.accepted or isinstance(kind, ChoiceType)
    context = click.Context(COMMANDS[path])
    valid, _ = VALID.get(TYPES.get(id(kind), ""), ((), ""))
    for text in (kind.example, *(VALUES[name] for name in valid)):
        assert kind.convert(text, parameter, context) is not None, text


@pytest.mark.parametrize(
    ("path", "parameter"),
    [
        pytest.param(path, parameter, id=f"{' '.join(path)} {parameter.opts[0]}")
        for path, command in COMMANDS.items()
        for parameter in command.params
        if is_flag(parameter)
    ],
)
def test_flag_with_value_is_rejected_in_one_line(path, parameter, world, capsys):
    name = next(option for option in parameter.opts if option.startswith("--"))
    assert run_command(cli, [*path, f"{name}={'x' * 10_000}"]) == 2
    output, error = capsys.readouterr()
    first, hint = error.splitlines()
    assert output == ""
    assert f"'{name}'" in first
    assert len(first) < 200
    assert hint == f"  Run `holdfast {' '.join(path)} --help`."


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(
    "word",
    ["--no-such-option", "--\x1b[31m", f"--{'x' * 10_000}", "--\udcff"],
    ids=["word", "control", "long", "not UTF-8"],
)
def test_unknown_option_is_rejected_in_one_line(path, word, world, capsys):
    assert run_command(cli, [*path, word]) == 2
    output, error = capsys.readouterr()
    assert output == ""
    assert len(error.splitlines()) == 2
    assert max(map(len, error.splitlines())) < 400
    assert error.replace("\n", "").isprintable()
    assert f"holdfast {' '.join(path)}: no such option" in error


def test_error_of_bad_value_is_json_on_request(world, capsys):
    for words in (["--tail=-1", "box", "--json"], ["--json", "box", "--tail=-1"]):
        assert run_command(cli, ["sandbox", "logs", *words]) == 2
        error = json.loads(capsys.readouterr().err)
        assert error["code"] == "usage"
        assert error["error"] == "--tail -1: less than 0; write a whole number from 0 to 2147483647"


@pytest.mark.parametrize("value", [VALUES["control"], VALUES["not UTF-8"]], ids=ascii)
@pytest.mark.parametrize("words", [("exec", "box"), ("cp", "here")], ids=" ".join)
def test_valid_text_that_the_command_rejects_is_escaped(words, value, world, capsys):
    """A command in the sandbox may contain control characters; a copy needs the name of a sandbox."""
    if words[0] == "exec":
        value = VALUES["not UTF-8"]
    EFFECTS.recorded = []
    assert run_command(cli, ["sandbox", words[0], "--", words[1], value]) == 2
    effects, EFFECTS.recorded = EFFECTS.recorded, None
    error = capsys.readouterr().err
    assert effects == []
    assert error.replace("\n", "").isprintable()
    assert len(error.splitlines()) <= 2


@pytest.mark.parametrize(
    "path",
    [path for path, command in COMMANDS.items() if "gateway" in {each.name for each in command.params}],
    ids=" ".join,
)
def test_every_command_uses_the_gateway_of_the_variable(path, world, monkeypatch, capsys):
    """An invalid name in the variable is reported, although another gateway is active."""
    monkeypatch.setenv("HOLDFAST_GATEWAY", "a/b")
    arguments = [
        each
        for each in COMMANDS[path].params
        if isinstance(each, click.Argument) and (each.required or each.name == "names")
    ]
    before = files(world)
    EFFECTS.recorded = []
    words = ["box:a", "b"] if path == ("sandbox", "cp") else map(example, arguments)
    options = {("sandbox", "update"): ["--cpu=1"], ("secret", "create"): ["--from-env=PATH"]}
    code = run_command(cli, [*path, *options.get(path, ()), "--", *words])
    effects, EFFECTS.recorded = EFFECTS.recorded, None
    assert (code, effects, files(world)) == (2, [], before)
    assert capsys.readouterr().err.startswith("x HOLDFAST_GATEWAY: gateway name 'a/b': invalid")


def test_value_of_secret_is_not_shown(world, capsys):
    """Users may write a value where the name of a variable belongs, or as an argument."""
    for words in (["--from-env", "KEY=planted"], ["KEY=planted"]):
        assert run_command(cli, ["secret", "create", "db", *words]) == 2
        output, error = capsys.readouterr()
        assert "planted" not in output + error
        assert len(error.splitlines()) == 2


def test_tables_name_existing_types_and_parameters():
    assert set(VALID) | set(MORE_VALUES) <= set(TYPES.values())
    assert [key for key in FREE_TEXT if key[1] not in {each.name for each in COMMANDS[key[0]].params}] == []


def test_audit_records_requests(world):
    """The check that nothing is requested can fail."""
    EFFECTS.recorded = []
    run_command(cli, ["sandbox", "get", "box"])
    effects, EFFECTS.recorded = EFFECTS.recorded, None
    assert effects != []
