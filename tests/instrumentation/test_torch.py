"""Plain loops: what `goodput.torch.watch` tells, against the test's own clock."""

from __future__ import annotations

import copy
import gc
import pickle
import sys
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from adapter_truth import Told, Truth, ledger, near
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import goodput.torch

WORK_S, FETCH_S, SAVE_S, EVAL_S = 0.06, 0.03, 0.12, 0.15


class SlowData(Dataset[Tensor]):
    """Samples that take a known time, in the training process itself."""

    def __init__(self, length: int, truth: Truth | None = None) -> None:
        self.length = length
        self.truth = truth or Truth()

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Tensor:
        with self.truth.around("fetch"):
            time.sleep(FETCH_S)
            return torch.full((4,), float(index) / self.length)


class SlowPickle:
    """Makes the save that holds it slow."""

    def __reduce__(self) -> tuple[Any, ...]:
        time.sleep(SAVE_S)
        return (SlowPickle, ())


@pytest.fixture
def parts() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1))
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def compute(model: nn.Module, batch: Tensor, truth: Truth | None = None) -> None:
    began = time.perf_counter()
    model(batch).square().mean().backward()
    time.sleep(max(0.0, WORK_S - (time.perf_counter() - began)))
    if truth is not None:
        truth.times_s.setdefault("work", []).append(time.perf_counter() - began)


def update(optimizer: torch.optim.Optimizer, truth: Truth | None = None) -> None:
    with (truth or Truth()).around("work"):
        optimizer.step()
    optimizer.zero_grad()


def test_a_loop_with_saves_evaluation_and_input(
    parts: tuple[nn.Module, torch.optim.Optimizer], spool: Path, tmp_path: Path
) -> None:
    model, optimizer = parts
    truth = Truth()
    rec = goodput.torch.watch(model, optimizer, run="plain")
    for _ in range(2):
        model.train()
        for batch in DataLoader(SlowData(5, truth), batch_size=1):
            compute(model, batch, truth)
            update(optimizer, truth)
        with truth.around("save"):
            torch.save({"model": model.state_dict(), "slow": SlowPickle()}, tmp_path / "last.pt")
        torch.save({"loss curve": [1.0, 2.0]}, tmp_path / "curve.pt")  # no checkpoint
        with truth.around("evaluation"):
            model.eval()
            with torch.no_grad():
                for batch in DataLoader(SlowData(3), batch_size=1):
                    model(batch)
            time.sleep(EVAL_S)
            model.train()
    rec.finish()

    told = Told(spool)
    assert told.steps() == list(range(1, 11))
    assert told.resumes() == [None]
    assert [step for step, _, _ in told.spans("checkpoint")] == [5, 10]
    assert [step for step, _, _ in told.spans("evaluation")] == [5, 10]
    assert near(told.span_s("checkpoint"), truth.total_s("save"))
    assert near(told.span_s("evaluation"), truth.total_s("evaluation"))
    assert near(told.data_s(), truth.total_s("fetch"))
    assert near(sum(told.step_s()), truth.total_s("work") + truth.total_s("fetch"))
    assert {event["lr"] for event in told.of("step")} == {1e-3}
    assert told.stops() == [("finished", None)]

    report = ledger(spool, "plain")
    assert report["state"] == "finished"
    assert near(report["gpu_s"]["checkpoint"], truth.total_s("save"))
    assert near(report["gpu_s"]["evaluation"], truth.total_s("evaluation"))
    # The first step's wait counts up to a normal step's; the rest of it is warm-up.
    assert near(report["gpu_s"]["data_wait"], truth.total_s("fetch"), least_s=0.06)
    assert near(report["gpu_s"]["productive"], truth.total_s("work"), least_s=0.06)
    assert report["gpu_s"]["unattributed"] < 0.05
    assert report["checkpoints"]["count"] == 2


def test_micro_batches_are_no_steps(parts: tuple[nn.Module, torch.optim.Optimizer], spool: Path) -> None:
    model, optimizer = parts
    truth = Truth()
    rec = goodput.torch.watch(model, optimizer, run="accumulation")
    for index, batch in enumerate(DataLoader(SlowData(8, truth), batch_size=1), start=1):
        compute(model, batch, truth)
        if index % 4 == 0:
            update(optimizer, truth)
    rec.finish()
    told = Told(spool)
    assert told.steps() == [1, 2]
    assert near(sum(told.step_s()), truth.total_s("work") + truth.total_s("fetch"))
    assert near(told.data_s(), truth.total_s("fetch"))


def test_a_loop_without_a_loader(parts: tuple[nn.Module, torch.optim.Optimizer], spool: Path) -> None:
    model, optimizer = parts
    truth = Truth()
    rec = goodput.torch.watch(model, optimizer, run="synthetic")
    for _ in range(5):
        compute(model, torch.ones(1, 4), truth)
        update(optimizer, truth)
    rec.finish()
    told = Told(spool)
    assert told.steps() == [1, 2, 3, 4, 5]
    # What lies before the first update is on the way to the first step: nothing tells where it began.
    assert near(sum(told.step_s()), sum(truth.times_s["work"][1:]))
    assert all("data_ns" not in event for event in told.of("step"))


def test_input_that_the_loop_measures_itself_counts_once(
    parts: tuple[nn.Module, torch.optim.Optimizer], spool: Path
) -> None:
    model, optimizer = parts
    truth = Truth()
    rec = goodput.torch.watch(model, optimizer, run="measured")
    for batch in rec.data(DataLoader(SlowData(6, truth), batch_size=1)):
        compute(model, batch)
        update(optimizer)
    rec.finish()
    assert near(Told(spool).data_s(), truth.total_s("fetch"), least_s=0.02)


def test_prefetching_ahead_moves_no_step(parts: tuple[nn.Module, torch.optim.Optimizer], spool: Path) -> None:
    """As Accelerate does: the next batch is fetched before this one is handed out."""
    model, optimizer = parts
    truth = Truth()

    def ahead(loader: Any) -> Iterator[Tensor]:
        iterator = iter(loader)
        now = next(iterator)
        for following in iterator:
            yield now
            now = following
        yield now

    rec = goodput.torch.watch(model, optimizer, run="ahead")
    for batch in ahead(DataLoader(SlowData(5, truth), batch_size=1)):
        compute(model, batch, truth)
        update(optimizer, truth)
    rec.finish()
    told = Told(spool)
    assert told.steps() == [1, 2, 3, 4, 5]
    assert near(sum(told.step_s()), truth.total_s("work") + truth.total_s("fetch"))
    assert near(told.step_s()[-1], sum(truth.times_s["work"][-2:]), least_s=0.02)


def test_updates_that_the_scaler_leaves_out(parts: tuple[nn.Module, torch.optim.Optimizer], spool: Path) -> None:
    model, optimizer = parts
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    rec = goodput.torch.watch(model, optimizer, run="amp")
    skipped = []
    for step, batch in enumerate(DataLoader(SlowData(6), batch_size=1), start=1):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(batch).square().mean()
        time.sleep(WORK_S)
        scaler.scale(loss * (float("inf") if step in (2, 5) else 1.0)).backward()
        before = [parameter.clone() for parameter in model.parameters()]
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        if all(map(torch.equal, before, model.parameters())):
            skipped.append(step)
    rec.finish()
    told = Told(spool)
    assert skipped == [2, 5]
    assert told.steps() == [1, 2, 3, 4, 5, 6]
    assert [event["step"] for event in told.of("step") if not event.get("applied", True)] == skipped
    assert min(told.step_s()) >= WORK_S
    rework = ledger(spool, "amp")["phases_gpu_s"]["rework"]
    assert near(rework["skipped"], told.step_s()[1] + told.step_s()[4])


def test_resume_goes_on_from_the_optimizers_own_count(
    parts: tuple[nn.Module, torch.optim.Optimizer], spool: Path, tmp_path: Path
) -> None:
    model, optimizer = parts
    path = tmp_path / "c.pt"

    def train(first: int, last: int) -> None:
        for step in range(first, last + 1):
            compute(model, torch.ones(1, 4))
            update(optimizer)
            if step == 3:
                torch.save([model.state_dict(), optimizer.state_dict()], path)

    rec = goodput.torch.watch(model, optimizer, run="resumed")
    train(1, 5)
    rec.finish()
    again = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1))
    fresh = torch.optim.AdamW(again.parameters(), lr=1e-3)
    model, optimizer = again, fresh
    rec = goodput.torch.watch(again, fresh, run="resumed")
    weights, state = torch.load(path)
    again.load_state_dict(weights)
    fresh.load_state_dict(state)
    train(4, 6)
    rec.finish()
    told = Told(spool)
    assert told.resumes() == [None, 3]
    assert told.steps() == [1, 2, 3, 4, 5, 4, 5, 6]
    assert len(told.spans("load_checkpoint")) == 1
    report = ledger(spool, "resumed")
    assert report["attempts"][1]["resume_step"] == 3
    # Steps 4 and 5 were made twice.
    assert near(report["gpu_s"]["rework"], sum(told.step_s()[3:5]))


def test_resume_that_came_before_the_watch_and_a_reload_later(
    parts: tuple[nn.Module, torch.optim.Optimizer], spool: Path
) -> None:
    model, optimizer = parts
    for _ in range(7):
        compute(model, torch.ones(1, 4))
        update(optimizer)
    kept = copy.deepcopy(optimizer.state_dict())
    rec = goodput.torch.watch(model, optimizer, run="late")
    for _ in range(2):
        compute(model, torch.ones(1, 4))
        update(optimizer)
    optimizer.load_state_dict(optimizer.state_dict())  # the present state, put back: no resume
    compute(model, torch.ones(1, 4))
    update(optimizer)
    optimizer.load_state_dict(kept)  # a rollback
    compute(model, torch.ones(1, 4))
    update(optimizer)
    rec.finish()
    told = Told(spool)
    assert told.resumes() == [7, 7]
    assert told.steps() == [8, 9, 10, 8]


def test_loading_the_empty_state_of_a_new_optimizer_tells_nothing(
    parts: tuple[nn.Module, torch.optim.Optimizer], spool: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As Accelerate does when it moves an optimizer to its device."""
    caplog.set_level("WARNING", logger="goodput")
    model, optimizer = parts
    rec = goodput.torch.watch(model, optimizer, run="moved")
    optimizer.load_state_dict(optimizer.state_dict())
    compute(model, torch.ones(1, 4))
    update(optimizer)
    rec.finish()
    told = Told(spool)
    assert (told.resumes(), told.steps()) == ([None], [1])
    assert "resumed(step)" not in caplog.text


@pytest.mark.parametrize("how", ["named", "given", "told", "unknown"])
def test_resume_of_an_optimizer_that_counts_nothing(how: str, spool: Path, tmp_path: Path) -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    path = tmp_path / "c.pt"
    told_step = {"global_step": 40} if how == "named" else {}
    torch.save({"optimizer": optimizer.state_dict(), **told_step}, path)
    rec = goodput.torch.watch(model, optimizer, run="sgd", step=40 if how == "given" else None)
    if how == "told":
        rec.resumed(40)
    else:
        optimizer.load_state_dict(torch.load(path)["optimizer"])
    compute(model, torch.ones(1, 4))
    update(optimizer)
    rec.finish()
    assert Told(spool).steps() == [1 if how == "unknown" else 41]
    assert Told(spool).resumes() == [None if how == "unknown" else 40]


def test_several_optimizers_make_one_step(spool: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1))
    both = [torch.optim.SGD(part.parameters(), lr=0.1) for part in model]
    rec = goodput.torch.watch(model, both, run="two")
    for _ in range(3):
        compute(model, torch.ones(1, 4))
        for optimizer in both:
            time.sleep(WORK_S)
            update(optimizer)
    rec.finish()
    told = Told(spool)
    assert told.steps() == [1, 2, 3]
    assert min(told.step_s()[1:]) >= 3 * WORK_S


def test_without_model_and_optimizer_the_first_that_updates_is_watched(spool: Path, tmp_path: Path) -> None:
    """As `goodput run` does, before there is any."""
    truth = Truth()
    rec = goodput.torch.watch(run="unseen")
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1, bias=False), nn.Linear(1, 1), nn.Linear(1, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for batch in DataLoader(SlowData(4, truth), batch_size=1):
        model[1].eval()  # a frozen part is no evaluation
        compute(model, batch, truth)
        update(optimizer, truth)
    with truth.around("save"):
        torch.save({"state": model.state_dict(), "slow": SlowPickle()}, tmp_path / "c.pt")
    with truth.around("evaluation"):
        model.eval()
        time.sleep(EVAL_S)
        model.train()
    rec.finish()
    told = Told(spool)
    assert told.steps() == [1, 2, 3, 4]
    assert near(sum(told.step_s()), truth.total_s("work") + truth.total_s("fetch"))
    assert near(told.span_s("checkpoint"), truth.total_s("save"))
    assert near(told.span_s("evaluation"), truth.total_s("evaluation"))


def test_a_watch_that_is_told_its_optimizer_replaces_one_that_takes_any(
    parts: tuple[nn.Module, torch.optim.Optimizer], spool: Path, tmp_path: Path
) -> None:
    """`goodput run` and the line in the program, both at once."""
    model, optimizer = parts
    rec = goodput.torch.watch(run="both")
    other = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1)
    goodput.torch.watch(model, optimizer)
    for batch in DataLoader(SlowData(3), batch_size=1):
        other.step()
        compute(model, batch)
        update(optimizer)
        torch.save(model.state_dict(), tmp_path / "c.pt")
        model.eval()
        model.train()
    rec.finish()
    told = Told(spool)
    assert told.steps() == [1, 2, 3]
    assert told.resumes() == [None]
    assert [step for step, _, _ in told.spans("checkpoint")] == [1, 2, 3]
    assert [step for step, _, _ in told.spans("evaluation")] == [1, 2, 3]


def test_a_loop_that_tells_its_steps_itself_is_left_to_it(spool: Path) -> None:
    rec = goodput.torch.watch(run="own")
    model = nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(100, 103):
        with rec.step(step):
            compute(model, torch.ones(1, 4))
            update(optimizer)
    rec.finish()
    assert Told(spool).steps() == [100, 101, 102]


def test_the_optimizers_filling_by_dcp_is_no_step(parts: tuple[nn.Module, torch.optim.Optimizer], spool: Path) -> None:
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

    model, optimizer = parts
    rec = goodput.torch.watch(model, optimizer, run="filled")
    get_optimizer_state_dict(model, optimizer)
    assert optimizer.state  # it has made its update
    compute(model, torch.ones(1, 4))
    update(optimizer)
    rec.finish()
    assert Told(spool).steps() == [1]


def test_training_in_evaluation_mode_is_no_evaluation(
    parts: tuple[nn.Module, torch.optim.Optimizer], spool: Path
) -> None:
    """Frozen batch norm: the model is never put into training mode."""
    model, optimizer = parts
    rec = goodput.torch.watch(model, optimizer, run="frozen")
    for _ in range(3):
        model.eval()
        compute(model, torch.ones(1, 4))
        update(optimizer)
    rec.finish()
    told = Told(spool)
    assert told.steps() == [1, 2, 3]
    assert len(told.spans("evaluation")) == 1  # up to the first update, which is startup
    assert ledger(spool, "frozen")["gpu_s"]["evaluation"] == 0


def test_a_save_that_fails(parts: tuple[nn.Module, torch.optim.Optimizer], spool: Path, tmp_path: Path) -> None:
    model, optimizer = parts
    rec = goodput.torch.watch(model, optimizer, run="failed")
    compute(model, torch.ones(1, 4))
    update(optimizer)
    with pytest.raises(RuntimeError, match="does not exist"):
        torch.save(model.state_dict(), tmp_path / "nowhere" / "c.pt")
    compute(model, torch.ones(1, 4))
    update(optimizer)
    rec.finish()
    told = Told(spool)
    assert [(step, ok) for step, _, ok in told.spans("checkpoint")] == [(1, False)]
    assert told.stops() == [("finished", None)]


def test_weights_are_the_same_bit_for_bit(spool: Path) -> None:
    def train(watched: bool) -> list[Tensor]:
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        if watched:
            rec = goodput.torch.watch(model, optimizer, run="same")
        for batch in DataLoader([torch.rand(4) for _ in range(20)], batch_size=2, shuffle=True):  # type: ignore[arg-type]
            model(batch).sum().backward()
            update(optimizer)
        if watched:
            rec.finish()
        return [parameter.detach() for parameter in model.parameters()]

    assert all(map(torch.equal, train(False), train(True)))
    assert Told(spool).steps() == list(range(1, 11))


def test_what_was_watched_can_be_copied_compiled_and_forgotten(
    parts: tuple[nn.Module, torch.optim.Optimizer], spool: Path
) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    rec = goodput.torch.watch(model, optimizer, run="free")
    compute(model, torch.ones(1, 4))
    update(optimizer)
    for thing in (model, optimizer):
        copy.deepcopy(thing)
        pickle.loads(pickle.dumps(thing))
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    compute(compiled, torch.ones(1, 4))
    update(optimizer)
    rec.finish()
    assert Told(spool).steps() == [1, 2]
    gone = [weakref.ref(model), weakref.ref(optimizer)]
    del model, optimizer, compiled, thing
    torch.compiler.reset()
    gc.collect()
    assert [ref() for ref in gone] == [None, None]


def test_a_disabled_recorder_touches_nothing(
    parts: tuple[nn.Module, torch.optim.Optimizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOODPUT_DISABLED", "1")
    model, optimizer = parts
    before = list(sys.modules["goodput.torch"]._watches)
    rec = goodput.torch.watch(model, optimizer, run="off")
    assert not rec.active
    assert not optimizer._optimizer_step_post_hooks
    assert sys.modules["goodput.torch"]._watches == before


def test_garbage_is_warned_of_and_harmless(swallowed: list[str]) -> None:
    rec = goodput.torch.watch("no model", object(), run="garbage")
    assert rec.active
    rec.finish()
    assert swallowed == ["the training loop could not be watched"]
    swallowed.clear()
