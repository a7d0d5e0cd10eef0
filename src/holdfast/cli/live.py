"""The live picture on a terminal: steps under way with a spinner, a bar where known, and seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.text import Text

from holdfast.cli.progress import Progress, line_for
from holdfast.events import (
    Event,
    RunFailed,
    RunFinished,
    RunStarted,
    StepFailed,
    StepFinished,
    StepProgress,
    StepSkipped,
    StepStarted,
)

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self


class LiveProgress(Progress):
    """Finished steps scroll away above; those under way stay below and move."""

    def __init__(self) -> None:
        # What steps say comes from outside as well: brackets in it are no colours.
        console = Console(stderr=True)
        self._bars = Bars(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[message]}", style="dim", markup=False),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._console = console
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def __call__(self, event: Event) -> None:
        match event:
            case StepStarted():
                self._drop(event.step)
                self._tasks[event.step] = self._bars.add_task(event.title, total=None, message="")
            case StepProgress() if event.step in self._tasks:
                self._move(event)
            case StepFinished() | StepFailed() | StepSkipped():
                self._drop(event.step)
            case RunStarted() | RunFailed() | RunFinished():
                # A step that was begun and then held back tells of no end; the next run may not come to it.
                for step in list(self._tasks):
                    self._drop(step)
        line = line_for(event)
        if line:
            self._console.print(Text.from_ansi(line))

    def _drop(self, step: str) -> None:
        task = self._tasks.pop(step, None)
        if task is not None:
            self._bars.remove_task(task)

    def _move(self, event: StepProgress) -> None:
        total = None if event.fraction is None else 1.0
        self._bars.update(
            self._tasks[event.step], total=total, completed=event.fraction or 0.0, message=event.message
        )
