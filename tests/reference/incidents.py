"""Incidents: what each interruption was, and what it cost."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

from goodput_analytics.model import Category

from .attempts import Attempt, ended
from .holds import Grant
from .ledger import Entry
from .line import Charge, Line
from .tail import Tail, last_mark
from .windows import Course, Life

NS = 1_000_000_000
PLANNED = frozenset({"preempted", "maintenance", "timeout"})
USUAL_BEAT_NS = 5 * NS  # where no two heartbeats tell how often they come


def seconds(ns: int) -> float:
    return float(Fraction(ns, NS))


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known of a run when its incidents are told."""

    courses: list[Course]
    line: Line
    tails: dict[int, Tail | None]
    silent: dict[int, bool]
    grants: dict[str, Grant]
    entries: list[Entry]


def end_cause(attempt: Attempt, facts: Facts) -> str:
    kind = attempt.ending.kind
    if kind != "aborted":
        return kind
    tail = facts.tails[attempt.number]
    if (tail is not None and tail.beyond) or facts.silent[attempt.number]:
        return "hang"
    stops = [m.stop for m in attempt.members if m.stop is not None]
    reason = end_reason(attempt, facts)
    if any(s["reason"] == "preempted" for s in stops) or reason in PLANNED:
        return "preempted"
    if not attempt.ending.seen and reason is None:
        return "lost"
    return "crash"


def end_reason(attempt: Attempt, facts: Facts) -> str | None:
    """Why the scheduler took the GPUs back, where that can have ended this attempt: the last of its job, and not one
    that began after the grant was over."""
    grant = facts.grants.get(attempt.job)
    same = [c.attempt.number for c in facts.courses if c.attempt.job == attempt.job]
    over = ended(grant, attempt.process_start_ns) is not None
    return grant.end_reason if grant is not None and over and same[-1] == attempt.number else None


def incidents(facts: Facts) -> list[dict[str, Any]]:
    out: list[tuple[int, int, dict[str, Any]]] = []
    for course in facts.courses:
        for life in course.lives[1:]:
            before = [w for x in course.lives[: life.ordinal] for w in x.windows][-1]
            out.append(
                told(
                    facts,
                    charge=("rollback", course.attempt.number, life.ordinal),
                    cause="rollback",
                    progress=before.end_ns,
                    abort=before.end_ns,
                    detected=before.end_ns,
                    following=(course, life),
                    suspects=[],
                )
            )
        ending = course.attempt.ending
        following = next_course(facts, course)
        if ending.kind == "aborted":
            tail = facts.tails[course.attempt.number]
            assert ending.end_ns is not None
            progress = tail.last_mark_ns if tail is not None else last_mark(course.attempt)
            detected = ending.end_ns
            if facts.silent[course.attempt.number] and following is not None:
                detected = following[0].attempt.process_start_ns
            cause = end_cause(course.attempt, facts)
            out.append(
                told(
                    facts,
                    charge=("end", course.attempt.number, 0),
                    cause=cause,
                    progress=course.attempt.process_start_ns if progress is None else progress,
                    abort=ending.end_ns,
                    detected=detected,
                    following=following,
                    suspects=suspects(course.attempt, cause, ending.end_ns),
                )
            )
        elif ending.kind == "finished" and course.windows:
            resumed = resumed_next(facts, course)
            windows = course.windows
            if resumed is not None and resumed < windows[-1].step:
                out.append(
                    told(
                        facts,
                        charge=("end", course.attempt.number, 0),
                        cause="rollback",
                        progress=windows[-1].end_ns,
                        abort=windows[-1].end_ns,
                        detected=windows[-1].end_ns,
                        following=following,
                        suspects=[],
                    )
                )
    return [row for _, _, row in sorted(out, key=lambda x: x[:2])]


def next_course(facts: Facts, course: Course) -> tuple[Course, Life] | None:
    later = facts.courses[course.attempt.number + 1 :]
    return (later[0], later[0].lives[0]) if later else None


def resumed_next(facts: Facts, course: Course) -> int | None:
    """Where the next life that resumed or stepped went on from."""
    for later in facts.courses[course.attempt.number + 1 :]:
        for life in later.lives:
            resumed = facts.line.resumed_at[life.attempt, life.ordinal]
            if resumed is not None:
                return resumed
    return None


def told(
    facts: Facts,
    *,
    charge: Charge,
    cause: str,
    progress: int,
    abort: int,
    detected: int,
    following: tuple[Course, Life] | None,
    suspects: list[int],
) -> tuple[int, int, dict[str, Any]]:
    number = charge[1]
    recovered = None
    until = None
    if following is not None:
        course, life = following
        if life.windows:
            recovered = life.windows[0].start_ns
        until = recovered if recovered is not None else course.end_ns
    restart = 0
    for entry in facts.entries:
        c = entry.claim
        after = following is not None and c.attempt == following[0].attempt.number
        if c.category == Category.STARTUP and (c.attempt == number or after):
            end = c.end_ns if until is None else min(c.end_ns, until)
            restart += max(0, end - max(c.start_ns, abort)) * entry.gpus
    hang = sum(e.gpu_ns for e in facts.entries if e.claim.charge == charge and e.claim.category == Category.HANG)
    rework = sum(e.gpu_ns for e in facts.entries if e.claim.charge == charge and e.claim.category == Category.REWORK)
    row = {
        "attempt": number,
        "cause": cause,
        "last_progress_ns": progress,
        "abort_ns": abort,
        "detection_s": seconds(max(0, detected - progress)),
        "recovered_ns": recovered,
        "lost_steps": lost_steps(facts, charge),
        "hang_gpu_s": seconds(hang),
        "rework_gpu_s": seconds(rework),
        "restart_gpu_s": seconds(restart),
        "suspect_ranks": suspects,
    }
    return (abort, number, row)


def lost_steps(facts: Facts, charge: Charge) -> int:
    thrown = [
        run
        for course in facts.courses
        for life in course.lives
        for w in life.windows
        for run in facts.line.thrown_of(w, life)
    ]
    return sum(n for paid_by, n in thrown if paid_by == charge)


def suspects(attempt: Attempt, cause: str, abort_ns: int) -> list[int]:
    """Who may have been at fault; empty when nothing tells."""
    if cause == "hang":
        return fell_silent(attempt, abort_ns) or out_of_phase(attempt)
    if cause == "preempted":
        return []
    raised = [(m.stop["ts_ns"], m.rank) for m in attempt.members if m.stop and m.stop["reason"] == "exception"]
    stops = [m.stop["ts_ns"] for m in attempt.members if m.stop]
    latest = min(stops) + 2 * usual_beat(attempt) if stops else None
    killed = {
        m.rank
        for m in attempt.members
        if m.stop is None and m.exit_ns is not None and m.was_killed and (latest is None or m.exit_ns <= latest)
    }
    if killed:
        return sorted(killed)
    return [min(raised)[1]] if raised else []


def usual_beat(attempt: Attempt) -> int:
    between = []
    for member in attempt.members:
        beats = [b["ts_ns"] for b in member.heard()]
        between += [b - a for a, b in pairwise(beats)]
    return sorted(between)[(len(between) - 1) // 2] if between else USUAL_BEAT_NS


def fell_silent(attempt: Attempt, abort_ns: int) -> list[int]:
    """The ranks that were last heard more than two heartbeats before all the others.

    One that still spoke after the end had not fallen silent before it.
    """
    beat = usual_beat(attempt)
    heard = sorted((min(m.last_heard_ns, abort_ns), m.rank) for m in attempt.members)
    for n in range(len(heard) - 1):
        if heard[n + 1][0] - heard[n][0] > 2 * beat:
            return sorted({rank for _, rank in heard[: n + 1]})
    return []


def out_of_phase(attempt: Attempt) -> list[int]:
    """The ranks that were not in the phase that more than half had reached."""
    for place in ("phase", "step"):
        known = {}
        for m in attempt.members:
            beats = [b for b in m.heard() if b.get("phase") is not None]
            if beats:
                known[m.rank] = beats[-1].get(place)
        for where in set(known.values()):
            others = sorted(rank for rank, p in known.items() if p != where)
            if 2 * (len(known) - len(others)) > len(known) and others:
                return others
    return []
