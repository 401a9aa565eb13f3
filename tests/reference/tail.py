"""The tail: from an attempt's last mark to its end, and whether that was a hang."""

from __future__ import annotations

from dataclasses import dataclass

from goodput_analytics.settings import Settings

from .attempts import Attempt
from .members import ABNORMAL, Member, step_end
from .numbers import median
from .spans import Span
from .windows import NEIGHBOURS, Course


@dataclass(frozen=True, kw_only=True)
class Tail:
    """`x_ns` after the last mark, the open activity (None: a step), and what the limit made of it."""

    last_mark_ns: int
    x_ns: int
    limit_ns: int
    open_span: Span | None
    beyond: bool

    @property
    def activity(self) -> str:
        return "step" if self.open_span is None else self.open_span.name


def last_mark(attempt: Attempt) -> int | None:
    """The last proof of progress over all ranks."""
    marks: list[int] = []
    for member in attempt.members:
        marks += [step_end(e) for e in member.events if e["kind"] == "step"]
        marks += [e["ts_ns"] for e in member.events if e["kind"] in ("begin", "end", "progress")]
        marks += advances(member)
    return max(marks, default=None)


def advances(member: Member) -> list[int]:
    """When a heartbeat told of a step beyond what the rank had told before."""
    told = [(step_end(e), 0, e["step"]) for e in member.events if e["kind"] == "step"]
    told += [(e["ts_ns"], 1, e["step"]) for e in member.heard() if e.get("step") is not None]
    out = []
    known: int | None = None
    for when, is_beat, step in sorted(told):
        if is_beat and known is not None and step > known:
            out.append(when)
        known = step if not is_beat or known is None else max(known, step)
    return out


def tail_of(course: Course, courses: list[Course], settings: Settings) -> Tail | None:
    """The tail of an attempt that made a step; None for one that did not: all of that is startup."""
    if not course.windows:
        return None
    mark = last_mark(course.attempt)
    assert mark is not None
    x = max(0, course.end_ns - mark)
    open_spans = [s for s in course.spans if s.open and s.begin_ns <= course.end_ns]
    innermost = max(open_spans, key=lambda s: (s.begin_ns, s.precedence), default=None)
    if innermost is None:
        last = [w.net_per_step_ns for w in course.later_windows[-NEIGHBOURS:]]
        typical = median(last or [w.net_per_step_ns for c in courses for w in c.later_windows]) or 0
        limit = max(settings.hang_floor_ns, 3 * typical) + (course.windows[-1].count - 1) * typical
    else:
        like = [
            s.end_ns - s.begin_ns
            for c in courses
            for s in c.spans
            if s.completed and s.name == innermost.name and s.end_ns <= innermost.begin_ns
        ]
        limit = max(settings.span_floor_ns, 3 * (median(like) or 0))
    return Tail(last_mark_ns=mark, x_ns=x, limit_ns=limit, open_span=innermost, beyond=x > limit)


def ended_badly(attempt: Attempt) -> bool:
    """Whether the last `stop` of the attempt was abnormal."""
    stops = [m.stop for m in attempt.members if m.stop is not None]
    return bool(stops) and max((s["ts_ns"], s["reason"] in ABNORMAL) for s in stops)[1]


def phases(attempt: Attempt) -> dict[str, str | None]:
    """By source, the phase of its last heartbeat; None where there was no heartbeat."""
    out: dict[str, str | None] = {}
    for member in attempt.members:
        beats = member.heard()
        out[member.source] = beats[-1].get("phase") if beats else None
    return out
