"""The types of the parameters of all commands: each one rejects an invalid value before anything is changed.

Imports click only; the rules of other packages are imported when a value is checked.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from holdfast.cli.checked_type import CheckedType, ChoiceType, InvalidValueError, integer, matching

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

MAX_PORT = 65535
_MAX_SECONDS = 2**31 - 1
_MAX_PATH_LENGTH = 4096
_MAX_PART_LENGTH = 255
_MAX_REFERENCE_LENGTH = 384
# The kernel's limit for one argument or variable of a program.
_MAX_WORD_LENGTH = 128 * 1024 - 1


def _model(model: str, problem: str) -> Callable[[str], str]:
    """A parser that checks a text against a type of `holdfast.api`."""

    def parse(text: str) -> str:
        import msgspec

        from holdfast.api import (
            EnvVarName,
            LabelKey,
            LabelSelector,
            LabelValue,
            Name,
            Quantity,
            SecretKey,
            Size,
        )

        models = {
            "EnvVarName": EnvVarName, "LabelKey": LabelKey, "LabelSelector": LabelSelector,
            "LabelValue": LabelValue, "Name": Name, "Quantity": Quantity, "SecretKey": SecretKey,
            "Size": Size,
        }  # fmt: skip
        try:
            return str(msgspec.convert(text, models[model]))
        except msgspec.ValidationError:
            raise InvalidValueError(problem) from None

    return parse


def _parse_seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise InvalidValueError("not a number") from None
    if not math.isfinite(number) or not 0 < number <= _MAX_SECONDS:
        raise InvalidValueError("not a possible time")
    return number


def _parse_port(text: str) -> int:
    if not re.fullmatch("[0-9]{1,5}", text.strip()) or not 1 <= int(text) <= MAX_PORT:
        raise InvalidValueError("not a port")
    return int(text)


def _parse_port_or_auto(text: str) -> int | str:
    return "auto" if text.strip().lower() == "auto" else _parse_port(text)


def _parse_port_mapping(text: str) -> tuple[int, int]:
    local, colon, remote = text.partition(":")
    parts = (local, remote if colon else local)
    if not all(re.fullmatch("[0-9]{1,5}", part) and int(part) <= MAX_PORT for part in parts):
        raise InvalidValueError("not a port mapping")
    if not int(parts[1]):
        raise InvalidValueError("the port in the sandbox cannot be 0")
    return int(parts[0]), int(parts[1])


def _parse_gateway_name(text: str) -> str:
    from holdfast.gateway import requested_gateway_name

    return requested_gateway_name(text) or text


def _parse_image(text: str) -> str:
    from holdfast.containers import validate_reference

    return validate_reference(_check_length(text, _MAX_REFERENCE_LENGTH).strip())


def _parse_memory(text: str) -> str:
    from holdfast.sandbox import memory_problem

    problem, _, accepted = memory_problem(text).rpartition(": ")[2].partition("; write ")
    if problem:
        raise InvalidValueError(problem, accepted)
    return text


def _parse_command(text: str) -> list[str]:
    import shlex

    _check_word(text)
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InvalidValueError(str(error)[:1].lower() + str(error)[1:]) from None
    if not words:
        raise InvalidValueError("no command")
    return words


def _parse_variable(text: str) -> tuple[str, str]:
    import os

    # KEY alone keeps a secret out of the command line, which other users of this machine can read.
    key, equals, value = text.partition("=")
    _check_word(value)
    _model("EnvVarName", "not a valid variable")(key)
    if not equals and key not in os.environ:
        raise InvalidValueError("the variable is not set on this machine", f"{key}=VALUE")
    return key, value if equals else os.environ[key]


def _parse_label_key(key: str) -> str:
    from holdfast.sandbox import reserved_label_reason

    if reason := reserved_label_reason(key):
        raise InvalidValueError(f"reserved: {reason}", "a label with another prefix")
    return _model("LabelKey", "not a valid label")(key)


def _parse_label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    key = _parse_label_key(key)
    if not equals:
        raise InvalidValueError("value missing", f"{key}=VALUE")
    return key, _model("LabelValue", "not a valid label")(value)


def _parse_remote(text: str) -> str:
    from holdfast.remote import parse_target

    parse_target(_check_length(text, _MAX_PART_LENGTH))
    return text


def _parse_path(text: str) -> str:
    if not text.strip():
        raise InvalidValueError("empty")
    for part in text.split("/"):
        _check_length(part, _MAX_PART_LENGTH)
    return _check_length(text, _MAX_PATH_LENGTH)


def _parse_output_file(text: str) -> Path:
    from pathlib import Path

    path = Path(_parse_path(text))
    if path.is_dir():
        raise InvalidValueError("a directory")
    return path


def _parse_input_file(text: str) -> Path:
    import os

    path = _parse_output_file(text)
    if text != "-" and not os.access(path, os.R_OK):
        raise InvalidValueError("not a file that can be read")
    return path


def _parse_directory(text: str) -> Path:
    from pathlib import Path

    path = Path(_parse_path(text)).expanduser().absolute()
    if "\0" in text or (path.exists() and not path.is_dir()):
        raise InvalidValueError("not a directory")
    return path


def _parse_sandbox_path(text: str) -> str:
    from holdfast.client import remote_path
    from holdfast.errors import UsageError

    try:
        remote_path(_parse_path(text))
    except UsageError:
        raise InvalidValueError("`..` is not allowed in a sandbox path") from None
    return text


def _parse_sandbox_location(text: str) -> tuple[str, str]:
    name, _, path = text.partition(":")
    return _model("Name", "not a valid sandbox name")(name), _parse_sandbox_path(path or ".")


def _parse_command_id(text: str) -> str:
    from holdfast.client import validate_command_id
    from holdfast.errors import UsageError

    try:
        return validate_command_id(text)
    except UsageError:
        raise InvalidValueError("not the id of a command") from None


def _parse_signal(text: str) -> str:
    from holdfast.client import signal_name
    from holdfast.errors import UsageError

    try:
        return signal_name(text)
    except UsageError:
        raise InvalidValueError("not a signal") from None


def _parse_secret_use(text: str) -> str:
    from holdfast.sandbox import parse_secret_use

    parse_secret_use(text)
    return text


def _check_length(text: str, most: int) -> str:
    if len(text) > most:
        raise InvalidValueError("too long")
    return text


def _check_word(text: str) -> None:
    _check_length(text, _MAX_WORD_LENGTH)
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise InvalidValueError("not UTF-8 text")


def _setting(key: str) -> Callable[[str], str]:
    """A parser that checks the value of a setting and leaves it as it is."""

    def parse(text: str) -> str:
        from holdfast.gateway import check_setting

        check_setting(key, text)
        return text

    return parse


def _parse_address(text: str) -> str:
    import ipaddress

    try:
        return str(ipaddress.IPv4Address(text.strip()))
    except ValueError:
        raise InvalidValueError("not an IPv4 address") from None


def _image_names() -> Iterable[str]:
    from holdfast.images import ALL_IMAGE_NAMES

    return ALL_IMAGE_NAMES


_NAME_FORM = "at most 63 lower-case letters, digits and dashes, with a letter or digit at both ends"
_PATH_FORM = "a path of at most 4096 characters"

GATEWAY = CheckedType(
    _parse_gateway_name,
    "at most 200 letters, digits, _ . and -, but no - as the first character",
    example="dev",
    name="gateway",
)
SANDBOX = CheckedType(_model("Name", "not a valid sandbox name"), _NAME_FORM, example="box")
OBJECT = CheckedType(_model("Name", "not a valid name"), _NAME_FORM, example="main", name="name")
QUANTITY = CheckedType(_model("Quantity", "not a quantity"), "a number such as 500m or 2", example="500m")
MEMORY = CheckedType(_parse_memory, "an amount such as 512Mi", example="512Mi")
SIZE = CheckedType(_model("Size", "not a size"), "an amount such as 10Gi", example="10Gi")
SELECTOR = CheckedType(
    _model("LabelSelector", "not a label selector"),
    "labels as in kubectl, such as 'team=blue,tier in (web, db),!old'",
    example="team=blue",
)
LABEL = CheckedType(_parse_label, "KEY=VALUE, such as team=blue", example="team=blue")
LABEL_KEY = CheckedType(_parse_label_key, "the key of a label, such as team", example="team")
VARIABLE = CheckedType(_parse_variable, "KEY=VALUE, or KEY of a local variable", example="KEY=VALUE")
VARIABLE_NAME = CheckedType(
    _model("EnvVarName", "not a valid variable"), "letters, digits and underscores", example="KEY"
)
SECRET_KEY = CheckedType(
    _model("SecretKey", "not a valid key"),
    "at most 253 letters, digits, dashes, underscores and dots",
    example="PASSWORD",
)
SECRET_USE = CheckedType(
    _parse_secret_use,
    "NAME, or NAME:/path with a directory that hides no files of the system",
    example="db",
)
COMMAND = CheckedType(_parse_command, "a command such as 'sleep 60'", example="sleep 60")
IMAGE = CheckedType(_parse_image, "[registry/]name[:tag] in lower case", example="python:3.13", name="image")
HOLDFAST_IMAGE = ChoiceType(_image_names, example="node")
KUBERNETES = matching("1[.][0-9]{1,3}", "not a Kubernetes version", "a version such as 1.33", example="1.33")
SECONDS = CheckedType(_parse_seconds, "seconds as a number greater than 0", example="60")
POOL_SIZE = integer(0, 1000)
WHOLE_SECONDS = integer(1, 366 * 24 * 3600)
SETTING_SECONDS = CheckedType(
    _setting("timeouts.node_ready"), "seconds from 1 to 86400, such as 90, 90s, 3m or 1h", example="90"
)
PORT = CheckedType(_parse_port, f"a number from 1 to {MAX_PORT}", example="8080")
PORT_OR_AUTO = CheckedType(
    _parse_port_or_auto, f"a number from 1 to {MAX_PORT}, or auto", example="8080", name="port"
)
PORT_MAPPING = CheckedType(_parse_port_mapping, "LOCAL:REMOTE, such as 8080:80", example="8080:80")
ADDRESS = CheckedType(_parse_address, "an IPv4 address such as 127.0.0.1", example="127.0.0.1")
GPUS = CheckedType(_setting("gpus"), "all, none, or device IDs separated by commas", example="all")
REMOTE = CheckedType(_parse_remote, "USER@HOST, or a host of your ssh configuration", example="user@host")
PATH = CheckedType(_parse_path, _PATH_FORM, example="data")
FILE = CheckedType(
    _parse_output_file, "the path of a file, not of a directory", example="out.tar.gz", name="file"
)
EXISTING_FILE = CheckedType(_parse_input_file, "the path of a file that exists", example="-")
DIRECTORY = CheckedType(_parse_directory, "the path of a directory", example=".")
SANDBOX_PATH = CheckedType(
    _parse_sandbox_path, "a path of at most 4096 characters, without `..`", example="data"
)
SANDBOX_LOCATION = CheckedType(
    _parse_sandbox_location, "NAME or NAME:PATH, without `..` in the path", example="box:data"
)
COMMAND_ID = CheckedType(
    _parse_command_id, "the id that `sandbox exec --background` has printed", example="0123456789ab"
)
SIGNAL = CheckedType(_parse_signal, "a name such as TERM or INT, or its number", example="INT")
RUN = matching(
    "[A-Za-z0-9-]{1,64}", "not a part of an ID", "a part of the ID of a run, or last", example="last"
)
