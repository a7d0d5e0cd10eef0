"""Types of parameters whose errors name the parameter, its value and the accepted form.

    --tail -1: less than 0; write a whole number from 0 to 2147483647

Imports click only.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from click.shell_completion import CompletionItem

    from holdfast.errors import UsageError

T = TypeVar("T")

_MAX_NUMBER = 2**31 - 1
_MAX_SHOWN_LENGTH = 100


class InvalidValueError(ValueError):
    """A value that a `CheckedType` rejects.

    Args:
        problem: what is wrong, such as "less than 1".
        accepted: the accepted form, if it depends on the value.
    """

    def __init__(self, problem: str, accepted: str = "") -> None:
        super().__init__(problem)
        self.accepted = accepted


class RejectedArgumentError(click.UsageError):
    """An error of the command line with a holdfast error that describes it.

    Like all errors of click, it is raised before the command has processed its options.
    """

    def __init__(self, error: UsageError) -> None:
        super().__init__(error.message)
        self.error = error


class CheckedType(click.ParamType[T], Generic[T]):
    """A type of parameters whose errors name the parameter, the value and the accepted form.

    Args:
        parse: returns the value of a text; raises ValueError or UsageError for an invalid one.
        accepted: the accepted form; completes "write …".
        example: a valid text.
        name: placeholder of the value in the help of an option.
    """

    def __init__(
        self, parse: Callable[[str], T], accepted: str, *, example: str, name: str = "value"
    ) -> None:
        self.name = name
        self.parse = parse
        self.accepted = accepted
        self.example = example

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> T:
        if not isinstance(value, str):
            converted: T = value  # a default
            return converted
        from holdfast.errors import UsageError

        try:
            return self.parse(value)
        except UsageError as error:
            self._reject(value, InvalidValueError("not valid"), param, ctx, type(error))
        except ValueError as error:
            self._reject(value, error, param, ctx, UsageError)

    def _reject(
        self, value: str, error: ValueError, param: click.Parameter | None, ctx: Any, kind: type[UsageError]
    ) -> NoReturn:
        accepted = getattr(error, "accepted", "") or self.accepted
        where = f"{_parameter_name(param, ctx)} " if param is not None else ""
        hint = f"Run `{ctx.command_path} --help`." if ctx is not None else ""
        raise RejectedArgumentError(kind(f"{where}{show_value(value)}: {error}; write {accepted}", hint=hint))


class ChoiceType(CheckedType[str]):
    """One of some words.

    Args:
        choices: returns the words; called when a value is checked or completed.
        example: one of them.
    """

    def __init__(self, choices: Callable[[], Iterable[str]], *, example: str) -> None:
        super().__init__(self._parse, "", example=example)
        self._choices = choices

    def _parse(self, text: str) -> str:
        choices = list(self._choices())
        for choice in choices:
            if choice.lower() == text.lower():
                return choice
        raise InvalidValueError("not one of the choices", " or ".join([", ".join(choices[:-1]), choices[-1]]))

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str | None:  # noqa: ARG002
        return f"[{'|'.join(self._choices())}]" if isinstance(param, click.Option) else None

    def shell_complete(
        self,
        ctx: click.Context,  # noqa: ARG002 (click's signature)
        param: click.Parameter,  # noqa: ARG002
        incomplete: str,
    ) -> list[CompletionItem[str]]:
        from click.shell_completion import CompletionItem

        words = [word for word in self._choices() if word.lower().startswith(incomplete.lower())]
        return [CompletionItem(word) for word in words]


def show_value(value: str) -> str:
    """A value in an error: control characters are escaped, and a long value is shortened."""
    from holdfast.cli.output import escape_control_characters

    shown = escape_control_characters(value[: _MAX_SHOWN_LENGTH + 1])
    if len(shown) > _MAX_SHOWN_LENGTH:
        shown = f"{shown[:_MAX_SHOWN_LENGTH]}…"
    return shown if shown and " " not in shown else f"'{shown}'"


def _parameter_name(param: click.Parameter, ctx: click.Context | None) -> str:
    if isinstance(param, click.Option):
        return max((*param.opts, *param.secondary_opts), key=len)
    return str(param.make_metavar(ctx or click.Context(click.Command("holdfast")))).strip("[].… ")


def integer(least: int, most: int = _MAX_NUMBER) -> CheckedType[int]:
    """Whole numbers from `least` to `most`."""

    def parse(text: str) -> int:
        if not re.fullmatch("-?[0-9]{1,18}", text.strip()):
            raise InvalidValueError("not a whole number")
        number = int(text)
        if number < least:
            raise InvalidValueError(f"less than {least}")
        if number > most:
            raise InvalidValueError(f"more than {most}")
        return number

    return CheckedType(
        parse, f"a whole number from {least} to {most}", example=str(max(least, 1)), name="number"
    )


def matching(pattern: str, problem: str, accepted: str, *, example: str) -> CheckedType[str]:
    """Texts that match a regular expression."""

    def parse(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise InvalidValueError(problem)
        return text

    return CheckedType(parse, accepted, example=example)
