"""Checked by mypy and pyright, never run: a resilient API object is what it was."""

from typing import Any, assert_type

from holdfast import Policy, resilient
from holdfast.kube import (
    AsyncObjects,
    FailureClass,
    Objects,
    OperationResult,
    WriteOutcome,
    api_client,
    classify,
    pod_ready,
    write_outcome,
)


class SomeApi:
    """Stands for any API class: the official client ships no types for its methods."""

    def read(self, name: str) -> list[str]:
        return [name]


wrapped = resilient(SomeApi(), Policy(attempts=2), timeout=5.0)
assert_type(wrapped, SomeApi)
assert_type(wrapped.read("x"), list[str])
wrapped.read(1)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]

objects = Objects(api_client("kubeconfig"))
assert_type(objects.ensure({"kind": "Pod"}), OperationResult)
assert_type(objects.get("Pod", "x"), dict[str, Any] | None)
assert_type(objects.wait("Pod", "x", pod_ready, deadline=5), dict[str, Any] | None)
assert_type(classify(ValueError()), FailureClass)
assert_type(write_outcome(ValueError()), WriteOutcome)


async def use(later: AsyncObjects) -> None:
    assert_type(await later.delete("Pod", "x", wait=5), OperationResult)
