"""Saves: the checkpoint spans of one step, and when each became durable."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from .numbers import union
from .spans import Span
from .windows import Course


@dataclass(frozen=True, kw_only=True)
class Save:
    """A save of the job, by all ranks that took part."""

    attempt: int
    life: int
    step: int | None
    begin_ns: int
    blocking_ns: int
    ended: bool  # every rank's span ended, all with ok
    ended_badly: bool  # some rank's span ended, but not with ok
    durable_ns: int | None
    seen: bool = True  # its spans were seen

    @property
    def durable(self) -> bool:
        return self.durable_ns is not None


def saves_of(course: Course, next_start_ns: int | None) -> list[Save]:
    """The attempt's saves in order of their begin. A durable after the next attempt began comes too late."""
    said: list[tuple[int, int]] = []  # (when, step)
    for member in course.attempt.members:
        for e in member.events:
            in_time = next_start_ns is None or e["ts_ns"] < next_start_ns
            if e["kind"] == "durable" and e.get("ok") is not False and in_time:
                said.append((e["ts_ns"], e["step"]))
    by_step: dict[tuple[int, int | None], list[Span]] = defaultdict(list)
    for span in course.spans:
        if span.name == "checkpoint":
            by_step[course.life_at(span.begin_ns).ordinal, span.step].append(span)
    begins = [(min(s.begin_ns for s in spans), life, step) for (life, step), spans in by_step.items()]
    told: dict[tuple[int, int | None], int] = {}
    alone: dict[tuple[int, int], int] = {}  # said to be durable, never seen to be saved
    for when, said_step in sorted(said):
        # Of several saves of one step, the word is about the one begun last before it.
        before = [(begin, life) for begin, life, saved in begins if saved == said_step and begin <= when]
        if before:
            told.setdefault((max(before)[1], said_step), when)
        else:
            alone.setdefault((course.life_at(when).ordinal, said_step), when)
    out = []
    for (life, step), spans in by_step.items():
        well: dict[str, int | None] = {}  # by rank's source: when it first ended the save well
        for s in sorted(spans, key=lambda s: s.end_ns):
            if s.completed and s.ok and well.get(s.source) is None:
                well[s.source] = s.end_ns
            well.setdefault(s.source, None)
        ended = all(when is not None for when in well.values())
        durable: int | None = None
        if any(s.background for s in spans) or not ended:
            durable = told.get((life, step))
        else:
            durable = max(when for when in well.values() if when is not None)
        out.append(
            Save(
                attempt=course.attempt.number,
                life=life,
                step=step,
                begin_ns=min(s.begin_ns for s in spans),
                blocking_ns=sum(b - a for a, b in union((s.begin_ns, s.blocks_until_ns) for s in spans)),
                ended=ended,
                ended_badly=any(s.completed and not s.ok for s in spans),
                durable_ns=durable,
            )
        )
    for (life, step), when in alone.items():
        out.append(
            Save(
                attempt=course.attempt.number,
                life=life,
                step=step,
                begin_ns=when,
                blocking_ns=0,
                ended=True,
                ended_badly=False,
                durable_ns=when,
                seen=False,
            )
        )
    return sorted(out, key=lambda s: (s.begin_ns, s.life, -1 if s.step is None else s.step))
