"""Checkpoints that somebody asked for, until the run has one or the time is over; a restart changes nothing."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import duckdb

from goodput_collector.database import transaction

_NS_PER_S = 1_000_000_000
VALID_S = 3600.0
"""How long a request stands when nobody says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A checkpoint that run `run` is asked for, until `until_ns`; `step`: after this step, None for at once."""

    id: str
    run: str
    step: int | None
    until_ns: int

    def as_json(self) -> dict[str, object]:
        """As it stands in answers."""
        return {"id": self.id, "run": self.run, "step": self.step, "until_ns": self.until_ns}

    @classmethod
    def from_json(cls, told: dict[str, object]) -> Asked:
        """From an answer. Raises KeyError, TypeError or ValueError where it is none."""
        step, until_ns = told["step"], told["until_ns"]
        if not isinstance(until_ns, int) or not (step is None or isinstance(step, int)):
            raise TypeError("step and until_ns are whole numbers")
        return cls(id=str(told["id"]), run=str(told["run"]), step=step, until_ns=until_ns)


class CheckpointRequests:
    """What is asked for now; from any thread."""

    def __init__(self, clock_ns: Callable[[], int], standing: Iterable[Asked] = ()) -> None:
        """`standing`: what was asked for before."""
        self._clock_ns = clock_ns
        self._lock = threading.Lock()
        self._asked = {asked.run: asked for asked in standing}

    def new(self, run: str, *, step: int | None = None, valid_s: float = VALID_S) -> Asked:
        """A request that nobody has heard of yet."""
        until_ns = self._clock_ns() + int(valid_s * _NS_PER_S)
        return Asked(id=uuid.uuid4().hex, run=run, step=step, until_ns=until_ns)

    def ask(self, asked: Asked) -> None:
        """Asks a run for a checkpoint; takes the place of what was asked of it before."""
        with self._lock:
            self._asked[asked.run] = asked

    def now(self) -> list[Asked]:
        """What is asked for now."""
        now_ns = self._clock_ns()
        with self._lock:
            self._asked = {run: asked for run, asked in self._asked.items() if asked.until_ns > now_ns}
            return list(self._asked.values())


def read(con: duckdb.DuckDBPyConnection) -> list[Asked]:
    """What was written down, also what has lapsed. Raises duckdb.Error."""
    found = con.execute("SELECT id, run, step, until_ns FROM checkpoint_requests").fetchall()
    return [Asked(id=id_, run=run, step=step, until_ns=until_ns) for id_, run, step, until_ns in found]


def write(con: duckdb.DuckDBPyConnection, asked: Asked, now_ns: int) -> None:
    """Writes a request down in the place of the one before of its run; what has lapsed goes. Raises duckdb.Error."""
    with transaction(con):
        con.execute("DELETE FROM checkpoint_requests WHERE run = ? OR until_ns <= ?", [asked.run, now_ns])
        con.execute(
            "INSERT INTO checkpoint_requests (run, id, step, until_ns) VALUES (?, ?, ?, ?)",
            [asked.run, asked.id, asked.step, asked.until_ns],
        )
