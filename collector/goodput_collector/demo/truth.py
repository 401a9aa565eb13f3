"""What was really done and when: the injector's own record, and what the ranks themselves logged."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from goodput_collector.demo.options import Fault


@dataclass(frozen=True, slots=True, kw_only=True)
class Witnessed:
    """One line of a rank's own log. Times in ns since the epoch by that process's reading of the wall clock."""

    what: str
    rank: int
    pid: int
    ts_ns: int
    step: int | None = None
    start_ns: int = 0
    end_ns: int = 0
    own_ns: int | None = None
    why: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One fault that the injector set: when by its own clock, to whom, and after which step it was seen to be."""

    fault: Fault
    attempt: int
    rank: int
    at_ns: int
    after_step: int
    first_step: int | None = None
    last_step: int | None = None
    ended_ns: int | None = None


@dataclass(slots=True, kw_only=True)
class Worker:
    """One training process as seen from outside."""

    pid: int
    attempt: int
    seen_ns: int
    rank: int | None = None
    gone_ns: int | None = None
    exit_signal: int | None = None
    exit_code: int | None = None


class RankLogs:
    """Reads the ranks' logs as they grow."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._offsets: dict[Path, int] = {}

    def read_new(self) -> list[Witnessed]:
        """Lines completed since the last call, oldest first within a rank."""
        found: list[Witnessed] = []
        for path in sorted(self._folder.glob("rank-*.jsonl")):
            offset = self._offsets.get(path, 0)
            with path.open("rb") as file:
                file.seek(offset)
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._offsets[path] = offset + len(whole)
            found += [Witnessed(**json.loads(line)) for line in whole.splitlines()]
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptTruth:
    """One life of the worker group, by the ranks' logs and the injector's watch.

    Attributes:
        seen_ns: when its first process was seen.
        first_step_start_ns: the earliest start of its first step; None if it made none.
        last_step: the last step that any rank completed; `last_step_end_ns` the latest end of it.
        abort_ns: when more than half of its ranks had gone, or half of those who raised had raised, whichever is
            later; None if it finished. A rank has gone when it raised, or was killed by us, else when seen to be dead.
        end_ns: when its last rank had gone (or had said that it was done).
    """

    attempt: int
    seen_ns: int
    first_step: int | None
    first_step_start_ns: int | None
    last_step: int | None
    last_step_end_ns: int | None
    abort_ns: int | None
    end_ns: int


@dataclass(slots=True, kw_only=True)
class Record:
    """All that is known at the end, as it came in."""

    ranks: int
    acts: list[Act] = field(default_factory=list)
    workers: list[Worker] = field(default_factory=list)
    witnessed: list[Witnessed] = field(default_factory=list)

    def of(self, attempt: int, what: str) -> list[Witnessed]:
        """What the ranks of one attempt logged of one kind."""
        pids = {worker.pid for worker in self.workers if worker.attempt == attempt}
        return [line for line in self.witnessed if line.what == what and line.pid in pids]

    def attempts(self) -> list[AttemptTruth]:
        """The lives of the worker group, in order."""
        return [self._attempt(number) for number in sorted({worker.attempt for worker in self.workers})]

    def _attempt(self, number: int) -> AttemptTruth:
        workers = [worker for worker in self.workers if worker.attempt == number]
        steps = [line for line in self.of(number, "step") if line.step is not None]
        first = min((line.step for line in steps if line.step is not None), default=None)
        last = max((line.step for line in steps if line.step is not None), default=None)
        done = {line.pid: line.ts_ns for line in self.of(number, "done")}
        raised = {line.pid: line.ts_ns for line in self.of(number, "raised")}
        seen = {worker.pid: worker.gone_ns for worker in workers if worker.gone_ns is not None}
        gone = seen | self._killed(workers) | raised | done
        aborted = len(done) * 2 <= len(workers)
        return AttemptTruth(
            attempt=number,
            seen_ns=min(worker.seen_ns for worker in workers),
            first_step=first,
            first_step_start_ns=min((line.start_ns for line in steps if line.step == first), default=None),
            last_step=last,
            last_step_end_ns=max((line.end_ns for line in steps if line.step == last), default=None),
            abort_ns=max(_majority_ns(gone.values(), len(workers)), _majority_ns(raised.values(), len(raised)))
            if aborted
            else None,
            end_ns=max(gone.values(), default=0),
        )

    def _killed(self, workers: list[Worker]) -> dict[int, int]:
        """By process: when the injector itself killed it, which it knows better than who only saw it dead."""
        killed: dict[int, int] = {}
        for act in self.acts:
            at_ns = {Fault.KILL: act.at_ns, Fault.HANG: act.ended_ns}.get(act.fault)
            for worker in workers:
                if at_ns is not None and (worker.attempt, worker.rank) == (act.attempt, act.rank):
                    killed[worker.pid] = at_ns
        return killed

    def save_end_ns(self, attempt: int, step: int) -> int | None:
        """When the last rank left the save of this step."""
        return max((line.end_ns for line in self.of(attempt, "save") if line.step == step), default=None)

    def slept(self, fault: Fault) -> list[Witnessed]:
        """The sleeps that really happened for a fault."""
        return [line for line in self.witnessed if line.what == "slept" and line.why == fault]

    def write(self, path: Path) -> None:
        """Leaves the record as JSON Lines, for those who want to check."""
        kinds: Sequence[tuple[str, Iterable[Act | Worker | AttemptTruth]]] = (
            ("act", self.acts),
            ("worker", self.workers),
            ("attempt", self.attempts()),
        )
        lines = [json.dumps({"kind": kind, **asdict(row)}) for kind, rows in kinds for row in rows]
        path.write_text("".join(line + "\n" for line in lines))


def _majority_ns(times_ns: Iterable[int], of: int) -> int:
    """When more than half of `of` had happened; 0 if that never came."""
    ordered = sorted(times_ns)
    return ordered[of // 2] if of // 2 < len(ordered) else 0
