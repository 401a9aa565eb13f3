"""Breaks the training, one fault after the other, and notes what it did and when."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from goodput_collector.demo.launcher import signal_process
from goodput_collector.demo.options import Fault, Plan
from goodput_collector.demo.sabotage import CONTROL_FILE
from goodput_collector.demo.truth import Act, Witnessed
from goodput_collector.demo.watch import Watch

# A wish in the control file is for a step that no rank has begun: so many ahead of the last one seen.
AHEAD_STEPS = 8


class Injector:
    """Acts when the training has come far enough; `say` hears in words what is done."""

    def __init__(
        self,
        home: Path,
        plan: Plan,
        watch: Watch,
        say: Callable[[str], None],
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._home = home
        self._plan = plan
        self._watch = watch
        self._say = say
        self._clock_ns = clock_ns
        self._control: dict[str, Any] = {}
        self._started_ns = clock_ns()
        self._scripts = self._play()
        self._open = True
        self.acts: list[Act] = []
        # Of the newest attempt: its steps, and the newest save that all its ranks have left.
        self.step: int | None = None
        self.first_step: int | None = None
        self.saved: int | None = None
        self._save_ends: dict[int, int] = {}
        self._seen_attempt = -1

    def hear(self, line: Witnessed) -> None:
        """Takes one line of a rank's log."""
        worker = self._watch.workers.get(line.pid)
        if worker is None or worker.attempt != self._watch.attempt:
            return
        if worker.attempt != self._seen_attempt:
            self._seen_attempt = worker.attempt
            self.step = self.first_step = self.saved = None
            self._save_ends = {}
        if line.what == "step" and line.step is not None:
            self.step = line.step if self.step is None else max(self.step, line.step)
            self.first_step = line.step if self.first_step is None else min(self.first_step, line.step)
        elif line.what == "save" and line.step is not None:
            self._save_ends[line.step] = self._save_ends.get(line.step, 0) + 1
            if self._save_ends[line.step] == self._plan.ranks:
                self.saved = line.step

    def act(self) -> None:
        """Goes on with the play as far as it can now."""
        if self._open:
            self._open = next(self._scripts, None) is not None

    @property
    def training(self) -> bool:
        """Whether the newest life of the worker group has made a step yet."""
        return self._seen_attempt == self._watch.attempt and self.step is not None

    @property
    def ended(self) -> bool:
        """Whether all was done and the training was asked to end."""
        return not self._open

    def _play(self) -> Iterator[bool]:
        """The whole play; each `yield` waits for the next look at the training."""
        acts = {
            Fault.SLOW_RANK: self._slow_rank,
            Fault.SLOW_SAVE: self._slow_save,
            Fault.KILL: self._kill,
            Fault.HANG: self._hang,
        }
        for fault in self._plan.faults:
            yield from acts[fault]()
        while (self._clock_ns() - self._started_ns) / 1e9 < self._plan.seconds or self._calm_steps() < 10:
            yield True
        last = self._ahead()
        self._say(f"asks the training to end after step {last}")
        self._wish("last_step", last)

    def _slow_rank(self) -> Iterator[bool]:
        while self._calm_steps() < self._plan.calm_steps:
            yield True
        first, rank = self._ahead(), self._plan.slow_rank
        last = first + self._plan.slow_steps - 1
        wish = {"rank": rank, "first_step": first, "last_step": last, "sleep_s": self._plan.slow_rank_sleep_s}
        self._note(Fault.SLOW_RANK, rank, first, last)
        self._wish("slow_rank", wish)
        self._say(f"slows rank {rank} by {self._plan.slow_rank_sleep_s * 1e3:.0f} ms in each of steps {first}–{last}")
        while (self.step or 0) <= last:
            yield True
        self._end_note()

    def _slow_save(self) -> Iterator[bool]:
        while self._calm_steps() < self._plan.calm_steps:
            yield True
        every = self._plan.save_every
        at = -(-self._ahead() // every) * every
        self._note(Fault.SLOW_SAVE, 0, at, at)
        self._wish("slow_save", {"rank": 0, "step": at, "sleep_s": self._plan.slow_save_sleep_s})
        self._say(f"slows the save at step {at} by {self._plan.slow_save_sleep_s:g} s")
        while (self.saved or 0) < at:
            yield True
        self._end_note()

    def _kill(self) -> Iterator[bool]:
        while not self._between_saves():
            yield True
        rank = self._plan.kill_rank
        pid = self._pid(rank)
        self._note(Fault.KILL, rank)
        signal_process(pid, signal.SIGKILL)
        self._say(f"kills rank {rank} (SIGKILL) after step {self.step}, {self._lost()} after the last save")
        yield from self._recovery()

    def _hang(self) -> Iterator[bool]:
        while not self._between_saves():
            yield True
        rank, attempt = self._plan.hang_rank, self._watch.attempt
        pid = self._pid(rank)
        self._note(Fault.HANG, rank)
        signal_process(pid, signal.SIGSTOP)
        self._say(f"stops rank {rank} (SIGSTOP) after step {self.step}, {self._lost()} after the last save")
        while any(worker.attempt == attempt and worker.pid != pid for worker in self._watch.alive()):
            yield True
        peers_gone_ns = self._clock_ns()
        self._say(f"sees the peers gone; leaves the stopped process to torchrun for {self._plan.patience_s:g} s")
        while self._clock_ns() - peers_gone_ns < self._plan.patience_s * 1e9:
            yield True
        self._end_note()
        signal_process(pid, signal.SIGKILL)
        self._say(f"ends rank {rank} (SIGKILL), which would have cost torchrun 30 s of patience")
        yield from self._recovery()

    def _recovery(self) -> Iterator[bool]:
        attempt = self.acts[-1].attempt
        while self._watch.attempt == attempt or not self.training:
            yield True
        self._say(f"sees training again, from step {self.first_step}")

    def _calm_steps(self) -> int:
        """Steps of the newest attempt so far; 0 while there is none that lives."""
        if self.step is None or self.first_step is None or self._seen_attempt != self._watch.attempt:
            return 0
        return self.step - self.first_step + 1 if self._watch.alive() else 0

    def _between_saves(self) -> bool:
        """Whether this attempt has made a save of its own and is well past it, and not near the next."""
        if not self._calm_steps() or self.step is None or self.saved is None:
            return False
        # What was disturbed before shall be kept: its steps must lie behind the save.
        if any((act.last_step or 0) > self.saved for act in self.acts):
            return False
        past = self.step - self.saved
        return self._plan.fault_after_save <= past < self._plan.save_every - 3

    def _lost(self) -> str:
        return f"{(self.step or 0) - (self.saved or 0)} steps"

    def _ahead(self) -> int:
        return (self.step or 0) + AHEAD_STEPS

    def _pid(self, rank: int) -> int:
        worker = self._watch.of_rank(rank)
        if worker is None:  # it went by itself: then there is nothing left to break
            raise TrainingEndedError(f"rank {rank} ended before it could be disturbed")
        return worker.pid

    def _note(self, fault: Fault, rank: int, first_step: int | None = None, last_step: int | None = None) -> None:
        self.acts.append(
            Act(
                fault=fault,
                attempt=self._watch.attempt,
                rank=rank,
                at_ns=self._clock_ns(),
                after_step=self.step or 0,
                first_step=first_step,
                last_step=last_step,
            )
        )

    def _end_note(self) -> None:
        self.acts[-1] = replace(self.acts[-1], ended_ns=self._clock_ns())

    def _wish(self, name: str, value: object) -> None:
        self._control[name] = value
        draft = self._home / (CONTROL_FILE + ".draft")
        draft.write_text(json.dumps(self._control))
        draft.rename(self._home / CONTROL_FILE)


class TrainingEndedError(RuntimeError):
    """The training went away while it was to be disturbed."""
