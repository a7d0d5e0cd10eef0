"""`holdfast.Gateway`: the gateway commands as methods.

    from holdfast import Gateway

    dev = Gateway("dev")
    dev.up(image="holdfast/node:0.1.0")
    print(dev.status().state, dev.kubeconfig)

Unlike the command line, no method asks for confirmation before it removes data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypedDict

from holdfast import gateway  # its exports are imported on first use
from holdfast.errors import GatewayNotFoundError, LockedError
from holdfast.events import EventBus
from holdfast.gateway.endpoint import api_access
from holdfast.gateway.registry import GatewayFiles, known_gateway_names, resolve_gateway_name, use_gateway

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import Unpack

    from holdfast.client import GatewayEndpoint, Pools, Sandbox, Sandboxes, Secrets, Templates
    from holdfast.events import Event
    from holdfast.gateway.commands import GatewayResult
    from holdfast.gateway.doctor import Diagnosis
    from holdfast.gateway.plan_summary import GatewayPlan
    from holdfast.gateway.settings import ResolvedSettings
    from holdfast.gateway.status import GatewayStatus
    from holdfast.timeline import Timeline
    from holdfast.workflow import RunRecord


class GatewayOptions(TypedDict, total=False):
    """Settings that `Gateway.up` and `Gateway.plan` accept as keywords; see the settings reference.

    `settings` takes all others by key: `settings={"timeouts.node_ready": 60}`.
    """

    image: str
    port: int | Literal["auto"]
    gateway_port: int | Literal["auto"]
    listen: str
    namespace: str
    sandbox_namespace: str
    workloads: bool
    api_names: Sequence[str]
    gpus: Sequence[str] | str
    push_images: Sequence[str]
    settings: Mapping[str, object]


class Gateway:
    """One gateway by name. The constructor makes no request and the gateway need not exist.

    Args:
        name: name of the gateway; default: that of HOLDFAST_GATEWAY, else the active or only gateway, or
            `default` if there is none.
        listener: receives every event of a run, as `--json` prints them.

    Raises:
        InvalidGatewayNameError: The name is not valid.
        GatewayNotFoundError: There are several gateways, but no name and no active gateway.
    """

    def __init__(self, name: str | None = None, *, listener: Callable[[Event], None] | None = None) -> None:
        self.name = resolve_gateway_name(name, for_up=True)
        self._files = GatewayFiles(self.name)
        self._listener = listener

    @staticmethod
    def all() -> list[Gateway]:
        """Return all gateways that are recorded on this machine."""
        return [Gateway(name) for name in known_gateway_names()]

    @property
    def kubeconfig(self) -> Path:
        """The file that `up` writes the kubeconfig to."""
        return self._files.kubeconfig

    def use(self) -> None:
        """Make this gateway the active one, which commands and `Gateway()` use by default.

        Raises:
            GatewayNotFoundError: The gateway is not recorded on this machine.
        """
        use_gateway(self.name)

    def up(
        self,
        *,
        remote: str | None = None,
        recreate: bool = False,
        wipe: bool = False,
        use: bool = False,
        **settings: Unpack[GatewayOptions],
    ) -> GatewayResult:
        """Create, resume or repair the gateway, and wait until it is healthy; another image upgrades it.

        Args:
            remote: host of a new gateway as `user@host`; default: this machine.
            recreate: recreate the container and keep the data.
            wipe: recreate the gateway without its data.
            use: make it the active gateway even if another one is active.
            **settings: settings that override the environment and holdfast.toml.

        Returns:
            The addresses of the gateway and the steps that had an effect.

        Raises:
            InvalidSettingError: A setting is unknown or invalid.
            LockedError: Another command uses the gateway.
            UpgradeRolledBackError: The gateway was unhealthy with the other image and has its old one again.
            HoldfastError: A step failed; call `up` again to continue.
        """
        options = gateway.UpOptions(remote=remote, recreate=recreate, wipe=wipe, use=use)
        return gateway.commands.up(self.name, self._bus(), resolved=_resolve(settings), options=options)

    def plan(
        self,
        *,
        remote: str | None = None,
        recreate: bool = False,
        wipe: bool = False,
        **settings: Unpack[GatewayOptions],
    ) -> GatewayPlan:
        """Preview `up` with the same arguments; changes nothing.

        Returns:
            The changed settings, and each step with the action that `up` would take and the reason.
        """
        options = gateway.UpOptions(remote=remote, recreate=recreate, wipe=wipe)
        return gateway.commands.plan_up(self.name, resolved=_resolve(settings), options=options)

    def stop(self) -> GatewayResult:
        """Stop the gateway; its data stays.

        Raises:
            GatewayNotFoundError: The gateway has no container.
        """
        return gateway.commands.stop(self.name, self._bus())

    def start(self) -> GatewayResult:
        """Start the gateway and wait until it is healthy.

        Raises:
            GatewayNotFoundError: The gateway has no container.
        """
        return gateway.commands.start(self.name, self._bus())

    def restart(self) -> GatewayResult:
        """Stop the gateway and start it again."""
        return gateway.commands.restart(self.name, self._bus())

    def upgrade(self, *, image: str | None = None, timeout: float | None = None) -> GatewayResult:
        """Upgrade the gateway to another node image and keep its data; roll back if it is not healthy.

        Args:
            image: the node image; default: that of this holdfast version.
            timeout: seconds for the new node to become ready.

        Raises:
            GatewayNotFoundError: The gateway has no container.
            ImageIncompatibleError: The new version cannot use the data of the old one.
            UpgradeRolledBackError: The new version was unhealthy; the gateway has its old version again.
        """
        resolved = gateway.resolve_settings({"image": image, "timeouts.node_ready": timeout})
        return gateway.commands.upgrade(self.name, self._bus(), resolved=resolved)

    def plan_upgrade(self, *, image: str | None = None, timeout: float | None = None) -> GatewayPlan:
        """Preview `upgrade` with the same arguments; changes nothing."""
        resolved = gateway.resolve_settings({"image": image, "timeouts.node_ready": timeout})
        return gateway.commands.plan_upgrade(self.name, resolved=resolved)

    def push_images(self, images: Sequence[str]) -> GatewayResult:
        """Push local images into the running gateway; the result names those that it did not have.

        Raises:
            GatewayNotFoundError, NodeStoppedError: The gateway does not exist or does not run.
            ImageNotFoundError, ImageIncompatibleError: The node cannot get or use an image.
        """
        return gateway.commands.push(self.name, images, self._bus())

    def doctor(self, *, fix: bool = False, bundle: Path | None = None) -> Diagnosis:
        """Diagnose the gateway.

        Args:
            fix: make the safe repairs; they delete nothing and stop nothing that is healthy.
            bundle: file for findings, logs and settings without secrets.

        Returns:
            The findings, and what was repaired.
        """
        from holdfast.gateway.doctor import diagnose

        return diagnose(self.name, self._bus(), fix=fix, bundle_to=bundle)

    def merge_kubeconfig(self) -> Path:
        """Merge the gateway's kubeconfig into $KUBECONFIG or ~/.kube/config as the current context.

        The tunnel to a gateway on another host is reopened first, because its address may change then.

        Returns:
            The file that it was merged into.

        Raises:
            GatewayNotFoundError: The gateway has no kubeconfig.
            HostUnreachableError: The tunnel to the gateway is down; nothing was merged.
        """
        return gateway.merge_kubeconfig(self.name)

    def runs(self) -> list[RunRecord]:
        """Return the recorded runs of earlier commands on this gateway, newest first."""
        from contextlib import closing

        from holdfast.workflow import SQLiteStore, list_runs

        if not self._files.state.exists():
            return []
        with closing(SQLiteStore(self._files.state, readonly=True)) as store:
            store.open()
            return list_runs(store)

    def status(self) -> GatewayStatus:
        """Return the current state of the gateway.

        Raises:
            ContainerEngineUnreachableError: The container engine does not answer.
        """
        return gateway.commands.status(self.name)

    def logs(self, *, component: str | None = None, tail: int = 200, follow: bool = False) -> Iterator[str]:
        """Read the log of the node, running or stopped.

        Args:
            component: a component of the node such as `kubelet`; default: the container itself.
            tail: number of lines from the end.
            follow: continue with new lines.

        Raises:
            GatewayNotFoundError: The gateway has no container.
            UsageError: The node has no such component.
        """
        from holdfast.gateway.node import read_node_logs

        return read_node_logs(
            gateway.GatewayContext(self.name), component=component, tail=tail, follow=follow
        )

    def timeline(self, run: str = "last", *, compare: str | None = None) -> Timeline:
        """Return the timeline of a run of this gateway; `holdfast.timeline.render_page` makes a page of it.

        Args:
            run: id of the run, a part of it that occurs in no other run, or `last`.
            compare: run to compare it with; default: the latest successful run of the same command before it.

        Raises:
            GatewayNotFoundError: The gateway has no runs.
            UsageError: No run or several runs match.
            StoreError: The history cannot be read.
        """
        from holdfast.timeline import read_timeline

        if not self._files.state.exists():
            hint = "Run `holdfast runs` to list all runs."
            raise GatewayNotFoundError(f"gateway {self.name}: no runs found", hint=hint)
        return read_timeline(self._files.state, run, compare=compare)

    def sandbox(self, name: str) -> Sandbox:
        """Return one sandbox of the gateway: use `with`, or `async with` in a coroutine."""
        from holdfast.client import Sandbox

        return Sandbox(name, self._api_access, on_retry=self._listener, push_image=self.push_sandbox_image)

    def sandboxes(self) -> Sandboxes:
        """Return the sandboxes of the gateway: list, create, or use a temporary one."""
        from holdfast.client import Sandboxes

        return Sandboxes(self._api_access, on_retry=self._listener, push_image=self.push_sandbox_image)

    def templates(self) -> Templates:
        """Return the templates of the gateway: create, list and delete them."""
        from holdfast.client import Templates

        return Templates(self._api_access, on_retry=self._listener)

    def pools(self) -> Pools:
        """Return the warm pools of the gateway: create, scale, wait for and delete them."""
        from holdfast.client import Pools

        return Pools(self._api_access, on_retry=self._listener, push_image=self.push_sandbox_image)

    def secrets(self) -> Secrets:
        """Return the secrets of the gateway: create, list and delete them; no method returns values."""
        from holdfast.client import Secrets

        return Secrets(self._api_access, on_retry=self._listener)

    def push_sandbox_image(self, image: str) -> bool:
        """Push one of holdfast's own sandbox images from the local container engine into the gateway.

        A sandbox's `wait` calls this when its node cannot pull the image. It waits for another command that
        works on the gateway: several sandboxes may need the same image at the same time.

        Returns:
            Whether the gateway has the image now. False for other images.

        Raises:
            LockedError: Another command has used the gateway for the time of the setting `timeouts.push`.
            HoldfastError: The push failed, as in `push_images`.
        """
        from holdfast.sandbox import from_request

        if image.rpartition(":")[0] not in from_request.SANDBOX_IMAGES:
            return False
        from holdfast.retry import Policy, constant

        timeout = gateway.resolve_settings().settings.timeouts.push
        wait = Policy(attempts=None, deadline=timeout, backoff=constant(0.5), retry_on=LockedError)
        wait.call(gateway.commands.push, self.name, [image], self._bus())
        # Also if nothing was pushed: another command did that after the node had tried to pull the image.
        return True

    def destroy(self, *, data: bool = False) -> GatewayResult:
        """Remove the gateway; unlike the command line, accept one that does not exist.

        Args:
            data: also remove all data of the gateway and its sandboxes, permanently.

        Raises:
            PermanentError: Without `data`: an unfinished upgrade needs the containers.
            LockedError: Another command uses the gateway.
        """
        return gateway.commands.destroy(self.name, with_data=data, bus=self._bus())

    def __repr__(self) -> str:
        return f"<gateway {self.name}>"

    def _api_access(self) -> GatewayEndpoint:
        return api_access(self.name)

    def _bus(self) -> EventBus:
        return EventBus(self._listener) if self._listener is not None else EventBus()


def _resolve(options: GatewayOptions) -> ResolvedSettings:
    flags: dict[str, object] = {**options.get("settings", {}), **options}
    flags.pop("settings", None)
    return gateway.resolve_settings(flags)
