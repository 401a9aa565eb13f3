"""torch.distributed.checkpoint in one process: what is told of saves and loads, against the test's own clock."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from adapter_truth import Told, Truth, ledger, near
from torch import nn
from torch.distributed.checkpoint import CheckpointException, FileSystemWriter

import goodput
import goodput.dcp
import goodput.torch

SAVE_S, STAGE_S, WRITE_S, STEP_S = 0.15, 0.1, 0.4, 0.04


class SlowWriter(FileSystemWriter):
    """Takes its time, or fails."""

    def __init__(self, path: Path, seconds: float, fails: bool = False) -> None:
        super().__init__(path)
        self.seconds, self.fails = seconds, fails

    def write_data(self, *args: Any, **kwargs: Any) -> Any:
        time.sleep(self.seconds)
        if self.fails:
            raise OSError("no room")
        return super().write_data(*args, **kwargs)


class SlowState:
    """A part of the state whose copy blocks the loop."""

    def state_dict(self) -> dict[str, Any]:
        time.sleep(STAGE_S)
        return {"n": torch.zeros(1)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


@pytest.fixture(autouse=True)
def group(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    dist.destroy_process_group()


def test_a_save_blocks_and_a_load_is_startup(spool: Path, tmp_path: Path) -> None:
    truth = Truth()
    rec = goodput.dcp.watch(run="dcp")
    rec.resumed(None)
    for step in (1, 2, 3):
        with rec.step(step):
            time.sleep(STEP_S)
        if step == 2:
            with truth.around("save"):
                dcp.save({"w": torch.ones(3)}, storage_writer=SlowWriter(tmp_path / "c", SAVE_S))
    rec.finish()
    rec = goodput.dcp.watch(run="dcp")
    with truth.around("load"):
        dcp.load({"w": torch.zeros(3)}, checkpoint_id=tmp_path / "c")
    rec.resumed(2)
    with rec.step(3):
        time.sleep(STEP_S)
    rec.finish()
    told = Told(spool)
    assert [(step, ok) for step, _, ok in told.spans("checkpoint")] == [(2, True)]
    assert near(told.span_s("checkpoint"), truth.total_s("save"))
    assert near(told.span_s("load_checkpoint"), truth.total_s("load"))
    assert not any(event.get("async") for event in told.of("begin"))
    report = ledger(spool, "dcp")
    assert near(report["gpu_s"]["checkpoint"], truth.total_s("save"))
    assert report["attempts"][1]["resume_step"] == 2


@pytest.mark.parametrize("fails", [False, True])
def test_an_asynchronous_save_blocks_while_it_blocks_and_is_durable_when_written(
    fails: bool, spool: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    truth = Truth()
    rec = goodput.dcp.watch(run="async")
    rec.resumed(None)
    writer = SlowWriter(tmp_path / "c", WRITE_S, fails)
    written: list[float] = []
    future: Any = None
    for step in range(1, 7):
        with rec.step(step):
            time.sleep(STEP_S)
        if step == 2:
            with truth.around("blocked"):
                future = dcp.async_save({"w": torch.ones(3), "s": SlowState()}, storage_writer=writer)
            assert isinstance(future, Future)
            future.add_done_callback(lambda _: written.append(time.time()))
        if step == 4:
            # The loop wants to be sure before it goes on: it waits for what is left.
            with truth.around("blocked"):
                if fails:
                    with pytest.raises(CheckpointException):
                        future.result()
                else:
                    future.result()
    rec.finish()
    told = Told(spool)
    assert truth.times_s["blocked"][1] > WRITE_S / 2
    assert [step for step, _, _ in told.spans("checkpoint")] == [2, 2]
    assert near(told.span_s("checkpoint"), truth.total_s("blocked"))
    (durable,) = told.of("durable")
    assert (durable["step"], durable["ok"]) == (2, not fails)
    assert abs(durable["ts_ns"] / 1e9 - written[0]) < 0.05
    assert told.stops() == [("finished", None)]
    report = ledger(spool, "async")
    assert near(report["gpu_s"]["checkpoint"], truth.total_s("blocked"))
    assert report["checkpoints"]["count"] == (0 if fails else 1)
    assert report["checkpoints"]["failed"] == (1 if fails else 0)


def test_what_other_threads_save_blocks_nobody(spool: Path, tmp_path: Path) -> None:
    rec = goodput.dcp.watch(run="thread")
    other = threading.Thread(target=dcp.save, args=({"w": torch.ones(3)},), kwargs={"checkpoint_id": tmp_path / "c"})
    other.start()
    other.join()
    rec.finish()
    assert (tmp_path / "c" / ".metadata").exists()
    assert Told(spool).spans("checkpoint") == []


def test_a_loaded_step_serves_an_optimizer_that_counts_nothing(spool: Path, tmp_path: Path) -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    dcp.save({"model": model.state_dict(), "step": 70}, checkpoint_id=tmp_path / "c")
    rec = goodput.torch.watch(model, optimizer, run="sgd")
    goodput.dcp.watch()
    state = {"model": model.state_dict(), "step": 0}
    dcp.load(state, checkpoint_id=tmp_path / "c")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(optimizer.state_dict())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    rec.finish()
    told = Told(spool)
    assert (told.resumes(), told.steps()) == ([70], [71])
    assert len(told.spans("load_checkpoint")) == 1


def test_a_declared_save_is_not_told_twice(spool: Path, tmp_path: Path) -> None:
    rec = goodput.dcp.watch(run="declared")
    with rec.checkpoint(5):
        dcp.save({"w": torch.ones(3)}, checkpoint_id=tmp_path / "c")
    rec.finish()
    assert [step for step, _, _ in Told(spool).spans("checkpoint")] == [5]
