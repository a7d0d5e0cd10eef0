"""The live display on a terminal: running steps with a spinner, a progress bar and the elapsed time."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import BarColumn, Progress as Bars, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from holdfast.cli.output.plain import ProgressRenderer, event_line
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
    from collections.abc import Iterator


class LiveRenderer(ProgressRenderer):
    """Prints finished steps as permanent lines above a live display of the running ones."""

    def __init__(self) -> None:
        # Messages can contain output of other programs, so rich must not interpret brackets as markup.
        self._console = Console(stderr=True)
        self._bars = Bars(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[message]}", style="dim", markup=False),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._bars.stop()

    @contextmanager
    def pause(self) -> Iterator[None]:
        # The display redirects stderr: rich takes the `[y/N]` of a question for markup, and redraws the line.
        self._bars.stop()
        try:
            yield
        finally:
            self._bars.start()

    def __call__(self, event: Event) -> None:
        match event:
            case StepStarted():
                self._remove_task(event.step)
                self._tasks[event.step] = self._bars.add_task(event.title, total=None, message="")
            case StepProgress() if event.step in self._tasks:
                self._update_task(event)
            case StepFinished() | StepFailed() | StepSkipped():
                self._remove_task(event.step)
            case RunStarted() | RunFailed() | RunFinished():
                # A step that was cancelled reports no end, and the next run may not reach it.
                for step in list(self._tasks):
                    self._remove_task(step)
        line = event_line(event)
        if line:
            # `from_ansi` keeps the colours of click and interprets no markup.
            self._console.print(Text.from_ansi(line))

    def _remove_task(self, step: str) -> None:
        task = self._tasks.pop(step, None)
        if task is not None:
            self._bars.remove_task(task)

    def _update_task(self, event: StepProgress) -> None:
        total = None if event.fraction is None else 1.0
        self._bars.update(
            self._tasks[event.step], total=total, completed=event.fraction or 0.0, message=event.message
        )
