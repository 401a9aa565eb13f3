"""What the injector makes of what it saw, and how it judges a ledger by it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from goodput_collector.demo.figures import Fact, Line
from goodput_collector.demo.injector import AHEAD_STEPS, Injector
from goodput_collector.demo.options import DemoOptions, Fault, make_plan
from goodput_collector.demo.sabotage import (
    CONTROL_FILE,
    DIR_VARIABLE,
    TRUTH_DIR,
    DisturbedStage,
    QuietStage,
    join_stage,
)
from goodput_collector.demo.truth import Act, RankLogs, Record, Witnessed, Worker
from goodput_collector.demo.watch import GRACE_S, Coroner, Watch

S = 10**9


def worker(pid: int, attempt: int = 0, gone_s: float | None = None, rank: int | None = None) -> Worker:
    return Worker(pid=pid, attempt=attempt, seen_ns=0, rank=rank, gone_ns=None if gone_s is None else int(gone_s * S))


def said(what: str, pid: int, at_s: float, **more: int) -> Witnessed:
    return Witnessed(what=what, rank=pid, pid=pid, ts_ns=int(at_s * S), **more)  # type: ignore[arg-type]


def test_an_attempt_is_over_when_more_than_half_of_its_ranks_have_gone() -> None:
    record = Record(ranks=4, workers=[worker(0, gone_s=10), *(worker(pid, gone_s=20) for pid in (1, 2, 3))])
    record.witnessed = [said("raised", 1, 11), said("raised", 2, 12), said("raised", 3, 13)]
    (attempt,) = record.attempts()
    assert attempt.abort_ns == 12 * S
    assert attempt.end_ns == 13 * S  # who raised had gone then, whenever its process ended


def test_a_stopped_process_that_outlives_its_peers_does_not_move_the_abort() -> None:
    record = Record(ranks=4, workers=[worker(0, gone_s=30), *(worker(pid, gone_s=20) for pid in (1, 2, 3))])
    record.witnessed = [said("raised", pid, 14 + pid / 10) for pid in (1, 2, 3)]
    (attempt,) = record.attempts()
    assert attempt.abort_ns == int(14.3 * S)
    assert attempt.end_ns == 30 * S


def test_who_was_killed_by_us_had_gone_when_it_was_killed() -> None:
    record = Record(ranks=1, workers=[worker(0, gone_s=10.2, rank=0)])
    record.acts = [Act(fault=Fault.KILL, attempt=0, rank=0, at_ns=10 * S, after_step=5)]
    (attempt,) = record.attempts()
    assert attempt.abort_ns == attempt.end_ns == 10 * S


def test_an_attempt_whose_ranks_were_done_has_no_abort() -> None:
    record = Record(ranks=2, workers=[worker(0, gone_s=9), worker(1, gone_s=9)])
    record.witnessed = [said("done", 0, 8), said("done", 1, 8.5)]
    (attempt,) = record.attempts()
    assert attempt.abort_ns is None
    assert attempt.end_ns == int(8.5 * S)


def test_logs_are_read_as_they_grow_and_a_torn_line_waits(tmp_path: Path) -> None:
    path = tmp_path / "rank-0-7.jsonl"
    whole = json.dumps({"what": "up", "rank": 0, "pid": 7, "ts_ns": 1})
    path.write_text(whole + "\n" + whole[:9])
    logs = RankLogs(tmp_path)
    assert [line.what for line in logs.read_new()] == ["up"]
    assert logs.read_new() == []
    with path.open("a") as file:
        file.write(whole[9:] + "\n")
    assert [line.pid for line in logs.read_new()] == [7]


def test_a_rank_logs_what_it_did_and_sleeps_where_it_was_told_to(tmp_path: Path) -> None:
    stage = DisturbedStage(tmp_path, rank=2)
    wish = {"rank": 2, "first_step": 5, "last_step": 5, "sleep_s": 0.01}
    (tmp_path / CONTROL_FILE).write_text(json.dumps({"slow_rank": wish, "last_step": 6}))
    for step in (4, 5, 6):
        with stage.step(step):
            stage.lag(step)
            stage.own_work_done()
    with pytest.raises(ValueError, match="burnt"), stage.lifetime():
        raise ValueError("burnt")
    lines = RankLogs(tmp_path / TRUTH_DIR).read_new()
    assert [(line.what, line.step) for line in lines if line.what in ("slept", "step")] == [
        ("step", 4),
        ("slept", 5),
        ("step", 5),
        ("step", 6),
    ]
    slept = next(line for line in lines if line.what == "slept")
    assert slept.end_ns - slept.start_ns >= 0.01 * S
    assert lines[-1].what == "raised" and lines[-1].error == "ValueError"
    assert [stage.is_last(step) for step in (5, 6, 7)] == [False, True, False]


def test_a_script_on_its_own_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DIR_VARIABLE, raising=False)
    assert isinstance(join_stage(0), QuietStage)


class Children:
    """What torchrun has started: real processes, that the test begins and ends."""

    def __init__(self) -> None:
        self.processes: list[subprocess.Popen[bytes]] = []

    def begin(self, **environment: str) -> subprocess.Popen[bytes]:
        code = "import time; time.sleep(60)"
        process = subprocess.Popen([sys.executable, "-c", code], env={"BEGUN": "1", **environment})
        self.processes.append(process)
        while b"BEGUN" not in Path(f"/proc/{process.pid}/environ").read_bytes():
            time.sleep(0.001)  # its environment can be read a moment after it was started
        return process

    def end(self, *processes: subprocess.Popen[bytes]) -> None:
        for process in processes:
            process.kill()
            process.wait()
            self.processes.remove(process)

    def children(self) -> set[int]:
        return {process.pid for process in self.processes}


@pytest.fixture
def children() -> Iterator[Children]:
    started = Children()
    yield started
    started.end(*started.processes)


def test_only_a_child_with_a_rank_is_a_worker(children: Children) -> None:
    now_ns = 0
    watch = Watch(children, clock_ns=lambda: now_ns)  # type: ignore[arg-type]
    helper = children.begin()
    watch.look()
    assert (watch.workers, watch.attempt) == ({}, -1)
    now_ns = 1
    first = [children.begin(RANK=str(rank)) for rank in (0, 1)]
    watch.look()
    assert [(w.pid, w.rank, w.attempt, w.seen_ns) for w in watch.workers.values()] == [
        (process.pid, rank, 0, 1) for rank, process in enumerate(first)
    ]
    children.end(helper, *first)
    assert {w.pid for w in watch.look()} == {process.pid for process in first}
    children.begin()
    again = children.begin(RANK="0")
    watch.look()
    assert watch.attempt == 1
    assert [w.pid for w in watch.alive()] == [again.pid]


def test_a_worker_counts_from_when_it_was_first_seen(children: Children, monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns = 5
    ranks: list[int | None] = [None, 3]
    monkeypatch.setattr("goodput_collector.demo.watch.process_rank", lambda _: ranks.pop(0))
    watch = Watch(children, clock_ns=lambda: now_ns)  # type: ignore[arg-type]
    children.begin()
    watch.look()
    now_ns = 9
    watch.look()
    assert [(w.seen_ns, w.rank) for w in watch.workers.values()] == [(5, 3)]


def spool_file(spool: Path, source: str, pid: int, *events: dict[str, object]) -> None:
    start = {"kind": "start", "run": "demo", "source": source, "seq": 0, "ts_ns": 1, "pid": pid}
    lines = [start, *events]
    (spool / f"{source}.000000.jsonl").write_text(
        "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    )


def written(spool: Path, coroner: Coroner) -> list[dict[str, object]]:
    path = spool / f"{coroner.source}.000000.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_the_dead_are_reported_unless_they_said_it_themselves(tmp_path: Path) -> None:
    spool_file(tmp_path, "silent", 11)
    spool_file(tmp_path, "spoke", 12, {"kind": "stop", "seq": 1, "ts_ns": 2, "reason": "exception"})
    coroner = Coroner(tmp_path, "demo")
    killed = worker(11, gone_s=5)
    killed.exit_signal = signal.SIGKILL
    coroner.report([killed, worker(12, gone_s=5)])
    coroner.write(5 * S)
    assert written(tmp_path, coroner) == []  # they may still have something on its way
    coroner.write(int((5 + GRACE_S) * S))
    (event,) = written(tmp_path, coroner)
    assert event["kind"] == "exit_observed" and event["of"] == "silent"
    assert event["ts_ns"] == 5 * S and event["signal"] == 9 and "exit_code" not in event


def test_a_process_that_nobody_knows_yet_is_reported_when_its_start_is_found(tmp_path: Path) -> None:
    coroner = Coroner(tmp_path, "demo")
    coroner.report([worker(11, gone_s=5), worker(99, gone_s=5)])
    coroner.write(9 * S)
    assert written(tmp_path, coroner) == []
    spool_file(tmp_path, "late", 11)
    coroner.write(10 * S, last_call=True)
    assert [event["of"] for event in written(tmp_path, coroner)] == ["late"]


@pytest.mark.parametrize(("ledger", "holds"), [(10.4, True), (9.6, True), (10.6, False), (None, False)])
def test_a_figure_holds_within_what_is_allowed(ledger: float | None, holds: bool) -> None:
    line = Line(what="x", injected=10.0, ledger=ledger, allowed=0.5, unit="GPU-s", why="because")
    assert line.holds is holds
    assert Fact(what="x", injected="1", ledger="2").holds is False


class FakeWatch:
    """A worker group that lives and dies as the test says."""

    def __init__(self, ranks: int) -> None:
        self.attempt = 0
        self.workers = {100 + rank: worker(100 + rank, rank=rank) for rank in range(ranks)}

    def alive(self) -> list[Worker]:
        return [w for w in self.workers.values() if w.gone_ns is None]

    def of_rank(self, rank: int) -> Worker | None:
        return next((w for w in self.alive() if w.rank == rank), None)


@pytest.fixture
def victim() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield process
    process.kill()
    process.wait()


def test_a_kill_waits_until_what_was_done_before_is_saved(tmp_path: Path, victim: subprocess.Popen[bytes]) -> None:
    plan = make_plan(DemoOptions(ranks=2, seconds=20, faults=("kill", "slow_save")))
    watch = FakeWatch(2)
    del watch.workers[101]
    watch.workers[victim.pid] = worker(victim.pid, rank=1)
    injector = Injector(tmp_path, plan, watch, lambda _: None, clock_ns=lambda: 0)  # type: ignore[arg-type]

    def until(step: int) -> None:
        for number in range((injector.step or 0) + 1, step + 1):
            for pid in watch.workers:
                injector.hear(Witnessed(what="step", rank=0, pid=pid, ts_ns=0, step=number))
                if number % plan.save_every == 0:
                    injector.hear(Witnessed(what="save", rank=0, pid=pid, ts_ns=0, step=number))
            injector.act()

    until(plan.calm_steps)
    (slow,) = injector.acts
    assert slow.first_step == -(-(plan.calm_steps + AHEAD_STEPS) // plan.save_every) * plan.save_every
    assert json.loads((tmp_path / CONTROL_FILE).read_text())["slow_save"]["step"] == slow.first_step
    until(slow.first_step + plan.fault_after_save - 1)
    assert [act.fault for act in injector.acts] == [Fault.SLOW_SAVE]
    until(slow.first_step + plan.fault_after_save)
    assert [act.fault for act in injector.acts] == [Fault.SLOW_SAVE, Fault.KILL]
    assert os.waitstatus_to_exitcode(os.waitpid(victim.pid, 0)[1]) == -signal.SIGKILL
    victim.returncode = -9
    assert not injector.ended
