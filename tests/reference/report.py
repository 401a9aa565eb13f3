"""The report of one run by the accounting rules, worked out plainly: slow, exact, and independent of the product."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable
from fractions import Fraction
from itertools import pairwise
from typing import Any

from goodput_analytics.model import Category
from goodput_analytics.settings import Settings

from .attempts import Attempt, assemble, lanes, settle
from .claims import SAFE, Context
from .clocks import Clock, aligned, clocks
from .events import Event, Reading, read
from .holds import Grant, Hold, grants
from .incidents import NS, Facts, end_cause, incidents, seconds
from .ledger import Entry, enter, grants_held, is_silent, job_claims
from .line import Line, draw
from .naming import Names, name
from .numbers import median
from .saves import Save, saves_of
from .tail import Tail, phases, tail_of
from .windows import Course, course, divide


def reference_report(
    events: Iterable[Event], run: str, now_ns: int | None = None, settings: Settings | None = None
) -> dict[str, Any]:
    """The report's JSON object, with `_intervals` and `_gpu_ns` (exact totals per category) beside.

    `events` are valid and told once each. `now_ns` None: the run's last event. A second launch under the same name
    is asked for as `NAME~2`. Raises KeyError when there is no such run.
    """
    settings = settings or Settings()
    base, _, suffix = run.partition("~")
    lane = int(suffix) - 1 if suffix.isdigit() else 0
    reading = read(events, base if suffix.isdigit() else run)
    granted = grants(reading.allocations)
    raw_now = max((e["ts_ns"] for e in every_event(reading)), default=None)
    if raw_now is None:
        raise KeyError(run)
    groups = assemble(reading.sources, granted, raw_now if now_ns is None else max(raw_now, now_ns))
    by_source = clocks(groups)
    attempts = [Attempt(number=n, members=[aligned(m, by_source[m.source]) for m in g]) for n, g in enumerate(groups)]
    attempts.sort(key=lambda a: a.process_start_ns)
    lane_attempts = lanes(attempts, settings)
    if lane >= max(1, len(lane_attempts)):
        raise KeyError(run)
    mine = lane_attempts[lane] if lane_attempts else []
    last_event = last_event_ns(reading, mine)
    now = last_event if now_ns is None else max(now_ns, last_event)
    jobs = {a.job for a in mine}
    elsewhere = {a.job for other in lane_attempts if other is not mine for a in other}
    granted = {job: g for job, g in granted.items() if job in jobs or (lane == 0 and job not in elsewhere)}
    settle(mine, granted, now)
    return account(run, mine, granted, now, last_event, reading, by_source, settings, heard=now_ns is not None)


def every_event(reading: Reading) -> list[Event]:
    out = list(reading.others)
    for source in reading.sources:
        out += [*source.events, *source.beats, *source.exits]
    return out


def last_event_ns(reading: Reading, attempts: list[Attempt]) -> int:
    """The time of the last event of anybody under the run's name, on the aligned clocks of the launch's own attempts.

    A process that belongs to none of these is heard on its own clock.
    """
    times: list[int] = [e["ts_ns"] for e in reading.others]
    own = {m.source for attempt in attempts for m in attempt.members}
    for source in reading.sources:
        if source.name not in own:
            times += [e["ts_ns"] for e in (*source.events, *source.beats, *source.exits)]
    for attempt in attempts:
        for m in attempt.members:
            times.append(m.last_event_ns)
            if m.exit_ns is not None:
                times.append(m.exit_ns)
    return max(times)


def account(
    run: str,
    attempts: list[Attempt],
    granted: dict[str, Grant],
    now: int,
    last_event: int,
    reading: Reading,
    by_source: dict[str, Clock],
    settings: Settings,
    *,
    heard: bool,
) -> dict[str, Any]:
    courses = [course(a, now) for a in attempts]
    divide(courses, settings)
    following: dict[int, int | None] = {a.number: None for a in attempts}
    for a, b in pairwise(attempts):
        following[a.number] = b.process_start_ns
    saves = [s for c in courses for s in saves_of(c, following[c.attempt.number])]
    line = draw(courses, saves)
    names = name(courses, line)
    tails = {c.attempt.number: tail_of(c, courses, settings) for c in courses}
    live = bool(attempts) and attempts[-1].ending.kind == "live"
    context = Context(
        settings=settings,
        line=line,
        names=names,
        tails=tails,
        live=live,
    )
    entries = ledger(run, courses, granted, following, now, context)
    facts = Facts(
        courses=courses,
        line=line,
        tails=tails,
        silent={a.number: is_silent(a, following, context) for a in attempts},
        grants=granted,
        entries=entries,
    )
    gpu_ns = {str(c): 0 for c in Category}
    by_phase: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for entry in entries:
        gpu_ns[str(entry.claim.category)] += entry.gpu_ns
        if entry.claim.phase is not None:
            by_phase[str(entry.claim.category)][entry.claim.phase] += entry.gpu_ns
    allocated = sum(gpu_ns.values())
    rows = incidents(facts)
    waits = [g.queue_wait_ns for g in granted.values()]
    known_waits = [w for w in waits if w is not None]
    at_risk: float | None = None
    if line.durable_step is not None:
        at_risk = 0.0
        if live:
            at_risk = float(sum((e.gpu_ns * e.claim.at_risk for e in entries), start=SAFE) / NS)
    return {
        "schema": 1,
        "run": run,
        "state": state(attempts, tails, now, last_event, settings, heard=heard),
        "as_of_ns": now,
        "allocated_gpu_s": seconds(allocated),
        "goodput_ratio": float(Fraction(gpu_ns["productive"], allocated)) if allocated else None,
        "at_risk_gpu_s": at_risk,
        "gpu_s": {c: seconds(ns) for c, ns in gpu_ns.items()},
        "phases_gpu_s": {c: {p: seconds(ns) for p, ns in by.items()} for c, by in by_phase.items()},
        "queue_wait_s": seconds(sum(known_waits)) if known_waits else None,
        "attempts": [attempt_row(c, line, facts) for c in courses],
        "incidents": rows,
        "stragglers": stragglers(courses, names, entries),
        "findings": [],
        "checkpoints": checkpoints(courses, saves, rows),
        "quality": quality(reading, courses, by_source, entries, line),
        "_intervals": [e.as_tuple() for e in entries],
        "_gpu_ns": gpu_ns,
    }


def ledger(
    run: str,
    courses: list[Course],
    granted: dict[str, Grant],
    following: dict[int, int | None],
    now: int,
    context: Context,
) -> list[Entry]:
    """All jobs' entries; that they add up to what was held is checked here, for any input."""
    by_job: dict[str, list[Course]] = defaultdict(list)
    for c in courses:
        by_job[c.attempt.job].append(c)
    for job in granted:
        by_job.setdefault(job, [])
    out: list[Entry] = []
    for job, own in by_job.items():
        held: list[Hold] | None = grants_held(granted.get(job), now)
        claims, implied = job_claims(own, following, held, context)
        holds = implied if held is None else held
        entries = enter(run, job, claims, holds)
        expected = sum((h.end_ns - h.start_ns) * h.gpus for h in holds)
        assert sum(e.gpu_ns for e in entries) == expected, "the ledger must balance"
        assert all(e.gpus > 0 and e.claim.end_ns > e.claim.start_ns for e in entries)
        out += entries
    return sorted(out, key=lambda e: (e.claim.start_ns, e.job, e.claim.category == Category.IDLE))


def state(
    attempts: list[Attempt],
    tails: dict[int, Tail | None],
    now: int,
    last_event: int,
    settings: Settings,
    *,
    heard: bool,
) -> str:
    # What is told about ranks is no word of theirs; only where there are none yet it is all that can be heard.
    spoke = max((m.last_event_ns for a in attempts for m in a.members), default=last_event)
    silent = heard and now - spoke > settings.lost_ns
    if not attempts:
        return "lost" if silent else "running"
    last = attempts[-1]
    if last.ending.kind == "finished":
        return "finished"
    if last.ending.kind == "aborted":
        return "failed"
    if silent:
        return "lost"
    tail = tails[last.number]
    if tail is None:
        return "hung" if now - last.process_start_ns > settings.stepless_ns else "running"
    if not tail.beyond:
        return "running"
    return "paused" if set(phases(last).values()) == {"between"} else "hung"


def attempt_row(c: Course, line: Line, facts: Facts) -> dict[str, Any]:
    a = c.attempt
    resumed = line.resumed_at[a.number, 0]
    windows = c.windows
    return {
        "attempt": a.number,
        "job": a.job,
        "world_size": a.world_size,
        "start_ns": a.process_start_ns,
        "end_ns": a.ending.end_ns,
        "end_cause": end_cause(a, facts),
        "resume_step": None if resumed is None or resumed < 0 else resumed,
        "first_step": windows[0].step - windows[0].count + 1 if windows else None,
        "last_step": windows[-1].step if windows else None,
    }


def stragglers(courses: list[Course], names: Names, entries: list[Entry]) -> list[dict[str, Any]]:
    """The named ranks, the greatest loss first; a rank named in several attempts on one node is one row."""
    loss: dict[tuple[int, str | None], int] = defaultdict(int)
    slowest: dict[tuple[int, str | None], int] = defaultdict(int)
    ratios: dict[tuple[int, str | None], list[float]] = defaultdict(list)
    for (number, rank), k in names.slowest_steps.items():
        c = courses[number]
        node = next(m.node for m in c.attempt.members if m.rank == rank)
        slowest[rank, node] += k
        loss[rank, node] += sum(
            e.gpu_ns for e in entries if e.claim.attempt == number and e.claim.rank == rank and e.claim.phase == "rank"
        )
        for w in c.windows:
            if rank in w.lateness_ns:
                group = {m.rank: m.group for m in c.attempt.members}
                peers = [v for r, v in w.lateness_ns.items() if group.get(r) == group.get(rank)]
                middle = median(peers)
                if middle:
                    ratios[rank, node].append(w.lateness_ns[rank] / middle)
    order = sorted(slowest, key=lambda key: (-loss[key], key[0], key[1] or ""))
    return [
        {
            "rank": key[0],
            "node": key[1],
            "loss_gpu_s": seconds(loss[key]),
            "slowest_steps": slowest[key],
            "slowdown_ratio": statistics.median(ratios[key]) if ratios[key] else None,
        }
        for key in order
    ]


def checkpoints(courses: list[Course], saves: list[Save], rows: list[dict[str, Any]]) -> dict[str, Any]:
    completed = [s for s in saves if s.durable]
    timed = [s for s in completed if s.seen]
    seen = [s for s in saves if s.seen]
    live = {c.attempt.number for c in courses if c.attempt.ending.kind == "live"}
    failed = [s for s in saves if not s.durable and (s.attempt not in live or (s.ended_badly and not s.ended))]
    blocked = float(Fraction(sum(s.blocking_ns for s in timed), NS * len(timed))) if timed else None
    apart = [b.begin_ns - a.begin_ns for a, b in pairwise(seen) if a.attempt == b.attempt]
    running = sum(max(c.end_ns - c.first_step_ns, 0) for c in courses if c.first_step_ns is not None)
    unplanned = [row for row in rows if row["cause"] in ("crash", "hang", "lost")]
    mtbf = float(Fraction(running, NS * len(unplanned))) if unplanned and running else None
    young = daly = None
    if mtbf is not None and blocked:
        young = math.sqrt(2 * blocked * mtbf)
        x = blocked / (2 * mtbf)
        daly = young * (1 + math.sqrt(x) / 3 + x / 9) - blocked if blocked < 2 * mtbf else mtbf
    return {
        "count": len(completed),
        "failed": len(failed),
        "mean_blocking_s": blocked,
        "mean_interval_s": float(Fraction(sum(apart), NS * len(apart))) if apart else None,
        "mtbf_s": mtbf,
        "young_s": young,
        "daly_s": daly,
    }


def quality(
    reading: Reading, courses: list[Course], by_source: dict[str, Clock], entries: list[Entry], line: Line
) -> dict[str, Any]:
    silent = set()
    for c in courses:
        silent |= set(range(c.attempt.world_size)) - {m.rank for m in c.attempt.members}
    mine = {m.source for c in courses for m in c.attempt.members}
    offsets = [abs(o) for source in mine for o in by_source[source].by_block.values()]
    assumed = sum(e.gpu_ns for e in entries if e.claim.assumed is not None)
    if line.assumed:
        assumed += sum(e.gpu_ns for e in entries if e.claim.category == Category.PRODUCTIVE)
    return {
        "events": reading.events,
        "duplicates": 0,
        "conflicts": 0,
        "rejected": {},
        "gaps": reading.gaps,
        "dropped": reading.dropped,
        "max_skew_s": seconds(max(offsets, default=0)),
        "silent_ranks": sorted(silent),
        "sources_without_start": reading.without_start,
        "missing_steps": sum(w.missing for c in courses for w in c.windows),
        "negative_durations": reading.negative_durations,
        "assumed_gpu_s": seconds(assumed),
    }
