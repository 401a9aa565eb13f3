"""Watches the training processes from outside, and says for the dead what they could not say."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from goodput_collector.demo.launcher import Launch, exit_status, process_rank, process_state
from goodput_collector.demo.truth import Worker

# A process that raised has said so within this time after its death was seen; then its silence counts.
GRACE_S = 0.15


class Watch:
    """Knows which workers live, and to which life of the worker group each belongs."""

    def __init__(self, launch: Launch, clock_ns: Callable[[], int] = time.time_ns) -> None:
        self._launch = launch
        self._clock_ns = clock_ns
        self.workers: dict[int, Worker] = {}
        self._first_seen_ns: dict[int, int] = {}

    @property
    def attempt(self) -> int:
        """The number of the newest life, -1 before the first."""
        return max((worker.attempt for worker in self.workers.values()), default=-1)

    def look(self) -> list[Worker]:
        """Takes note of who came and who went; returns those who went since the last look."""
        now_ns = self._clock_ns()
        present = self._launch.children()
        gone: list[Worker] = []
        for worker in self.workers.values():
            if worker.gone_ns is not None:
                continue
            state = process_state(worker.pid) if worker.pid in present else None
            if state in (None, "Z", "X"):
                worker.gone_ns = now_ns
                status = exit_status(worker.pid)
                if status is not None and os.WIFSIGNALED(status):
                    worker.exit_signal = os.WTERMSIG(status)
                elif status is not None:
                    worker.exit_code = os.waitstatus_to_exitcode(status)
                gone.append(worker)
        self._first_seen_ns = {pid: self._first_seen_ns.get(pid, now_ns) for pid in present - self.workers.keys()}
        # torchrun has children that are no workers, for some milliseconds: only one with a rank counts. A worker that
        # has not begun its own program yet has none; it counts from when it was first seen.
        ranks = {pid: process_rank(pid) for pid in sorted(self._first_seen_ns)}
        if any(rank is not None for rank in ranks.values()):
            # torchrun starts nobody before all of the life before have gone.
            attempt = self.attempt + (0 if self.alive() else 1)
            for pid, rank in ranks.items():
                if rank is not None:
                    seen_ns = self._first_seen_ns.pop(pid)
                    self.workers[pid] = Worker(pid=pid, attempt=attempt, seen_ns=seen_ns, rank=rank)
        return gone

    def alive(self) -> list[Worker]:
        """Who has not gone."""
        return [worker for worker in self.workers.values() if worker.gone_ns is None]

    def of_rank(self, rank: int) -> Worker | None:
        """The living worker with this rank."""
        return next((worker for worker in self.alive() if worker.rank == rank), None)


@dataclass(slots=True, kw_only=True)
class _Spoken:
    """What the spool says of one process."""

    source: str
    stopped: bool = False


@dataclass(slots=True)
class Coroner:
    """Writes `exit_observed` for processes that died without a `stop`: an agent's part, played by the parent."""

    spool: Path
    run: str
    source: str = field(default_factory=lambda: f"demo-{uuid.uuid4().hex}")
    _seq: int = 0
    _waiting: list[Worker] = field(default_factory=list)

    def report(self, gone: list[Worker]) -> None:
        """Notes deaths; what is to be said of them is written once they had time to say it themselves."""
        self._waiting += gone

    def write(self, now_ns: int, *, last_call: bool = False) -> None:
        """Writes what is due. A process whose source is not known yet is tried again, at the latest at the end."""
        due = [w for w in self._waiting if last_call or now_ns - (w.gone_ns or 0) >= GRACE_S * 1e9]
        if not due:
            return
        spoken = self._read_spool()
        for worker in due:
            told = spoken.get(worker.pid)
            if told is None and not last_call:
                continue
            self._waiting.remove(worker)
            if told is not None and not told.stopped:
                self._append(worker, told.source)

    def _append(self, worker: Worker, of: str) -> None:
        event: dict[str, object] = {
            "kind": "exit_observed",
            "run": self.run,
            "source": self.source,
            "seq": self._seq,
            "ts_ns": worker.gone_ns,
            "of": of,
        }
        if worker.exit_signal is not None:
            event["signal"] = worker.exit_signal
        if worker.exit_code is not None:
            event["exit_code"] = worker.exit_code
        self._seq += 1
        with (self.spool / f"{self.source}.000000.jsonl").open("a") as file:
            file.write(json.dumps(event) + "\n")

    def _read_spool(self) -> dict[int, _Spoken]:
        """By process number: its source, and whether it said `stop`. The files of a demonstration are small."""
        by_source: dict[str, _Spoken] = {}
        pids: dict[int, str] = {}
        for path in sorted(self.spool.glob("*.jsonl")):
            source = ""
            for line in path.read_bytes().split(b"\n"):
                if b'"source"' not in line and b'"stop"' not in line:
                    continue
                try:
                    event = json.loads(line.strip(b"\0"))
                except ValueError:
                    continue
                source = event.get("source", source)
                if event.get("kind") == "start" and "pid" in event:
                    pids[event["pid"]] = source
                    by_source.setdefault(source, _Spoken(source=source))
                elif event.get("kind") == "stop":
                    by_source.setdefault(source, _Spoken(source=source)).stopped = True
        return {pid: by_source[source] for pid, source in pids.items()}
