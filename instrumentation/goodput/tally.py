"""Where one attempt's time went, as one rank saw it: counters, and the few lines that they become.

A rank alone cannot see everything: work that is thrown away later, waiting for slower ranks, and hangs are the ledger's
to tell. So these figures are a first look, and say so.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

NS_PER_S = 1_000_000_000
STARTUP_SPANS = frozenset({"init", "rendezvous", "load_checkpoint", "compile", "data_skip"})
"""Declared spans that are startup, whenever they come."""
_KEPT = ("productive", "evaluation")
_MOST_LOSSES = 3
_LEAST_RATIO = 0.001


def span_category(name: str, category: str | None) -> str:
    """The category of a declared span's time."""
    if name in ("checkpoint", "evaluation"):
        return name
    return "startup" if name in STARTUP_SPANS else category or "unattributed"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """What a rank's steps took so far, in nanoseconds.

    Attributes:
        count: steps done.
        first_ns: when the first one began, None before its end.
        spent_ns: from start to end, summed over all steps.
        waited_ns: of it, waiting for input.
        skipped_ns: of it, steps whose update was not applied.
    """

    count: int
    first_ns: int | None
    spent_ns: int
    waited_ns: int
    skipped_ns: int


class SpanTimes:
    """Time in declared spans after the first step began, by category.

    Attributes:
        by_category_ns: outermost spans only, in nanoseconds.
        inside_steps_ns: the part of it that lies in an open step.
        saves: checkpoints that ended well.
    """

    __slots__ = ("by_category_ns", "inside_steps_ns", "saves")

    def __init__(self) -> None:
        self.by_category_ns: dict[str, int] = {}
        self.inside_steps_ns = 0
        self.saves = 0

    def add(self, category: str, duration_ns: int, *, inside_step: bool) -> None:
        self.by_category_ns[category] = self.by_category_ns.get(category, 0) + duration_ns
        if inside_step:
            self.inside_steps_ns += duration_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One attempt as one rank saw it.

    Attributes:
        run, rank, world_size: whose.
        steps, saves: how many.
        held_ns: from the start of the process (or of the record, where another came before it) to the end.
        by_category_ns: the whole of `held_ns`, in the ledger's categories.
    """

    run: str
    rank: int
    world_size: int
    steps: int
    saves: int
    held_ns: int
    by_category_ns: Mapping[str, int]

    @property
    def goodput_ratio(self) -> float | None:
        """Productive time over time held; None when nothing was held."""
        return self.by_category_ns.get("productive", 0) / self.held_ns if self.held_ns > 0 else None

    def losses(self) -> list[tuple[str, int]]:
        """What was neither productive nor evaluation, largest first."""
        found = [(name, ns) for name, ns in self.by_category_ns.items() if name not in _KEPT and ns > 0]
        return sorted(found, key=lambda loss: -loss[1])


def summarize(
    *, run: str, rank: int, world_size: int, start_ns: int, end_ns: int, steps: StepTimes, spans: SpanTimes
) -> Summary:
    """Divide an attempt's time. The parts add up to the whole, and none is negative."""
    held = max(end_ns - start_ns, 0)
    first = end_ns if steps.first_ns is None else min(max(steps.first_ns, start_ns), end_ns)
    parts = {"startup": first - start_ns if held else 0}
    left = held - parts["startup"]

    def take(category: str, wanted_ns: int) -> None:
        nonlocal left
        taken = min(max(wanted_ns, 0), left)
        left -= taken
        if taken:
            parts[category] = parts.get(category, 0) + taken

    if steps.first_ns is not None:
        for category, ns in spans.by_category_ns.items():
            take(category, ns)
        take("data_wait", steps.waited_ns)
        take("rework", steps.skipped_ns)
        take("productive", steps.spent_ns - spans.inside_steps_ns - steps.waited_ns - steps.skipped_ns)
    parts["unattributed"] = parts.get("unattributed", 0) + left
    return Summary(
        run=run,
        rank=rank,
        world_size=world_size,
        steps=steps.count,
        saves=spans.saves,
        held_ns=held,
        by_category_ns=parts,
    )


def summary_lines(summary: Summary) -> list[str]:
    """What a person reads at the end of an attempt."""
    ratio = summary.goodput_ratio
    steps = f"{summary.steps:,} step{'' if summary.steps == 1 else 's'}"
    saves = f", {summary.saves:,} save{'' if summary.saves == 1 else 's'}" if summary.saves else ""
    goodput = "goodput unknown" if ratio is None else f"goodput {100 * ratio:.1f} %"
    whose = f"rank {summary.rank} of {summary.world_size}"
    lines = [f"{summary.run}: {goodput} of this attempt, as {whose} saw it: {steps}{saves} in {_long(summary.held_ns)}"]
    losses = [(name, ns) for name, ns in summary.losses()[:_MOST_LOSSES] if ns >= _LEAST_RATIO * summary.held_ns]
    if losses:
        told = ", ".join(f"{name} {_long(ns)} ({100 * ns / summary.held_ns:.1f} %)" for name, ns in losses)
        lines.append(f"largest losses: {told}")
    return lines


def ledger_line(run: str, spool: Path) -> str:
    """Where the whole ledger of this run comes from, for a person; the events are in `spool`."""
    return f"the whole ledger: goodput ingest {shlex.quote(str(spool))}, then goodput report {shlex.quote(run)}"


def _long(duration_ns: int) -> str:
    """A duration to read: `0.42 s`, `37.1 s`, `12 min 5 s`, `3 h 40 min`."""
    seconds = duration_ns / NS_PER_S
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min"
