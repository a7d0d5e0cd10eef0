"""What a planned command does to a gateway: the settings that it changes, and whether the node stops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from holdfast.gateway.context import CONTAINER_SETTINGS
from holdfast.workflow import Plan

if TYPE_CHECKING:
    from holdfast.containers import ContainerView
    from holdfast.gateway.context import GatewayContext

# Steps that stop the running node, if they run.
_STOPPING_STEPS = frozenset({"replace-old", "ensure-container", "stop-old-node", "remove-new-container"})


class SettingChange(msgspec.Struct, frozen=True, kw_only=True):
    """A setting of the container that a command changes."""

    setting: str
    current: str
    desired: str


class GatewayPlan(Plan, frozen=True, kw_only=True):
    """What a command would do with a gateway; `effect` says what that means for the node."""

    gateway: str
    effect: Literal["none", "starts", "restarts"] = "none"
    settings: tuple[SettingChange, ...] = ()


def summarize_plan(gateway: GatewayContext, plan: Plan) -> GatewayPlan:
    """Add the changed settings and the effect on the node to a plan."""
    container = gateway.container() or gateway.parked_container()
    is_running = container is not None and container.is_running
    steps = {step.step for step in plan if step.action == "run"}
    effect: Literal["none", "starts", "restarts"] = "none"
    if is_running and steps & _STOPPING_STEPS:
        effect = "restarts"
    elif not is_running and "start-container" in steps:
        effect = "starts"
    return GatewayPlan(
        plan.workflow,
        plan.steps,
        gateway=gateway.name,
        effect=effect,
        settings=tuple(_setting_changes(gateway, container)) if container is not None else (),
    )


def _setting_changes(gateway: GatewayContext, container: ContainerView) -> list[SettingChange]:
    current, desired = gateway.with_recorded_settings().spec, gateway.spec
    values = {key: (getattr(current, key), getattr(desired, key)) for key in CONTAINER_SETTINGS}
    values["image"] = (container.image, desired.image)
    return [
        SettingChange(setting=key, current=_format_value(before), desired=_format_value(after))
        for key, (before, after) in values.items()
        if before != after
    ]


def _format_value(value: str | int | tuple[str, ...]) -> str:
    return (",".join(value) or "none") if isinstance(value, tuple) else str(value)
