"""Spans: declared work that blocks the loop, with the ends made up that never came."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise

from goodput_analytics.model import Category

from .events import Event
from .members import Member, Step

STARTUP_KINDS = frozenset({"init", "rendezvous", "load_checkpoint", "compile", "data_skip"})


@dataclass(frozen=True, kw_only=True)
class Span:
    """One rank's span. `blocks_until_ns` is where it stopped to block, at most its end."""

    name: str
    rank: int
    source: str
    seq: int
    step: int | None
    own_category: str | None
    background: bool  # `async`
    begin_ns: int
    end_ns: int
    blocks_until_ns: int
    completed: bool  # its `end` came
    ok: bool
    open: bool  # nothing ended it before its attempt's end

    @property
    def category(self) -> str:
        if self.name == "checkpoint":
            return Category.CHECKPOINT
        if self.name == "evaluation":
            return Category.EVALUATION
        if self.name in STARTUP_KINDS:
            return Category.STARTUP
        if self.own_category in list(Category):
            return str(self.own_category)
        return Category.UNATTRIBUTED

    @property
    def phase(self) -> str | None:
        """The name, in the categories that tell their spans apart."""
        named = (Category.STARTUP, Category.UNATTRIBUTED, Category.HANG)
        return self.name if self.category in named else None

    @property
    def precedence(self) -> tuple[int, int, int, int]:
        """The greater wins where spans overlap: by kind, then the one begun last."""
        kinds = {"checkpoint": 3, "evaluation": 2}
        kind = kinds.get(self.name, 1 if self.name in STARTUP_KINDS else 0)
        return (kind, self.begin_ns, self.rank, self.seq)


@dataclass(frozen=True, kw_only=True)
class Patch:
    """A stretch of time with the span that has it, if any."""

    start_ns: int
    end_ns: int
    span: Span | None


def spans_of(member: Member, end_ns: int) -> list[Span]:
    """The member's spans, none beyond its attempt's end."""
    begins: dict[tuple[str, object], list[Event]] = defaultdict(list)
    pairs: list[tuple[Event, Event | None]] = []
    for event in member.events:
        key = (event.get("span", ""), event.get("id"))
        if event["kind"] == "begin":
            begins[key].append(event)
        elif event["kind"] == "end" and begins[key]:
            pairs.append((begins[key].pop(), event))
    pairs += [(begin, None) for waiting in begins.values() for begin in waiting]
    steps = [step for passage in member.passages() for step in passage.steps]
    out = []
    for begin, end in pairs:
        since = begin["ts_ns"]
        until = end_ns
        left_open = False
        if end is not None:
            until = end["ts_ns"]
        else:
            next_starts = [s.start_ns for s in steps if s.start_ns > since]
            around = [s.end_ns for s in steps if s.start_ns <= since < s.end_ns]
            if next_starts:
                until = min(next_starts)
            elif around:
                until = max(around)
            else:
                stop = member.stop
                until = end_ns if stop is None else stop["ts_ns"]
                left_open = until >= end_ns
        until = max(since, min(until, end_ns))
        out.append(
            Span(
                name=begin["span"],
                rank=member.rank,
                source=member.source,
                seq=begin["seq"],
                step=begin.get("step"),
                own_category=begin.get("category"),
                background=bool(begin.get("async")),
                begin_ns=since,
                end_ns=until,
                blocks_until_ns=until,
                completed=end is not None,
                ok=end is not None and end.get("ok") is not False,
                open=left_open,
            )
        )
    return out


def blocking(span: Span, steps_by_window: Iterable[list[Step]]) -> Span:
    """The span, cut at the start of the first step that every rank began and ended inside it."""
    inside = [
        min(s.start_ns for s in steps)
        for steps in steps_by_window
        if all(s.start_ns >= span.begin_ns and s.end_ns <= span.end_ns for s in steps)
    ]
    return replace(span, blocks_until_ns=min([span.end_ns, *inside]))


def patches(start_ns: int, end_ns: int, spans: Iterable[Span]) -> list[Patch]:
    """[start, end) cut into stretches, each with the span that blocks there and goes before the others."""
    here = [s for s in spans if s.begin_ns < end_ns and s.blocks_until_ns > start_ns]
    edges = {start_ns, end_ns}
    edges |= {t for s in here for t in (s.begin_ns, s.blocks_until_ns) if start_ns < t < end_ns}
    ordered = sorted(edges)
    out = []
    for a, b in pairwise(ordered):
        having = [s for s in here if s.begin_ns <= a and s.blocks_until_ns >= b]
        out.append(Patch(start_ns=a, end_ns=b, span=max(having, key=lambda s: s.precedence) if having else None))
    return out
