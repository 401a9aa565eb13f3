"""What a person sees of the demonstration: what happens now, and at the end the ledger beside the truth."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.status import Status
from rich.table import Table
from rich.text import Text

from goodput_collector.demo.figures import Fact, Line

PLAIN_EVERY_S = 5.0


class StageView:
    """Live progress: one line that changes on a terminal, a line every few seconds elsewhere."""

    def __init__(self, console: Console, clock_s: Callable[[], float] = time.monotonic) -> None:
        self.console = console
        self._clock_s = clock_s
        self._began_s = clock_s()
        self._told_s = self._began_s
        self._status: Status | None = None

    def __enter__(self) -> StageView:
        if self.console.is_terminal:
            self._status = self.console.status("starting torchrun")
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def say(self, what: str, actor: str = "injector") -> None:
        """One thing that was done."""
        style = "bold yellow" if actor == "injector" else "dim"
        self.console.print(
            Text(f"{self._clock_s() - self._began_s:6.1f} s  ").append(f"{actor} {what}", style=style), soft_wrap=True
        )

    def show(self, attempt: int, step: int | None, saved: int | None, seconds: float) -> None:
        """Where the training stands."""
        now_s = self._clock_s() - self._began_s
        where = "starting" if step is None else f"step {step}" + ("" if saved is None else f", saved at {saved}")
        text = f"attempt {max(attempt, 0)}: {where} ({now_s:.0f} of about {seconds:.0f} s)"
        if self._status is not None:
            self._status.update(text)
        elif self._clock_s() - self._told_s >= PLAIN_EVERY_S:
            self._told_s = self._clock_s()
            self.say(text, actor="training")


def comparison_table(lines: Sequence[Line | Fact]) -> Table:
    """The truth and the ledger, line by line."""
    table = Table(title="What was done, and what the ledger says (GPU-seconds, or counted)", title_justify="left")
    table.add_column("figure")
    for name in ("done", "ledger", "difference", "allowed"):
        table.add_column(name, justify="right")
    table.add_column("")
    for line in lines:
        mark = Text("ok", style="green") if line.holds else Text("OFF", style="bold red")
        if isinstance(line, Fact):
            table.add_row(line.what, line.injected, line.ledger, "", "equal", mark)
            continue
        digits = 0 if line.unit != "GPU-s" else 2
        table.add_row(
            line.what,
            _figure(line.injected, digits),
            _figure(line.ledger, digits),
            "" if line.difference is None else f"{line.difference:+.{digits}f}",
            "exactly" if line.allowed == 0 else f"±{line.allowed:.{digits}f}",
            mark,
        )
    return table


def reasons(lines: Sequence[Line | Fact]) -> list[str]:
    """Why each figure may be off by what it may: one sentence a line."""
    return [f"{line.what}: {line.why}" for line in lines if isinstance(line, Line) and line.allowed > 0]


def _figure(value: float | None, digits: int) -> str:
    return "unknown" if value is None else f"{value:.{digits}f}"
