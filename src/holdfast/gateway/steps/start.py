"""Starting the node's container, and what becomes of a port that somebody else has by then.

A free port is chosen when the container is made and taken when it starts: two commands may choose the same
one. Whoever comes second chooses again, as long as nobody can have counted on the first choice.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from holdfast.containers.containers import remove_container, start_container, unpause_container
from holdfast.containers.ports import holder_of
from holdfast.containers.translation import is_transient
from holdfast.engine import Verdict, absent, done, partial
from holdfast.errors import EngineCallError, PortTakenError
from holdfast.gateway.steps.base import GatewayStep
from holdfast.gateway.steps.new_container import image_to_run, make_container
from holdfast.retry import Policy, exponential

if TYPE_CHECKING:
    from holdfast.containers.containers import ContainerView
    from holdfast.engine import Context
    from holdfast.gateway.spec import GatewaySpec

_PORT_TAKEN = ("port is already allocated", "address already in use")
_MOST_MOVES = 20
"""How often other ports are chosen at most: of so many commands at once, each round one has its port."""


class StartContainer(GatewayStep):
    """Start the container; the engine restarts it by itself from then on, until it is stopped on purpose."""

    name = "start-container"
    title = "Start"
    needs = ("keep-running",)
    attempts = "start"
    policy = Policy(
        attempts=5,
        backoff=exponential(0.3, cap=2),
        retry_on=lambda error: is_transient(error) or isinstance(error, PortTakenError),
    )

    def probe(self, ctx: Context) -> Verdict:
        del ctx
        container = self.work.container()
        if container is not None and container.state == "paused":
            return partial("paused")
        if container is not None and container.running:
            return done(f"running since {container.started_at[:19].replace('T', ' ')} UTC")
        return absent("stopped")

    def run(self, ctx: Context) -> None:
        container = self.work.container()
        if container is not None and container.state == "paused":
            unpause_container(self.work.engine, self.work.object)
            ctx.note("it was paused")
            return
        for _ in range(_MOST_MOVES):
            conflict = self._start()
            if conflict is None:
                ctx.note(f"API on {self.work.server}")
                return
            taken = ports_named(str(conflict), self.work.spec)
            if not self._may_move(taken):
                raise self._port_taken(taken, conflict) from conflict
            ctx.progress(f"{self._words(taken)} by now; choosing again")
            self._move(ctx, taken)
        raise PortTakenError(
            f"each of {_MOST_MOVES} free ports was taken before the container had it",
            hint="Run the same command again, or name a port yourself: --port N.",
        )

    def _start(self) -> EngineCallError | None:
        """The engine's answer where a port is taken; None when it has started."""
        try:
            start_container(self.work.engine, self.work.object)
        except EngineCallError as error:
            if any(words in str(error).lower() for words in _PORT_TAKEN):
                return error
            raise
        return None

    def _may_move(self, taken: dict[str, int]) -> bool:
        """Nobody named that port and nobody can know it yet; or any free one was asked for in words."""
        work = self.work
        container = work.container()
        if container is None or work.predecessor() is not None:
            return False
        unknown = work.remembered is None and container.never_ran
        return all(
            getattr(work.settings, key) == "auto" and (unknown or work.resolved.is_given(key))
            for key in taken
        )

    def _move(self, ctx: Context, taken: dict[str, int]) -> None:
        """The same container with other ports; all data is on the volume, which stays."""
        ctx.check_lock()
        container: ContainerView | None = self.work.container()
        image = image_to_run(self.work, container)
        self.work.choose_other_ports(taken)
        remove_container(self.work.engine, self.work.object)
        make_container(self.work, image)

    def _port_taken(self, taken: dict[str, int], error: EngineCallError) -> PortTakenError:
        key = next(iter(taken))
        option = "--port N, or --port auto" if key == "port" else "the setting gateway_port"
        return PortTakenError(
            self._words(taken), hint=f"Stop that, or choose another port: {option}.", cause=error
        )

    def _words(self, taken: dict[str, int]) -> str:
        port = next(iter(taken.values()))
        holder = holder_of(self.work.engine, port) if self.work.engine.is_local else "another program"
        return f"port {port} is already allocated: {holder} has it"


def ports_named(said: str, spec: GatewaySpec) -> dict[str, int]:
    """Which of the gateway's ports an engine's refusal names, by setting; the API's where it names none."""
    named = {int(number) for number in re.findall(r":(\d{1,5})\b", said)}
    ours = {"port": spec.port, "gateway_port": spec.gateway_port}
    return {key: port for key, port in ours.items() if port in named} or {"port": spec.port}
