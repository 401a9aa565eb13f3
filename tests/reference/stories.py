"""Short ways to write a run down, for tests whose right figures were worked out by hand. Seconds, from a fixed zero."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from .events import Event
from .planned import T0, S
from .report import reference_report
from .writing import Pen


def at(seconds: float) -> int:
    return T0 + round(seconds * S)


@dataclass(kw_only=True)
class Group:
    """The ranks of one attempt; what is said is said by all of them, or by those named in `ranks`."""

    pens: dict[int, Pen]

    def of(self, ranks: Iterable[int] | None) -> list[Pen]:
        return list(self.pens.values()) if ranks is None else [self.pens[r] for r in ranks]

    def tell(self, kind: str, when: float, *, ranks: Iterable[int] | None = None, **fields: Any) -> None:
        for pen in self.of(ranks):
            pen.tell(kind, at(when), **fields)

    def resume(self, when: float, step: int | None, *, ranks: Iterable[int] | None = None) -> None:
        self.tell("resume", when, ranks=ranks, step=step, nulls=() if step is not None else ("step",))

    def step(
        self,
        step: int,
        start: float,
        end: float,
        *,
        ranks: Iterable[int] | None = None,
        busy: dict[int, float] | None = None,
        **fields: Any,
    ) -> None:
        for rank, pen in self.pens.items():
            if ranks is not None and rank not in ranks:
                continue
            own = None if busy is None or rank not in busy else round(busy[rank] * S)
            pen.tell("step", at(end), step=step, start_ns=at(start), end_ns=at(end), busy_ns=own, **fields)

    def steps(self, first: int, last: int, start: float, length: float = 1.0, **fields: Any) -> float:
        """Steps one after the other; returns when the last one ended."""
        for n in range(first, last + 1):
            self.step(n, start, start + length, **fields)
            start += length
        return start

    def span(self, name: str, begin: float, end: float | None, *, ranks: Iterable[int] | None = None, **f: Any) -> None:
        ok = f.pop("ok", None)
        if f.pop("background", False):
            f["async"] = True
        number = f.pop("id", f"{name}@{begin}")
        for pen in self.of(ranks):
            pen.tell("begin", at(begin), span=name, id=number, **f)
            if end is not None:
                pen.tell("end", at(end), span=name, id=number, ok=ok)

    def stop(self, when: float, reason: str, *, ranks: Iterable[int] | None = None) -> None:
        self.tell("stop", when, ranks=ranks, reason=reason)


@dataclass(kw_only=True)
class Story:
    """One run's events."""

    run: str = "story"
    events: list[Event] = field(default_factory=list)
    sources: int = 0

    def group(
        self,
        *,
        start: float,
        ranks: int = 1,
        token: str | None = None,
        job: str = "job",
        ahead: dict[int, float] | None = None,
        only: Iterable[int] | None = None,
        world: int | None = None,
        **fields: Any,
    ) -> Group:
        """An attempt's processes, started at `start`; they say `start` one second later."""
        pens = {}
        for rank in range(ranks) if only is None else only:
            self.sources += 1
            ahead_ns = round((ahead or {}).get(rank, 0) * S)
            pen = Pen(run=self.run, source=f"source-{self.sources:02d}", ahead_ns=ahead_ns, out=self.events)
            pen.tell(
                "start",
                at(start + 1),
                job=job,
                rank=rank,
                world_size=world or ranks,
                node=f"node-{rank}",
                process_start_ns=at(start),
                attempt_token=token,
                **fields,
            )
            pens[rank] = pen
        return Group(pens=pens)

    def other(self, name: str) -> Pen:
        """An agent or a scheduler."""
        return Pen(run=self.run, source=name, out=self.events)

    def report(self, **options: Any) -> dict[str, Any]:
        return reference_report(self.events, options.pop("run", self.run), **options)


def gpu_s(report: dict[str, Any]) -> dict[str, float]:
    """The categories that have anything."""
    return {c: s for c, s in report["gpu_s"].items() if s}


def phase_s(report: dict[str, Any], category: str) -> dict[str, float]:
    return dict(report["phases_gpu_s"].get(category, {}))
