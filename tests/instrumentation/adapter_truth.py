"""What really happened in a training, by the test's own clock, to hold against events and ledger."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from recorder_reading import of_rank, read_events

from goodput.cli import main


class Truth:
    """Seconds by name, measured around the very calls.

    Attributes:
        times_s: how long each occurrence took, by name.
    """

    def __init__(self) -> None:
        self.times_s: dict[str, list[float]] = {}

    @contextmanager
    def around(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.times_s.setdefault(name, []).append(time.perf_counter() - began)

    def total_s(self, name: str) -> float:
        return sum(self.times_s[name])


class Told:
    """What the events of one rank say, its processes in order of start."""

    def __init__(self, spool: Path, rank: int = 0) -> None:
        events = of_rank(read_events(spool))
        starts = sorted((e["ts_ns"], e["source"]) for e in events if e["kind"] == "start" and e["rank"] == rank)
        # A start may be told again.
        sources = list(dict.fromkeys(source for _, source in starts))
        self.events = [e for source in sources for e in events if e["source"] == source]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["kind"] == kind]

    def steps(self) -> list[int]:
        return [n for e in self.of("step") for n in range(e["step"] - e.get("count", 1) + 1, e["step"] + 1)]

    def step_s(self) -> list[float]:
        return [(e["end_ns"] - e["start_ns"]) / 1e9 for e in self.of("step")]

    def data_s(self) -> float:
        return sum(e.get("data_ns", 0) for e in self.of("step")) / 1e9

    def spans(self, name: str) -> list[tuple[int | None, float, bool]]:
        """Step, seconds and outcome of each completed span of this name."""
        begun = {(e["source"], e["id"]): e for e in self.of("begin") if e["span"] == name}
        return [
            (begun[key].get("step"), (e["ts_ns"] - begun[key]["ts_ns"]) / 1e9, e.get("ok", True))
            for e in self.of("end")
            for key in [(e["source"], e["id"])]
            if key in begun
        ]

    def span_s(self, name: str) -> float:
        return sum(seconds for _, seconds, _ in self.spans(name))

    def resumes(self) -> list[int | None]:
        return [event["step"] for event in self.of("resume")]

    def stops(self) -> list[tuple[str, str | None]]:
        return [(event["reason"], event.get("detail")) for event in self.of("stop")]


def ledger(spool: Path, run: str) -> dict[str, Any]:
    """The report of a run, by the commands that a user has, in this process: each of its own would take seconds. It
    balances, or this fails."""
    database = spool.parent / "run.duckdb"
    for command in (["ingest", str(spool)], ["report", run, "--json"]):
        said, wrong = io.StringIO(), io.StringIO()
        with redirect_stdout(said), redirect_stderr(wrong):
            status = main([*command, "--db", str(database)])
        assert status == 0, wrong.getvalue()
    report: dict[str, Any] = json.loads(said.getvalue())
    assert abs(sum(report["gpu_s"].values()) - report["allocated_gpu_s"]) < 1e-6
    assert report["quality"]["rejected"] == {} and report["quality"]["gaps"] == 0
    return report


def near(told_s: float, true_s: float, *, least_s: float = 0.05, share: float = 0.05) -> bool:
    """Equal within 50 ms or 5 %: two clocks around the same call, between which a busy machine may put one aside."""
    return abs(told_s - true_s) <= max(least_s, share * true_s)
