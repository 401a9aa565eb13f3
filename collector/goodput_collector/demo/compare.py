"""Holds the ledger against what was really done: one line per figure, with what it may be off by and why.

Tolerances come from causes that can be named, never from what would pass:

- `SEEN_S`: how late the watch sees a process come or go: the poll, and the time until the watch gets a processor.
- a step: a fault falls inside a step, and the ledger counts from the step's end.
- what the ranks' own logs show of noise: the spread of own work in undisturbed steps, the spread of other saves.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from goodput_analytics.model import Category, Incident, Report
from goodput_collector.demo.figures import NS_PER_S, Fact, Interval, Line
from goodput_collector.demo.options import Fault
from goodput_collector.demo.regularity import (
    first_step_excess_s,
    longest_step_s,
    own_work_spread_s,
    save_lengths_s,
    uneven_s,
)
from goodput_collector.demo.truth import Act, AttemptTruth, Record

SEEN_S = 0.2
# Between two readings of the clock, a rank's own log's and the recorder's, the rank may lose its processor: for a few
# of the kernel's time slices at a single moment, for less than one on average over many.
CLOCK_S = 0.05
SAVE_CLOCK_S = 0.01


def compare(record: Record, report: Report, intervals: list[Interval]) -> list[Line | Fact]:
    """Every figure of the ledger that the injector knows by itself, beside its truth."""
    attempts = record.attempts()
    lines: list[Line | Fact] = [*_whole(record, attempts, report, intervals)]
    aborted = [attempt for attempt in attempts if attempt.abort_ns is not None]
    incidents = {incident.attempt: incident for incident in report.incidents}
    cause = {Fault.KILL: "crash", Fault.HANG: "hang"}
    struck = {act.attempt: act for act in record.acts if act.fault in cause}
    lines.append(
        Fact(
            what="incidents",
            injected=_words(cause[struck[a.attempt].fault] if a.attempt in struck else "crash" for a in aborted),
            ledger=_words(incident.cause for incident in report.incidents),
        )
    )
    for attempt, following in zip(attempts, [*attempts[1:], None], strict=True):
        act, incident = struck.get(attempt.attempt), incidents.get(attempt.attempt)
        if act is not None and incident is not None:
            lines += _incident(record, attempt, following, act, incident, intervals)
    for act in record.acts:
        if act.fault is Fault.SLOW_RANK:
            lines += _slow_rank(record, act, report, intervals)
        elif act.fault is Fault.SLOW_SAVE:
            lines += _slow_save(record, act, intervals)
    lines += _remainder(record, attempts, report)
    return lines


def _whole(
    record: Record, attempts: list[AttemptTruth], report: Report, intervals: list[Interval]
) -> Iterable[Line | Fact]:
    held_s = (attempts[-1].end_ns - attempts[0].seen_ns) / NS_PER_S
    yield Line(
        what="GPU time held",
        injected=held_s * record.ranks,
        ledger=report.allocated_gpu_s,
        allowed=SEEN_S * record.ranks,
        unit="GPU-s",
        why="the first process is seen a poll after it started",
    )
    yield Line(
        what="sum of all entries",
        injected=round(report.allocated_gpu_s, 9),
        ledger=round(sum(interval.gpu_ns for interval in intervals) / NS_PER_S, 9),
        allowed=0.0,
        unit="GPU-s",
        why="the ledger balances exactly",
    )
    yield Fact(what="attempts", injected=str(len(attempts)), ledger=str(len(report.attempts)))
    yield Fact(what="state", injected="finished", ledger=str(report.state))


def _incident(
    record: Record,
    attempt: AttemptTruth,
    following: AttemptTruth | None,
    act: Act,
    incident: Incident,
    intervals: list[Interval],
) -> Iterable[Line | Fact]:
    name = str(act.fault)
    saves = [line.step for line in record.of(attempt.attempt, "save") if line.step is not None]
    if attempt.abort_ns is None or attempt.last_step is None or attempt.last_step_end_ns is None or not saves:
        return
    saved = max(saves)
    step_s = longest_step_s(record, attempt.attempt)
    yield Line(
        what=f"{name}: steps lost",
        injected=attempt.last_step - saved,
        ledger=incident.lost_steps,
        allowed=0,
        unit="steps",
        why="counted",
    )
    hung = act.fault is Fault.HANG
    if hung:
        yield Line(
            what=f"{name}: standstill",
            injected=(attempt.abort_ns - act.at_ns) / NS_PER_S * record.ranks,
            ledger=incident.hang_gpu_s,
            allowed=(step_s + SEEN_S) * record.ranks,
            unit="GPU-s",
            why="counted from the end of a step, stopped inside one; a death is seen a poll later",
        )
        yield Fact(
            what=f"{name}: suspected rank", injected=str(act.rank), ledger=_words(map(str, incident.suspect_ranks))
        )
    worked_until_ns = attempt.last_step_end_ns if hung else attempt.abort_ns
    save_end_ns = record.save_end_ns(attempt.attempt, saved)
    yield Line(
        what=f"{name}: work thrown away",
        injected=None if save_end_ns is None else (worked_until_ns - save_end_ns) / NS_PER_S * record.ranks,
        ledger=incident.rework_gpu_s,
        allowed=(CLOCK_S + (uneven_s(record, attempt.attempt) if hung else SEEN_S)) * record.ranks,
        unit="GPU-s",
        why="from the end of the last save, "
        + ("to that of a step, which ranks leave unevenly" if hung else "to a death, which is seen a poll later"),
    )
    if following is not None and following.first_step_start_ns is not None:
        yield Line(
            what=f"{name}: restart",
            injected=(following.first_step_start_ns - attempt.abort_ns) / NS_PER_S * record.ranks,
            ledger=incident.restart_gpu_s,
            allowed=(SEEN_S + CLOCK_S) * record.ranks,
            unit="GPU-s",
            why="a death is seen a poll later",
        )
    if hung:
        teardown_ns = sum(
            i.gpu_ns
            for i in intervals
            if i.category == Category.STARTUP and i.phase == "teardown" and act.at_ns < i.start_ns <= attempt.end_ns
        )
        yield Line(
            what=f"{name}: of it, teardown",
            injected=(attempt.end_ns - attempt.abort_ns) / NS_PER_S * record.ranks,
            ledger=teardown_ns / NS_PER_S,
            allowed=2 * SEEN_S * record.ranks,
            unit="GPU-s",
            why="torchrun's wait for the stopped process, cut short by us; from death to death, each seen a poll later",
        )


def _slow_rank(record: Record, act: Act, report: Report, intervals: list[Interval]) -> Iterable[Line | Fact]:
    slept = record.slept(Fault.SLOW_RANK)
    slow = {line.step for line in slept}
    noise_s = own_work_spread_s(record, act.attempt, slow)
    yield Line(
        what="slow_rank: waiting for it",
        injected=sum(line.end_ns - line.start_ns for line in slept) / NS_PER_S * record.ranks,
        ledger=sum(i.gpu_ns for i in intervals if i.category == Category.STRAGGLER and i.step in slow) / NS_PER_S,
        allowed=len(slow) * noise_s * record.ranks,
        unit="GPU-s",
        why=f"in undisturbed steps the ranks' own work differs by up to {noise_s * 1e3:.0f} ms on average",
    )
    worst = max(report.stragglers, key=lambda s: s.loss_gpu_s, default=None)
    yield Fact(
        what="slow_rank: named rank", injected=str(act.rank), ledger="nobody" if worst is None else str(worst.rank)
    )


def _slow_save(record: Record, act: Act, intervals: list[Interval]) -> Iterable[Line]:
    slept = record.slept(Fault.SLOW_SAVE)
    ours = [line for line in record.of(act.attempt, "save") if line.step == act.first_step]
    entered_ns, left_ns = min((s.start_ns for s in ours), default=0), max((s.end_ns for s in ours), default=0)
    blocked = [i for i in intervals if i.category == Category.CHECKPOINT]
    in_it = [i.gpu_ns for i in blocked if i.start_ns < left_ns and i.end_ns > entered_ns]
    others = [length_s for (_, step), length_s in save_lengths_s(record).items() if step != act.first_step]
    usual_s = statistics.median(others) if others else 0.0
    spread_s = max(others, default=0.0) - min(others, default=0.0)
    yield Line(
        what="slow_save: time in that save",
        injected=(sum(line.end_ns - line.start_ns for line in slept) / NS_PER_S + usual_s) * record.ranks
        if slept
        else None,
        ledger=sum(in_it) / NS_PER_S if in_it else None,
        allowed=(CLOCK_S + spread_s) * record.ranks,
        unit="GPU-s",
        why=f"with a usual save of {usual_s * 1e3:.0f} ms; others differ by {spread_s * 1e3:.0f} ms",
    )


def _remainder(record: Record, attempts: list[AttemptTruth], report: Report) -> Iterable[Line]:
    """What is left when nothing is disturbed: every start, every save, and the work that was kept."""
    saves = save_lengths_s(record)
    yield Line(
        what="saves",
        injected=len({step for _, step in saves}),
        ledger=report.checkpoints.count,
        allowed=0,
        unit="saves",
        why="counted",
    )
    blocked_s = sum(saves.values())
    small_s = CLOCK_S + SAVE_CLOCK_S * len(saves)
    yield Line(
        what="time in saves",
        injected=blocked_s * record.ranks,
        ledger=report.gpu_s[Category.CHECKPOINT],
        allowed=small_s * record.ranks,
        unit="GPU-s",
        why=f"{SAVE_CLOCK_S * 1e3:.0f} ms for each save between two readings of the clock",
    )
    starts_s = warm_s = kept_s = edges_s = 0.0
    for before, attempt, following in zip([None, *attempts], attempts, [*attempts[1:], None], strict=False):
        begun_ns = attempt.seen_ns if before is None or before.abort_ns is None else before.abort_ns
        first_ns = attempt.first_step_start_ns
        if first_ns is None:
            starts_s += (attempt.end_ns - begun_ns) / NS_PER_S
            continue
        starts_s += (first_ns - begun_ns) / NS_PER_S
        excess_s = first_step_excess_s(record, attempt.attempt)
        warm_s += excess_s
        edges_s += CLOCK_S + 2 * uneven_s(record, attempt.attempt)
        last = attempt.last_step if following is None or following.first_step is None else following.first_step - 1
        ends = [line.end_ns for line in record.of(attempt.attempt, "step") if line.step == last]
        if last is not None and ends:
            inside_s = sum(s for (number, step), s in saves.items() if number == attempt.attempt and step < last)
            kept_s += (max(ends) - first_ns) / NS_PER_S - inside_s - excess_s
    yield Line(
        what="all starts and restarts",
        injected=(starts_s + warm_s) * record.ranks,
        ledger=report.gpu_s[Category.STARTUP],
        allowed=(SEEN_S * len(attempts) + edges_s) * record.ranks,
        unit="GPU-s",
        why="a process is seen to come or go a poll later; ranks leave the first step unevenly",
    )
    kept = (Category.PRODUCTIVE, Category.STRAGGLER, Category.DATA_WAIT, Category.UNATTRIBUTED)
    yield Line(
        what="steps that were kept",
        injected=kept_s * record.ranks,
        ledger=sum(report.gpu_s[category] for category in kept),
        allowed=(small_s + edges_s) * record.ranks,
        unit="GPU-s",
        why="productive, with the waiting inside it; may be off by what saves and first steps may be",
    )


def _words(parts: Iterable[str]) -> str:
    return ", ".join(parts) or "none"
