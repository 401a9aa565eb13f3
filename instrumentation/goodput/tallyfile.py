"""The summary of an attempt from the events that one of its ranks left, where the rank could not make it itself."""

from __future__ import annotations

import json
from pathlib import Path

from goodput.spool import list_segments
from goodput.tally import SpanTimes, StepTimes, Summary, span_category, summarize

MOST_BYTES = 64 * 1024 * 1024
"""A longer record is left to the collector: nobody waits for a summary."""


def summary_of_source(spool: Path, source: str) -> Summary | None:
    """The summary as the rank saw it up to its last event; None when it left too little, or too much to read now."""
    paths = [segment.path for segment in list_segments(spool) if segment.source == source]
    try:
        if sum(path.stat().st_size for path in paths) > MOST_BYTES:
            return None
        reader = _Reader()
        for path in paths:
            with path.open("rb") as file:
                for line in file:
                    reader.take(line)
    except OSError:
        return None
    return reader.summary()


class _Reader:
    def __init__(self) -> None:
        self._start: dict[str, object] = {}
        self._run = ""
        self._last_ns = 0
        self._spans = SpanTimes()
        self._open: dict[str, tuple[int, str, bool]] = {}
        self._count = self._spent_ns = self._waited_ns = self._skipped_ns = 0
        self._first_ns: int | None = None
        # Spans that ended since the last step did: they may lie inside the step that comes next.
        self._since: list[tuple[int, int]] = []

    def take(self, line: bytes) -> None:
        try:
            event = json.loads(line)
            kind, ts_ns = event["kind"], int(event["ts_ns"])
            self._run = str(event.get("run", self._run))
            if kind == "start":
                self._start = event
            elif kind == "step":
                self._step(event)
            elif kind == "begin":
                category = span_category(str(event["span"]), event.get("category"))
                self._open[str(event["id"])] = (ts_ns, category, not self._open)
            elif kind == "end":
                self._end(event, ts_ns)
            self._last_ns = max(self._last_ns, ts_ns)
        except (KeyError, TypeError, ValueError):
            # A line that a kill has cut.
            return

    def summary(self) -> Summary | None:
        if not self._start:
            return None
        return summarize(
            run=self._run,
            rank=_number(self._start.get("rank"), 0),
            world_size=_number(self._start.get("world_size"), 1),
            start_ns=_number(self._start.get("process_start_ns"), self._last_ns),
            end_ns=self._last_ns,
            steps=StepTimes(
                count=self._count,
                first_ns=self._first_ns,
                spent_ns=self._spent_ns,
                waited_ns=self._waited_ns,
                skipped_ns=self._skipped_ns,
            ),
            spans=self._spans,
        )

    def _step(self, event: dict[str, int]) -> None:
        start_ns, end_ns, data_ns = int(event["start_ns"]), int(event["end_ns"]), int(event.get("data_ns", 0))
        if self._first_ns is None:
            self._first_ns = start_ns
            # What came before the first step is startup, and counted so.
            self._since.clear()
            self._spans = SpanTimes()
        self._count += int(event.get("count", 1))
        self._spent_ns += end_ns - start_ns
        self._waited_ns += data_ns
        if event.get("applied") is False:
            self._skipped_ns += end_ns - start_ns - data_ns
        self._spans.inside_steps_ns += sum(
            max(min(end, end_ns) - max(begin, start_ns), 0) for begin, end in self._since
        )
        self._since.clear()

    def _end(self, event: dict[str, object], ts_ns: int) -> None:
        begun = self._open.pop(str(event["id"]), None)
        if begun is None:
            return
        since_ns, category, outermost = begun
        if event["span"] == "checkpoint" and event.get("ok") is not False:
            self._spans.saves += 1
        if outermost:
            self._spans.add(category, ts_ns - since_ns, inside_step=False)
            self._since.append((since_ns, ts_ns))


def _number(value: object, otherwise: int) -> int:
    return value if isinstance(value, int) else otherwise
