"""Recorders for tests: with a clock that the test moves, and no thread."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recorder_reading import read_events

from goodput import liveness
from goodput.attempt import Agreement
from goodput.clock import Clock
from goodput.directory import prepare_directory
from goodput.events import Kind
from goodput.guard import Guard
from goodput.liveness import LivenessLock, SourceInfo
from goodput.memory import Memory
from goodput.process import boot_id
from goodput.recorder import LiveRecorder
from goodput.worker import Worker
from goodput.writer import SpoolWriter

EPOCH_NS = 1_800_000_000_000_000_000
MS = 1_000_000


class HandClock:
    """A monotonic clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> int:
        return self.ns

    def advance(self, ms: float) -> None:
        self.ns += int(ms * MS)


@dataclass
class Made:
    """A recorder and its parts."""

    rec: LiveRecorder
    time: HandClock
    worker: Worker
    writer: SpoolWriter
    memory: Memory
    guard: Guard
    spool: Path

    def step(self, number: int, ms: float, **how: Any) -> None:
        with self.rec.step(number, **how):
            self.time.advance(ms)

    def events(self) -> list[dict[str, Any]]:
        self.worker.tick()
        # Where the memory outlives its process, a round so soon after the last one is none.
        self.writer.drain(self.time.ns)
        return read_events(self.spool)


def make(
    spool: Path,
    *,
    source: str = "src",
    shared: Path | None = None,
    max_bytes: int = 1 << 30,
    heartbeat_s: float = 0,
) -> Made:
    """A recorder without a thread; its memory is a file when `shared` names one (it need not be on tmpfs here)."""
    time = HandClock()
    clock = Clock(monotonic_ns=time, wall_ns=lambda: EPOCH_NS)
    guard = Guard()
    prepare_directory(spool)
    info = SourceInfo(
        source=source, run="run", memory=str(shared) if shared else None, pid=1, rank=0, boot_id=boot_id()
    )
    lock = LivenessLock.create(spool, info)
    memory = Memory(shared, lock.path)
    rec = LiveRecorder(run="run", source=source, clock=clock, memory=memory, guard=guard)
    rec.event(Kind.START, {"v": 1, "job": "j", "rank": 0, "world_size": 1})
    writer = SpoolWriter(directory=spool, run="run", source=source, memory=memory, guard=guard, max_bytes=max_bytes)
    worker = Worker(
        recorder=rec,
        clock=clock,
        memory=memory,
        writer=writer,
        lock=lock,
        agreement=Agreement(guard),
        guard=guard,
        heartbeat_s=heartbeat_s,
    )
    rec.attach(worker)
    return Made(rec=rec, time=time, worker=worker, writer=writer, memory=memory, guard=guard, spool=spool)


def die(made: Made) -> None:
    """The kernel's part of a death: the lock is released, the memory file stays."""
    lock: Any = made.worker._lock
    os.close(lock._fd)
    liveness._own.discard(lock.path.absolute())
    if made.memory.path is not None:
        os.close(made.memory._fd)
        liveness._own.discard(made.memory.path.absolute())
