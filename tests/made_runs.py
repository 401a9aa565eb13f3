"""Made-up runs in a database, for pages to show: each of a kind that a page must bear."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from goodput_collector.database import open_database
from goodput_collector.landing import ingest_files

S = 1_000_000_000
T0_NS = 1_800_000_000 * S
Event = dict[str, Any]


class Made:
    """A run of some ranks that step together, event by event; rank `slow` does its own work late."""

    def __init__(self, name: str, ranks: int = 2, world_size: int | None = None, labels: dict[str, str] | None = None):
        self.name, self.ranks, self.world_size, self.labels = name, ranks, world_size or ranks, labels or {}
        self.events: list[Event] = []
        self.now_ns = T0_NS
        self._attempt = -1
        self._seq: dict[int, int] = {}

    def _tell(self, of: int, kind: str, ts_ns: int, **more: Any) -> None:
        seq = self._seq.get(of, 0)
        self._seq[of] = seq + 1
        source = f"{self.name}-{self._attempt}-{of}"
        self.events.append({"kind": kind, "run": self.name, "source": source, "seq": seq, "ts_ns": ts_ns, **more})

    def start(self, *, resume: int | None = None, launch_s: int = 5) -> Made:
        """A new attempt: all ranks start, and load what they go on from."""
        self._attempt += 1
        self._seq = {}
        begun_ns = self.now_ns
        self.now_ns += launch_s * S
        for rank in range(self.ranks):
            self._tell(
                rank, "start", begun_ns + S, v=1, job=f"slurm:{self.name}.0", rank=rank, world_size=self.world_size,
                node=f"node{rank // 2}", devices=1, process_start_ns=begun_ns, attempt_token=f"t{self._attempt}",
                labels=self.labels,
            )  # fmt: skip
            if resume is not None:
                self._tell(rank, "resume", self.now_ns, step=resume)
        return self

    def steps(self, first: int, last: int, *, step_s: float = 1.0, slow: int | None = None) -> Made:
        """Steps of all ranks; the slow one lets the others wait for half of each."""
        for step in range(first, last + 1):
            end_ns = self.now_ns + round(step_s * S)
            for rank in range(self.ranks):
                busy_s = step_s * (0.95 if rank == slow or slow is None else 0.45)
                self._tell(
                    rank, "step", end_ns, step=step, start_ns=self.now_ns, end_ns=end_ns, busy_ns=round(busy_s * S)
                )
            self.now_ns = end_ns
        return self

    def save(self, step: int, *, blocking_s: float = 2.0) -> Made:
        """A blocking save of all ranks."""
        end_ns = self.now_ns + round(blocking_s * S)
        for rank in range(self.ranks):
            self._tell(rank, "begin", self.now_ns, span="checkpoint", id=f"c{step}", step=step)
            self._tell(rank, "end", end_ns, span="checkpoint", id=f"c{step}", step=step)
        self.now_ns = end_ns
        return self

    def stop(self, reason: str, detail: str | None = None) -> Made:
        """All ranks say that they stop; of an exception rank 0 says so first."""
        for rank in range(self.ranks):
            told = {} if detail is None else {"detail": detail}
            self._tell(rank, "stop", self.now_ns + rank * 1_000_000, reason=reason, **told)
        self.now_ns += 3 * S
        return self


def live() -> Made:
    """A run at work."""
    return Made("live-one").start().steps(1, 40).save(40).steps(41, 50)


def stormy(name: str = "stormy") -> Made:
    """A finished run that crashed once, with saves and a slow rank."""
    made = Made(name, ranks=4, labels={"team": "nlp"}).start()
    made.steps(1, 30).save(30).steps(31, 60, slow=2).stop("exception", "ValueError: loss is *not* finite")
    return made.start(resume=30).steps(31, 60, slow=2).save(60).steps(61, 70).stop("finished")


def partial() -> Made:
    """Two of four ranks reported, and no checkpoint."""
    return Made("partial", ranks=2, world_size=4).start().steps(1, 20).stop("finished")


def fifty() -> list[Made]:
    """Fifty small runs."""
    return [
        Made(f"run-{i:02}", labels={"team": f"t{i % 3}"}).start().steps(1, 10 + i).stop("finished") for i in range(50)
    ]


def lines(events: Iterable[Event]) -> Iterator[str]:
    """Event lines."""
    for event in events:
        yield json.dumps(event) + "\n"


def database(folder: Path, *runs: Made) -> Path:
    """A database with the runs; without any it is empty."""
    db = folder / "made.duckdb"
    open_database(db).close()
    files = []
    for made in runs:
        file = folder / f"{len(files)}-{zlib.crc32(made.name.encode())}.jsonl"
        file.write_text("".join(lines(made.events)))
        files.append(file)
    if files:
        ingest_files(db, files)
    return db
