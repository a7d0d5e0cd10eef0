"""Steps from functions whose parameters are parameters of the run, results of earlier steps, or the context.

publish = Workflow("publish")

@publish.step(probe=is_reserved)
def reserve_id(world: Path) -> str: ...

@publish.step(probe=is_uploaded)
def upload(world: Path, title: str, report_id: str = result_of(reserve_id)) -> None: ...
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast, get_type_hints

import msgspec

from holdfast.errors import StepResultError, WorkflowError
from holdfast.workflow.step import ProbeResult, Step, StepContext

if TYPE_CHECKING:
    from collections.abc import Iterator

P = ParamSpec("P")
T = TypeVar("T")

_STEP_NAME = "__holdfast_step__"
_CONTEXT_NAMES = ("ctx", "_ctx", "context")
_RESULT_NAME = "result"
_PLAIN_TYPES = (str, bytes, int, float, list, tuple, set)
_UNSUPPORTED_KINDS = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.VAR_POSITIONAL,
    inspect.Parameter.VAR_KEYWORD,
)


@dataclass(frozen=True, slots=True)
class _ResultReference:
    """Default value of a parameter that receives the result of a step."""

    step: str


def result_of(step: Callable[..., T]) -> T:
    """The default value of a parameter that receives the result of an earlier step.

    Args:
        step: function that `Workflow.step` has decorated.

    Returns:
        A reference. For type checkers, it has the type of the result.

    Raises:
        WorkflowError: the function is not a step.
    """
    return cast("T", _ResultReference(step_name(step)))


def step_name(step: str | Callable[..., Any]) -> str:
    """The name of a step, given by its name or its function.

    Raises:
        WorkflowError: the function is not a step.
    """
    name = step if isinstance(step, str) else getattr(step, _STEP_NAME, None)
    if not isinstance(name, str):
        raise WorkflowError(f"{step!r} is not a step", hint="Decorate the function with `Workflow.step`.")
    return name


class FunctionStep(Step):
    """A step whose hooks are functions with named parameters.

    A parameter is the context of the step (`ctx`), the result of a step (its default is `result_of`), a value
    of `Workflow.bind`, or a parameter of the run. The parameters of the run that `run` has are its inputs.

    Args:
        function: creates the effect.
        name: key of the checkpoint; the name of the function by default.
        probe: observes the effect.
        inputs: further inputs: a mapping, or a function that returns one.
        restore: restores what later steps use in memory; its parameter `result` is that of this step.
        values: values of `Workflow.bind`.
        needs: steps that must be done first, as names or functions.
        reads: like `needs`, for results that the functions read with `ctx.result`.
        **options: further attributes of `Step`.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        name: str | None = None,
        *,
        probe: Callable[..., ProbeResult] | None = None,
        inputs: Callable[..., Mapping[str, Any]] | Mapping[str, Any] | None = None,
        restore: Callable[..., None] | None = None,
        values: Mapping[str, Any] | None = None,
        needs: Sequence[str | Callable[..., Any]] = (),
        reads: Sequence[str | Callable[..., Any]] = (),
        **options: Any,
    ) -> None:
        self._arguments = {
            "function": function, "name": name, "probe": probe, "inputs": inputs, "restore": restore,
            "needs": needs, "reads": reads, **options,
        }  # fmt: skip
        self._values = dict(values or {})
        name = name or getattr(function, "__name__", "").replace("_", "-")
        hooks: dict[str, Any] = {"run": function, "probe": probe, "restore": restore}
        if callable(inputs):
            hooks["inputs"] = inputs
        self._hooks = {hook: _Hook(name, hook, call) for hook, call in hooks.items() if call is not None}
        references = [each.step for hook in self._hooks.values() for each in hook.references.values()]
        calls: dict[str, Any] = {hook: self._with_arguments(hook) for hook in self._hooks if hook != "inputs"}
        super().__init__(
            name,
            **calls,
            needs=_names(needs),
            reads=list(dict.fromkeys([*_names(reads), *references])),
            **options,
        )
        self._input_names = sorted(self._hooks["run"].parameters.keys() - self._values.keys())
        if inputs is not None or self._input_names:
            self.__dict__["inputs"] = functools.partial(self._collect_inputs, inputs)

    def bind(self, values: Mapping[str, Any]) -> FunctionStep:
        """Return the step with fixed values for parameters of its functions."""
        return FunctionStep(**self._arguments, values={**self._values, **values})

    def missing_parameters(self, params: Any) -> Iterator[str]:
        """Names of parameters without a default that the run does not have."""
        for hook in self._hooks.values():
            for name, parameter in hook.parameters.items():
                is_given = name in self._values or _has(params, name)
                if not is_given and parameter.default is parameter.empty:
                    yield name

    def _with_arguments(self, hook: str) -> Callable[..., Any]:
        target = self._hooks[hook]

        def call(ctx: StepContext, *result: Any) -> Any:
            value = target.call(ctx, self._values, *result)
            if hook == "probe" and isinstance(value, ProbeResult):
                return msgspec.structs.replace(value, result=_to_json(value.result))
            return _to_json(value) if hook == "run" else value

        if inspect.isfunction(target.function):
            functools.update_wrapper(call, target.function)
        return call

    def _collect_inputs(
        self, more: Callable[..., Mapping[str, Any]] | Mapping[str, Any] | None, ctx: StepContext
    ) -> Mapping[str, Any]:
        collected = {name: _get(ctx.params, name) for name in self._input_names if _has(ctx.params, name)}
        constant = more if isinstance(more, Mapping) else {}
        computed = self._hooks["inputs"].call(ctx, self._values) if callable(more) else {}
        return {**collected, **constant, **computed}


class _Hook:
    """A function of a step and where its arguments come from."""

    def __init__(self, step: str, hook: str, function: Callable[..., Any]) -> None:
        self.function = function
        self._step = step
        if not callable(function):
            raise WorkflowError(f"`{hook}` of step {step!r} must be a function, not {function!r}")
        if inspect.iscoroutinefunction(function):
            raise WorkflowError(
                f"`{hook}` of step {step!r} is a coroutine function; steps are synchronous",
                hint=f"Call asyncio.run(...) inside `{hook}`. Independent steps run in parallel on threads.",
            )
        self.references: dict[str, _ResultReference] = {}
        self.parameters: dict[str, inspect.Parameter] = {}
        self._context_names: list[str] = []
        self._has_result = False
        for name, parameter in inspect.signature(function).parameters.items():
            if parameter.kind in _UNSUPPORTED_KINDS:
                raise WorkflowError(f"`{hook}` of step {step!r} has the parameter {parameter}; name each one")
            if name in _CONTEXT_NAMES or parameter.annotation in (StepContext, "StepContext"):
                self._context_names.append(name)
            elif isinstance(parameter.default, _ResultReference):
                self.references[name] = parameter.default
            elif hook == "restore" and name == _RESULT_NAME:
                self._has_result = True
            else:
                self.parameters[name] = parameter

    @functools.cached_property
    def _types(self) -> dict[str, Any]:
        """Types of the parameters; empty if an annotation cannot be evaluated at run time."""
        try:
            return get_type_hints(self.function)
        except (NameError, TypeError, AttributeError):
            return {}

    def call(self, ctx: StepContext, values: Mapping[str, Any], *result: Any) -> Any:
        """Call the function with its arguments."""
        arguments: dict[str, Any] = dict.fromkeys(self._context_names, ctx)
        for name in self.parameters:
            if name in values:
                arguments[name] = values[name]
            elif _has(ctx.params, name):
                arguments[name] = _get(ctx.params, name)
        for name, reference in self.references.items():
            arguments[name] = self._read(ctx, reference.step, self._types.get(name, Any))
        if self._has_result:
            arguments[_RESULT_NAME] = result[0]
        return self.function(**arguments)

    def _read(self, ctx: StepContext, step: str, annotation: Any) -> Any:
        value = ctx.result(step)
        if annotation is Any:
            return value
        try:
            return msgspec.convert(value, annotation)
        except TypeError:  # a type that msgspec does not know: the value is passed as it was stored
            return value
        except msgspec.ValidationError as error:
            raise StepResultError(
                f"step {self._step!r} reads the result of {step!r} as {annotation}, which it is not: {error}",
                hint="Annotate the parameter with the type that the step returns.",
            ) from error


def _to_json(value: Any) -> Any:
    """Dataclasses, tuples and the like as JSON; the store rejects everything else, such as a secret."""
    try:
        return msgspec.to_builtins(value)
    except (TypeError, ValueError, RecursionError):
        return value


def _names(steps: Sequence[str | Callable[..., Any]]) -> Any:
    # A wrong type is reported with the name of the step when the workflow checks it.
    if isinstance(steps, str) or not isinstance(steps, Sequence):
        return steps
    return [step_name(step) if callable(step) else step for step in steps]


def _has(params: Any, name: str) -> bool:
    if isinstance(params, Mapping):
        return name in params
    return not isinstance(params, _PLAIN_TYPES) and hasattr(params, name)


def _get(params: Any, name: str) -> Any:
    return params[name] if isinstance(params, Mapping) else getattr(params, name)


def mark_as_step(function: Callable[..., Any], name: str) -> None:
    """Let `result_of` and `needs` find the step of a function."""
    setattr(function, _STEP_NAME, name)
