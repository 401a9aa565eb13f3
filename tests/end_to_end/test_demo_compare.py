"""The judgement at the demonstration's end: it passes a right ledger, and no wrong one.

A training of two ranks is made up second by second: steps of 1 s; a save of 0.2 s after step 4, a slow one of 2 s after
step 8; rank 1 slow by 0.5 s in steps 5 and 6, killed in step 11, back at step 9; stopped in step 14, back at step 13.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from goodput_analytics.model import Attempt, Category, Checkpoints, Incident, Quality, Report, RunState, Straggler
from goodput_collector.demo.compare import compare
from goodput_collector.demo.figures import Interval
from goodput_collector.demo.options import Fault
from goodput_collector.demo.truth import Act, Record, Witnessed, Worker

S = 10**9
RANKS = 2


class Play:
    """Writes down what the ranks would have logged."""

    def __init__(self) -> None:
        self.record = Record(ranks=RANKS)
        self.now = 0.0
        self.pids: list[int] = []

    def attempt(self, number: int) -> None:
        self.pids = [10 * number + rank for rank in range(RANKS)]
        self.record.workers += [Worker(pid=pid, attempt=number, seen_ns=self.ns(), rank=pid % 10) for pid in self.pids]
        self.now += 3

    def ns(self, more_s: float = 0.0) -> int:
        return round((self.now + more_s) * S)

    def log(self, what: str, length_s: float = 0.0, ranks: tuple[int, ...] = (0, 1), **more: Any) -> None:
        for rank in ranks:
            self.record.witnessed.append(
                Witnessed(
                    what=what,
                    rank=rank,
                    pid=self.pids[rank],
                    ts_ns=self.ns(length_s),
                    start_ns=self.ns(),
                    end_ns=self.ns(length_s),
                    **more,
                )
            )

    def step(self, step: int, slow_s: float = 0.0) -> None:
        if slow_s:
            self.log("slept", slow_s, ranks=(1,), step=step, why="slow_rank")
        self.log("step", 1 + slow_s, step=step, own_ns=S // 2)
        self.now += 1 + slow_s

    def save(self, step: int, length_s: float = 0.2) -> None:
        if length_s > 1:
            self.log("slept", length_s - 0.2, ranks=(0,), step=step, why="slow_save")
        self.log("save", length_s, step=step)
        self.now += length_s

    def act(self, fault: Fault, attempt: int, rank: int, first: int | None = None) -> None:
        self.record.acts.append(
            Act(
                fault=fault,
                attempt=attempt,
                rank=rank,
                at_ns=self.ns(),
                after_step=0,
                first_step=first,
                last_step=first,
            )
        )

    def gone(self, *ranks: int) -> None:
        for worker in self.record.workers:
            if worker.pid in [self.pids[rank] for rank in ranks]:
                worker.gone_ns = self.ns()


def made_up() -> Record:
    play = Play()
    play.attempt(0)  # 0–3 s
    for step in (1, 2, 3, 4):
        play.step(step)
    play.save(4)  # 7–7.2
    play.act(Fault.SLOW_RANK, 0, 1, 5)
    play.step(5, slow_s=0.5)
    play.step(6, slow_s=0.5)
    play.step(7)
    play.step(8)
    play.act(Fault.SLOW_SAVE, 0, 0, 8)
    play.save(8, 2.0)  # 12.2–14.2
    play.step(9)
    play.step(10)
    play.now += 0.5  # 16.7
    play.act(Fault.KILL, 0, 1)
    play.gone(1)
    play.now += 0.1  # 16.8: the abort
    play.log("raised", ranks=(0,), error="RuntimeError")
    play.gone(0)
    play.attempt(1)  # 16.8–19.8
    for step in (9, 10, 11, 12):
        play.step(step)
    play.save(12)  # 23.8–24
    play.step(13)
    play.act(Fault.HANG, 1, 1)  # at 25
    play.now += 14  # 39
    play.log("raised", ranks=(0,), error="RuntimeError")
    play.gone(0)
    play.now += 2  # 41: with two ranks only now have more than half gone
    play.gone(1)
    play.attempt(2)  # 41–44
    play.step(13)
    play.step(14)
    play.save(14)  # 46–46.2
    play.log("done")
    play.gone(0, 1)
    return play.record


def intervals() -> list[Interval]:
    """What the ledger should hold, in seconds on a clock that begins with the training."""
    rows: list[tuple[str, str | None, float, float, int | None]] = [
        ("startup", "init", 0, 3, None),
        ("productive", None, 3, 7, 4),
        ("checkpoint", None, 7, 7.2, 5),
        ("straggler", "rank", 7.2, 7.7, 5),
        ("productive", None, 7.7, 8.7, 5),
        ("straggler", "rank", 8.7, 9.2, 6),
        ("productive", None, 9.2, 12.2, 8),
        ("checkpoint", None, 12.2, 14.2, 9),
        ("rework", None, 14.2, 16.8, 9),
        ("startup", "init", 16.8, 19.8, None),
        ("productive", None, 19.8, 23.8, 12),
        ("checkpoint", None, 23.8, 24, 13),
        ("rework", None, 24, 25, 13),
        ("hang", "step", 25, 41, None),
        ("startup", "init", 41, 44, None),
        ("productive", None, 44, 46, 14),
        ("checkpoint", None, 46, 46.2, None),
    ]
    return [
        Interval(category=c, phase=p, start_ns=round(a * S), end_ns=round(b * S), gpus=RANKS, step=step)
        for c, p, a, b, step in rows
    ]


def right_report() -> Report:
    gpu_s = dict.fromkeys(map(str, Category), 0.0)
    for interval in intervals():
        gpu_s[interval.category] += interval.gpu_ns / S
    common: dict[str, Any] = {"job": "j", "world_size": 2, "start_ns": 0, "end_ns": 1}
    crash = {"recovered_ns": 0, "suspect_ranks": (), "last_progress_ns": 0, "abort_ns": 0, "detection_s": 0.6}
    return Report(
        run="demo",
        state=RunState.FINISHED,
        as_of_ns=0,
        allocated_gpu_s=92.4,
        goodput_ratio=0.5,
        at_risk_gpu_s=0.0,
        gpu_s=gpu_s,
        phases_gpu_s={},
        queue_wait_s=None,
        attempts=tuple(
            Attempt(attempt=n, end_cause="x", resume_step=None, first_step=1, last_step=2, **common) for n in range(3)
        ),
        incidents=(
            Incident(attempt=0, cause="crash", lost_steps=2, hang_gpu_s=0, rework_gpu_s=5.2, restart_gpu_s=6, **crash),
            Incident(
                attempt=1,
                cause="hang",
                lost_steps=1,
                hang_gpu_s=32,
                rework_gpu_s=2,
                restart_gpu_s=6,
                **crash | {"suspect_ranks": (1,)},
            ),
        ),
        stragglers=(Straggler(rank=1, node="n", loss_gpu_s=2, slowest_steps=2, slowdown_ratio=2.0),),
        findings=(),
        checkpoints=Checkpoints(
            count=4, failed=0, mean_blocking_s=0.2, mean_interval_s=4, mtbf_s=9, young_s=1, daly_s=1
        ),
        quality=Quality(
            events=1,
            duplicates=0,
            conflicts=0,
            rejected={},
            gaps=0,
            dropped=0,
            max_skew_s=0,
            silent_ranks=(),
            sources_without_start=0,
            missing_steps=0,
            negative_durations=0,
            assumed_gpu_s=0,
        ),
    )


def off(report: Report, entries: list[Interval] | None = None) -> list[str]:
    return [line.what for line in compare(made_up(), report, entries or intervals()) if not line.holds]


def test_the_right_ledger_passes() -> None:
    assert off(right_report()) == []


def test_every_fault_has_its_lines() -> None:
    names = [line.what for line in compare(made_up(), right_report(), intervals())]
    for start in ("kill:", "hang:", "slow_rank:", "slow_save:", "saves", "incidents"):
        assert any(name.startswith(start) for name in names), start


def crash(report: Report, **change: Any) -> Report:
    return replace(report, incidents=(replace(report.incidents[0], **change), report.incidents[1]))


def hang(report: Report, **change: Any) -> Report:
    return replace(report, incidents=(report.incidents[0], replace(report.incidents[1], **change)))


def moved(report: Report, category: str, gpu_s: float) -> Report:
    return replace(report, gpu_s=report.gpu_s | {category: report.gpu_s[category] + gpu_s})


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        (lambda r: crash(r, lost_steps=3), "kill: steps lost"),
        (lambda r: crash(r, rework_gpu_s=7.2), "kill: work thrown away"),
        (lambda r: crash(r, restart_gpu_s=9.0), "kill: restart"),
        (lambda r: crash(r, cause="hang"), "incidents"),
        (lambda r: hang(r, hang_gpu_s=28.0), "hang: standstill"),
        (lambda r: hang(r, hang_gpu_s=0.0), "hang: standstill"),
        (lambda r: hang(r, lost_steps=0), "hang: steps lost"),
        (lambda r: hang(r, rework_gpu_s=0.0), "hang: work thrown away"),
        (lambda r: hang(r, restart_gpu_s=2.0), "hang: restart"),
        (lambda r: hang(r, suspect_ranks=(0,)), "hang: suspected rank"),
        (lambda r: replace(r, stragglers=()), "slow_rank: named rank"),
        (lambda r: replace(r, incidents=r.incidents[:1]), "incidents"),
        (lambda r: replace(r, attempts=r.attempts[:2]), "attempts"),
        (lambda r: replace(r, state=RunState.FAILED), "state"),
        (lambda r: replace(r, checkpoints=replace(r.checkpoints, count=3)), "saves"),
        (lambda r: moved(r, "checkpoint", 2.0), "time in saves"),
        (lambda r: moved(r, "startup", -4.0), "all starts and restarts"),
        (lambda r: moved(r, "productive", 2.0), "steps that were kept"),
        (lambda r: replace(r, allocated_gpu_s=90.0), "GPU time held"),
    ],
)
def test_a_wrong_report_is_noticed(wrong: Callable[[Report], Report], what: str) -> None:
    assert what in off(wrong(right_report()))


@pytest.mark.parametrize(
    ("category", "what"),
    [("straggler", "slow_rank: waiting for it"), ("checkpoint", "slow_save: time in that save")],
)
def test_a_ledger_with_the_time_in_another_category_is_noticed(category: str, what: str) -> None:
    wrong = [replace(i, category="productive") if i.category == category else i for i in intervals()]
    assert off(right_report(), wrong) == [what]


def test_a_ledger_that_does_not_balance_is_noticed() -> None:
    first, *others = intervals()
    assert off(right_report(), [replace(first, end_ns=first.end_ns - 1), *others]) == ["sum of all entries"]
