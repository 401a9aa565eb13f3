"""The six measures of waste, each by a formula of its own from what a training job knows anyway, beside the ledger's.

The formulas see three streams: restarts (when an attempt ended, when the next was admitted, from which step it went
on), completed steps with timestamps, and the beginnings and ends of checkpoints. They know nothing of windows, parts
or lines, so they may differ from the ledger by a step per incident: the unfinished one counts here or there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import Any

from budget import examples
from hypothesis import given
from hypothesis import strategies as st
from loading import loaded
from training import Plan, plans, somewhere, train

from goodput_analytics import report
from reference.planned import S, Shape

Event = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Launch:
    """One entry of the restarts' stream: an attempt from its admission on, and when it was over. Times in ns."""

    admitted_ns: int
    over_ns: int
    resumed_from: int


@dataclass(frozen=True, kw_only=True)
class Done:
    """One completed step, and for how long each rank worked on it."""

    step: int
    at_ns: int
    busy_ns: list[int]


@dataclass(frozen=True, kw_only=True)
class Streams:
    """What the formulas may look at."""

    submitted_ns: int | None
    gpus: int
    launches: list[Launch]
    steps: list[list[Done]]
    saves: list[tuple[int, int]]

    @classmethod
    def of(cls, events: list[Event], gpus: int) -> Streams:
        grants = [e for e in events if e["kind"] == "allocation"]
        attempts = sorted({e["source"].split("r")[0] for e in events if e["kind"] == "start"})
        launches: list[Launch] = []
        steps: list[list[Done]] = []
        for number, attempt in enumerate(attempts):
            own = [e for e in events if e["source"].split("r")[0] == attempt]
            began_ns = min(e["process_start_ns"] for e in own if e["kind"] == "start")
            admitted_ns = min((e["start_ns"] for e in grants), default=began_ns)
            launches.append(
                Launch(
                    admitted_ns=launches[-1].over_ns if number else admitted_ns,
                    over_ns=sorted(e["ts_ns"] for e in own if e["kind"] == "stop")[-1],
                    resumed_from=next(e["step"] or 0 for e in own if e["kind"] == "resume"),
                )
            )
            by_step: dict[int, list[Event]] = {}
            for e in own:
                if e["kind"] == "step":
                    by_step.setdefault(e["step"], []).append(e)
            steps.append(
                [
                    Done(step=n, at_ns=max(e["ts_ns"] for e in told), busy_ns=[e["busy_ns"] for e in told])
                    for n, told in sorted(by_step.items())
                ]
            )
        begun = {(e["source"], e["id"]): e["ts_ns"] for e in events if e["kind"] == "begin"}
        saves = {
            (begun[e["source"], e["id"]], e["ts_ns"])
            for e in events
            if e["kind"] == "end" and e["span"] == "checkpoint"
        }
        submitted_ns = min((e["submit_ns"] for e in grants), default=None)
        return cls(submitted_ns=submitted_ns, gpus=gpus, launches=launches, steps=steps, saves=sorted(saves))

    @property
    def step_ns(self) -> int:
        """The median time from one completed step to the next."""
        return round(median(b.at_ns - a.at_ns for own in self.steps for a, b in pairwise(own)))

    def queue_wait_s(self) -> float | None:
        """From submission to admission."""
        return None if self.submitted_ns is None else (self.launches[0].admitted_ns - self.submitted_ns) / S

    def startup_gpu_s(self) -> float:
        """From admission to the first step, per launch."""
        began = [own[0].at_ns - self.step_ns - launch.admitted_ns for own, launch in self.by_launch()]
        return sum(began) * self.gpus / S

    def checkpoint_gpu_s(self) -> float:
        """Time blocked per checkpoint, times the number of checkpoints."""
        blocked = [end_ns - begin_ns for begin_ns, end_ns in self.saves]
        return sum(blocked) / max(len(blocked), 1) * len(blocked) * self.gpus / S

    def rework_gpu_s(self) -> float:
        """Step reached less step resumed from, per restart, times the step time."""
        lost = [own[-1].step - after.resumed_from for own, after in zip(self.steps, self.launches[1:], strict=False)]
        return sum(lost) * self.step_ns * self.gpus / S

    def hang_gpu_s(self) -> float:
        """From the last progress to the abort, per failure."""
        waited = [launch.over_ns - self.last_progress_ns(own, launch) for own, launch in self.by_launch()[:-1]]
        return sum(waited) * self.gpus / S

    def last_progress_ns(self, own: list[Done], launch: Launch) -> int:
        """The last step's end, or a checkpoint's after it."""
        ends = [end_ns for _, end_ns in self.saves if own[-1].at_ns <= end_ns <= launch.over_ns]
        return max(ends, default=own[-1].at_ns)

    def straggler_gpu_s(self) -> float:
        """A step's time over what it would be if every rank were as fast as the fastest, where the step was kept."""
        kept = {done.step: done for own in self.steps for done in own}
        return sum(max(d.busy_ns) - min(d.busy_ns) for d in kept.values()) * self.gpus / S

    def by_launch(self) -> list[tuple[list[Done], Launch]]:
        return list(zip(self.steps, self.launches, strict=True))


@st.composite
def trainings(draw: st.DrawFn) -> Plan:
    """Steps of one length with saves, crashes in a step, hangs, and a rank that is slow for a while."""
    plan = draw(plans(ranks=2))
    ends = draw(st.lists(somewhere(plan), unique=True, max_size=4))
    hung = draw(st.integers(0, len(ends)))
    first = draw(somewhere(plan))
    steps = range(first, min(first + draw(st.integers(0, 8)), plan.steps))
    return replace(
        plan,
        shape=replace(plan.shape, warmup_ns=0),
        longer={},
        evaluations={},
        hangs={n: draw(st.integers(1, 300 * S)) for n in ends[:hung]},
        crashes={n: draw(st.integers(0, S)) for n in ends[hung:]},
        # So slow that it matters, and so little that the step lengths' median tells what was thrown away.
        slow=dict.fromkeys(steps, draw(st.integers(1, S // 10))),
    )


@examples(8)
@given(trainings())
def test_the_ledger_agrees_with_plain_formulas(plan: Plan) -> None:
    life = train(plan)
    streams = Streams.of(life.events, life.shape.gpus)
    with loaded(life.events) as con:
        told = report(con, life.run)
    interruptions = len(plan.crashes) + len(plan.hangs)
    assert len(told.incidents) == interruptions
    step_gpu_s = streams.step_ns * streams.gpus / S
    within = interruptions * step_gpu_s + 1e-6

    assert told.queue_wait_s == streams.queue_wait_s()
    assert abs(told.gpu_s["checkpoint"] - streams.checkpoint_gpu_s()) <= 1e-6
    assert abs(told.gpu_s["startup"] - streams.startup_gpu_s()) <= within
    assert abs(told.gpu_s["rework"] - streams.rework_gpu_s()) <= within
    assert abs(told.gpu_s["hang"] - streams.hang_gpu_s()) <= within
    assert abs(told.gpu_s["straggler"] - streams.straggler_gpu_s()) <= 1e-6


def test_the_formulas_see_what_was_done() -> None:
    """A run with one of each, by hand: else formulas and ledger might agree on nothing at all."""
    plan = Plan(
        shape=Shape(ranks=4, granted=4),
        steps=60,
        saves={20: 2 * S},
        hangs={30: 100 * S},
        crashes={45: S // 2},
        slow=dict.fromkeys(range(50, 55), S // 10),
        wait_ns=5 * S,
    )
    life = train(plan)
    streams = Streams.of(life.events, 4)
    # Admission 4 s before the first process, whose first step begins 8 s later; then twice 5 s and 8 s.
    assert streams.startup_gpu_s() == (12 + 13 + 13) * 4
    assert streams.queue_wait_s() == 7
    assert streams.checkpoint_gpu_s() == 8
    assert streams.rework_gpu_s() == (10 + 25) * 4
    assert streams.hang_gpu_s() == (111 + 0.5) * 4
    assert abs(streams.straggler_gpu_s() - 5 * 0.1 * 4) < 1e-9
    with loaded(life.events) as con:
        gpu_s = report(con, life.run).gpu_s
    assert (gpu_s["startup"], gpu_s["checkpoint"], gpu_s["straggler"]) == (152, 8, 2)
    # The half step before the crash is no hang, but an unfinished step.
    assert (gpu_s["rework"], gpu_s["hang"]) == (142, 444)
