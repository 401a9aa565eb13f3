"""The Trainer of transformers: what the callback tells of real short runs, against the test's own clock."""

from __future__ import annotations

import copy
import pickle
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from adapter_truth import Told, Truth, ledger, near
from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import PrinterCallback

import goodput
import goodput.huggingface
import goodput.torch
from goodput.huggingface import GoodputCallback

WORK_S, FETCH_S, SAVE_S, EVAL_S = 0.05, 0.02, 0.1, 0.06


class SlowData(Dataset[dict[str, Tensor]]):
    def __init__(self, length: int, truth: Truth | None = None) -> None:
        self.length = length
        self.truth = truth or Truth()

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        with self.truth.around("fetch"):
            time.sleep(FETCH_S)
            return {"x": torch.full((4,), float(index) / self.length)}


class Model(nn.Module):
    def __init__(self, truth: Truth, fails_after: int | None = None) -> None:
        super().__init__()
        self.truth, self.left = truth, fails_after
        self.net = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        if self.training and self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise KeyError("as planned")
        with self.truth.around("work" if self.training else "predict"):
            time.sleep(WORK_S if self.training else EVAL_S)
            return {"loss": self.net(x).square().mean()}


class Timed(Trainer):  # type: ignore[misc]
    """A trainer whose saves and evaluations are slow and timed by the test."""

    truth: Truth
    broken = False
    step_began = 0.0

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> Any:
        self.step_began = time.perf_counter()
        return super().get_batch_samples(*args, **kwargs)

    def _save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        with self.truth.around("save"):
            time.sleep(SAVE_S)
            if self.broken:
                raise OSError("no room")
            super()._save_checkpoint(*args, **kwargs)

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        with self.truth.around("evaluation"):
            return super().evaluate(*args, **kwargs)


class Watching(TrainerCallback):  # type: ignore[misc]
    """What the trainer itself logs, and how long its steps take, their input included."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.trainer: Any = None

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        began = self.trainer.step_began
        self.trainer.truth.times_s.setdefault("step", []).append(time.perf_counter() - began)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        if "loss" in logs:
            self.losses.append(logs["loss"])


def trainer(tmp_path: Path, truth: Truth, *callbacks: Any, fails_after: int | None = None, **how: Any) -> Timed:
    torch.manual_seed(0)
    arguments = TrainingArguments(
        **{
            "output_dir": str(tmp_path / "out"),
            "per_device_train_batch_size": 1,
            "per_device_eval_batch_size": 1,
            "max_steps": 6,
            "learning_rate": 1e-3,
            "lr_scheduler_type": "constant",
            "report_to": [],
            "disable_tqdm": True,
            "use_cpu": True,
            "save_strategy": "no",
            "logging_steps": 1,
            **how,
        }
    )
    made = Timed(
        model=Model(truth, fails_after),
        args=arguments,
        train_dataset=SlowData(100, truth),
        eval_dataset=SlowData(2),
        callbacks=list(callbacks),
    )
    made.remove_callback(PrinterCallback)
    made.truth = truth
    return made


def test_accumulation_evaluation_saves_and_resume(spool: Path, tmp_path: Path) -> None:
    truth, watching = Truth(), Watching()
    how = {
        "gradient_accumulation_steps": 2,
        "eval_strategy": "steps",
        "eval_steps": 3,
        "save_strategy": "steps",
        "save_steps": 4,
    }
    watching.trainer = trainer(tmp_path, truth, GoodputCallback(run="hf"), watching, **how)
    watching.trainer.train()
    told = Told(spool)
    assert told.resumes() == [None]
    assert told.steps() == [1, 2, 3, 4, 5, 6]
    assert [step for step, _, _ in told.spans("evaluation")] == [3, 6]
    assert [step for step, _, _ in told.spans("checkpoint")] == [4, 6]
    assert near(told.span_s("evaluation"), truth.total_s("evaluation"))
    assert near(told.span_s("checkpoint"), truth.total_s("save"))
    assert near(told.data_s(), truth.total_s("fetch"), least_s=0.06)
    assert near(sum(told.step_s()), truth.total_s("step"))
    assert [event["loss"] for event in told.of("step")] == pytest.approx(watching.losses, abs=1e-4)
    assert {event["lr"] for event in told.of("step")} == {1e-3}
    assert told.stops() == [("finished", None)]

    # It goes on from the save of step 4: steps 5 and 6 are computed again.
    again = trainer(tmp_path, truth, GoodputCallback(run="hf"), max_steps=7, gradient_accumulation_steps=2)
    again.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-4"))
    told = Told(spool)
    assert told.resumes() == [None, 4]
    assert told.steps() == [1, 2, 3, 4, 5, 6, 5, 6, 7]
    assert len(told.spans("load_checkpoint")) >= 1
    report = ledger(spool, "hf")
    # The evaluation at step 6 was thrown away with the step.
    kept_s, lost_s = truth.times_s["evaluation"]
    assert near(report["gpu_s"]["evaluation"], kept_s)
    assert near(report["gpu_s"]["rework"], sum(told.step_s()[4:6]) + lost_s, least_s=0.08)
    assert near(report["gpu_s"]["checkpoint"], truth.total_s("save"))
    assert report["checkpoints"]["count"] == 2
    assert report["gpu_s"]["unattributed"] < 0.2


def test_an_exception_ends_the_record(spool: Path, tmp_path: Path) -> None:
    fails = trainer(tmp_path, Truth(), GoodputCallback(run="fails"), fails_after=3)
    with pytest.raises(KeyError, match="as planned"):
        fails.train()
    # Here the test catches it; the process of a training ends by it.
    rec = goodput.hooks.recording()  # type: ignore[attr-defined]
    assert rec is not None
    rec.stop(goodput.events.StopReason.EXITED)  # type: ignore[attr-defined]
    told = Told(spool)
    assert told.steps() == [1, 2, 3]
    assert told.stops() == [("exception", "KeyError")]
    assert ledger(spool, "fails")["attempts"][0]["end_cause"] == "crash"
    # Nothing of ours is left on the trainer.
    assert not {"evaluate", "training_step", "_save_checkpoint"} & set(vars(fails))


def test_a_save_that_fails(spool: Path, tmp_path: Path) -> None:
    made = trainer(tmp_path, Truth(), GoodputCallback(run="full"), save_strategy="steps", save_steps=2)
    made.broken = True
    with pytest.raises(OSError, match="no room"):
        made.train()
    rec = goodput.hooks.recording()  # type: ignore[attr-defined]
    assert rec is not None
    rec.stop(goodput.events.StopReason.EXITED)  # type: ignore[attr-defined]
    told = Told(spool)
    assert [(step, ok) for step, _, ok in told.spans("checkpoint")] == [(2, False)]
    assert told.stops() == [("exception", "OSError")]


def test_a_skipped_update_is_a_step_not_applied(spool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """fp16 needs a GPU here; what accelerate says of its optimizer is what counts."""
    from accelerate.optimizer import AcceleratedOptimizer

    made = trainer(tmp_path, Truth(), GoodputCallback(run="amp"), max_steps=4)
    skips = property(lambda optimizer: made.state.global_step == 2)
    monkeypatch.setattr(AcceleratedOptimizer, "step_was_skipped", skips)
    made.train()
    told = Told(spool)
    assert [(event["step"], event.get("applied", True)) for event in told.of("step")] == [
        (1, True),
        (2, False),
        (3, True),
        (4, True),
    ]


def test_beside_the_watch_of_a_plain_loop_nothing_is_told_twice(spool: Path, tmp_path: Path) -> None:
    """As under `goodput run`, where the trainer is watched without its callback too."""
    truth = Truth()
    rec = goodput.torch.watch(run="both")
    how = {"eval_strategy": "steps", "eval_steps": 3, "save_strategy": "steps", "save_steps": 3}
    trainer(tmp_path, truth, GoodputCallback(), **how).train()
    again = trainer(tmp_path, truth, GoodputCallback(), max_steps=8)
    again.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-6"))
    rec.finish()
    told = Told(spool)
    assert told.steps() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert told.resumes() == [None, 6]
    assert [step for step, _, _ in told.spans("checkpoint")] == [3, 6]
    assert [step for step, _, _ in told.spans("evaluation")] == [3, 6]
    assert near(told.data_s(), truth.total_s("fetch"), least_s=0.06)


def test_a_trainer_that_knows_nothing_of_us_can_be_watched(spool: Path, tmp_path: Path) -> None:
    truth = Truth()
    rec = goodput.torch.watch(run="unchanged")
    goodput.huggingface.watch(rec)
    trainer(tmp_path, truth, max_steps=4, save_strategy="steps", save_steps=2).train()
    assert rec.active
    rec.finish()
    told = Told(spool)
    assert told.steps() == [1, 2, 3, 4]
    assert [step for step, _, _ in told.spans("checkpoint")] == [2, 4]
    assert near(told.span_s("checkpoint"), truth.total_s("save"))


def test_an_evaluation_alone_records_nothing(spool: Path, tmp_path: Path) -> None:
    trainer(tmp_path, Truth(), GoodputCallback(run="none")).evaluate()
    assert goodput.hooks.recording() is None  # type: ignore[attr-defined]
    assert not spool.exists()


def test_a_trainer_without_the_callback_is_left_alone(spool: Path, tmp_path: Path) -> None:
    trainer(tmp_path, Truth(), max_steps=1).train()
    assert not spool.exists()


def test_the_callback_can_be_copied() -> None:
    callback = GoodputCallback(run="copied")
    for other in (copy.deepcopy(callback), pickle.loads(pickle.dumps(callback))):
        assert type(other) is GoodputCallback and other._run == "copied"
