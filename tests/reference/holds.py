"""Holds: when each job held how many GPUs, where the scheduler says so."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from .events import Event


@dataclass(frozen=True, kw_only=True)
class Hold:
    """A stretch in which a job held so many GPUs."""

    start_ns: int
    end_ns: int
    gpus: int


@dataclass(frozen=True, kw_only=True)
class Grant:
    """All that the scheduler said of one job."""

    job: str
    pieces: list[Event]  # one per start_ns, the last word on each, in order

    @property
    def end_ns(self) -> int | None:
        return self.pieces[-1].get("end_ns")

    @property
    def end_reason(self) -> str | None:
        return self.pieces[-1].get("end_reason") if self.end_ns is not None else None

    @property
    def queue_wait_ns(self) -> int | None:
        submit = self.pieces[0].get("submit_ns")
        return None if submit is None else max(0, self.pieces[0]["start_ns"] - submit)

    def holds(self, now_ns: int) -> list[Hold]:
        out = []
        for i, piece in enumerate(self.pieces):
            end = max(now_ns, piece["start_ns"]) if piece.get("end_ns") is None else piece["end_ns"]
            if i + 1 < len(self.pieces):
                end = min(end, self.pieces[i + 1]["start_ns"])
            if end > piece["start_ns"]:
                out.append(Hold(start_ns=piece["start_ns"], end_ns=end, gpus=piece["gpus"]))
        return out


def grants(allocations: list[Event]) -> dict[str, Grant]:
    """By job. The same job and start again is an update: the latest counts."""
    last: dict[str, dict[int, Event]] = defaultdict(dict)
    for event in sorted(allocations, key=lambda e: (e["ts_ns"], e["source"], e["seq"])):
        last[event["job"]][event["start_ns"]] = event
    return {job: Grant(job=job, pieces=[by[s] for s in sorted(by)]) for job, by in last.items()}
