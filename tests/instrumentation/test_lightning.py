"""Lightning: what the callback tells of real short runs, against the test's own clock."""

from __future__ import annotations

import copy
import logging
import pickle
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from adapter_truth import Told, Truth, ledger, near
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins import AsyncCheckpointIO, MixedPrecision, TorchCheckpointIO
from recorder_scripts import environment, run_script
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import goodput
import goodput.lightning
import goodput.torch
from goodput.lightning import GoodputCallback

WORK_S, FETCH_S, SAVE_S, EVAL_S, WRITE_S = 0.05, 0.02, 0.1, 0.06, 0.4


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class SlowData(Dataset[Tensor]):
    def __init__(self, length: int, truth: Truth | None = None) -> None:
        self.length = length
        self.truth = truth or Truth()

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Tensor:
        with self.truth.around("fetch"):
            time.sleep(FETCH_S)
            return torch.full((4,), float(index) / self.length)


class SlowIO(TorchCheckpointIO):
    """Writes slowly, and fails when it is told to."""

    def __init__(self, seconds: float = 0.0, fails: bool = False) -> None:
        self.seconds, self.fails = seconds, fails

    def save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        time.sleep(self.seconds)
        if self.fails:
            raise OSError("no room")
        super().save_checkpoint(*args, **kwargs)


class Model(pl.LightningModule):
    def __init__(self, truth: Truth, fails_at: int | None = None) -> None:
        super().__init__()
        self.truth, self.fails_at = truth, fails_at
        self.net = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1))
        self.losses: list[float] = []

    def training_step(self, batch: Tensor, index: int) -> Tensor:
        time.sleep(WORK_S)
        if self.fails_at == self.global_step:
            raise KeyError("as planned")
        loss: Tensor = self.net(batch).square().mean()
        self.losses.append(float(loss))
        return loss

    def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        # Lightning computes forward and backward in here too.
        with self.truth.around("work"):
            super().optimizer_step(*args, **kwargs)

    def validation_step(self, batch: Tensor, index: int) -> None:
        with self.truth.around("sanity" if self.trainer.sanity_checking else "evaluation"):
            time.sleep(EVAL_S)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        with self.truth.around("save"):
            time.sleep(SAVE_S)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def trainer(tmp_path: Path, *callbacks: Any, **how: Any) -> pl.Trainer:
    return pl.Trainer(
        **{
            "accelerator": "cpu",
            "devices": 1,
            "logger": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "default_root_dir": tmp_path,
            "callbacks": list(callbacks),
            "max_epochs": 1,
            "enable_checkpointing": any(isinstance(callback, ModelCheckpoint) for callback in callbacks),
            **how,
        }
    )


def loader(length: int, truth: Truth | None = None) -> DataLoader[Tensor]:
    return DataLoader(SlowData(length, truth), batch_size=1)


def test_fit_with_validation_saves_and_resume(spool: Path, tmp_path: Path) -> None:
    truth = Truth()
    saves = ModelCheckpoint(tmp_path / "saves", every_n_train_steps=4, save_top_k=-1, save_on_train_epoch_end=False)
    how = {"val_check_interval": 5, "num_sanity_val_steps": 2}
    model = Model(truth)
    trainer(tmp_path, GoodputCallback(run="fit"), saves, **how).fit(model, loader(10, truth), loader(2))
    told = Told(spool)
    assert told.resumes() == [None]
    assert told.steps() == list(range(1, 11))
    assert [step for step, _, _ in told.spans("checkpoint")] == [4, 8]
    assert [step for step, _, _ in told.spans("evaluation")] == [0, 5, 10]
    assert near(told.span_s("checkpoint"), truth.total_s("save"))
    assert near(
        told.span_s("evaluation"), truth.total_s("sanity") + truth.total_s("evaluation") + 6 * FETCH_S, least_s=0.06
    )
    assert near(told.data_s(), truth.total_s("fetch"))
    assert near(sum(told.step_s()), truth.total_s("work") + truth.total_s("fetch"))
    assert [event["loss"] for event in told.of("step")] == pytest.approx(model.losses)
    assert {event["lr"] for event in told.of("step")} == {1e-3}
    assert told.stops() == [("finished", None)]

    # It goes on from the save of step 8: steps 9 and 10 are computed again.
    again = Model(truth)
    trainer(tmp_path, GoodputCallback(run="fit"), max_steps=12, max_epochs=2, **how).fit(
        again, loader(10, truth), loader(2), ckpt_path=str(next((tmp_path / "saves").glob("*step=8*")))
    )
    told = Told(spool)
    assert told.resumes() == [None, 8]
    assert told.steps() == [*range(1, 11), 9, 10, 11, 12]
    assert len(told.spans("load_checkpoint")) == 1

    report = ledger(spool, "fit")
    assert [a["end_cause"] for a in report["attempts"]] == ["finished", "finished"]
    # Two batches each at steps 5, 10 and 10 again; that of the first step 10 was thrown away with it.
    evaluations = truth.times_s["evaluation"]
    lost_s = sum(evaluations[2:4]) + 2 * FETCH_S
    assert near(report["gpu_s"]["evaluation"], sum(evaluations) + 6 * FETCH_S - lost_s, least_s=0.06)
    assert near(report["gpu_s"]["rework"], sum(told.step_s()[8:10]) + lost_s, least_s=0.06)
    # The sanity check is on the way to the first step.
    assert near(report["phases_gpu_s"]["startup"]["evaluation"], truth.total_s("sanity") + 2 * FETCH_S, least_s=0.06)
    assert near(report["gpu_s"]["checkpoint"], truth.total_s("save"))
    assert report["checkpoints"]["count"] == 2


def test_micro_batches_and_an_evaluation_between_them(spool: Path, tmp_path: Path) -> None:
    truth = Truth()
    model = Model(truth)
    trainer(tmp_path, GoodputCallback(run="micro"), accumulate_grad_batches=4, val_check_interval=6).fit(
        model, loader(12, truth), loader(1)
    )
    told = Told(spool)
    assert told.steps() == [1, 2, 3]
    means = [sum(model.losses[first : first + 4]) / 4 for first in (0, 4, 8)]
    assert [event["loss"] for event in told.of("step")] == pytest.approx(means)
    assert near(told.data_s(), truth.total_s("fetch"))
    report = ledger(spool, "micro")
    assert near(report["gpu_s"]["evaluation"], truth.total_s("evaluation") + 2 * FETCH_S, least_s=0.06)


def test_an_exception_ends_the_record(spool: Path, tmp_path: Path) -> None:
    truth = Truth()
    fails = trainer(tmp_path, GoodputCallback(run="fails"))
    with pytest.raises(KeyError, match="as planned"):
        fails.fit(Model(truth, fails_at=3), loader(6))
    # Here the test catches it; the process of a training ends by it.
    rec = goodput.hooks.recording()  # type: ignore[attr-defined]
    assert rec is not None and rec.active
    rec.stop(goodput.events.StopReason.EXITED)  # type: ignore[attr-defined]
    told = Told(spool)
    assert told.steps() == [1, 2, 3]
    assert told.stops() == [("exception", "KeyError")]
    assert ledger(spool, "fails")["attempts"][0]["end_cause"] == "crash"
    # Nothing of ours is left on the trainer.
    assert "save_checkpoint" not in vars(fails)


@pytest.mark.parametrize("fails", [False, True])
def test_an_asynchronous_save_is_durable_when_it_is_written(fails: bool, spool: Path, tmp_path: Path) -> None:
    truth = Truth()
    saves = ModelCheckpoint(tmp_path / "saves", every_n_train_steps=3, save_top_k=-1, save_on_train_epoch_end=False)
    made = trainer(
        tmp_path, GoodputCallback(run="async"), saves, plugins=[AsyncCheckpointIO(SlowIO(WRITE_S, fails))], max_steps=5
    )
    began = time.perf_counter()
    try:
        made.fit(Model(truth), loader(9))
    except OSError:
        assert fails
        rec = goodput.hooks.recording()  # type: ignore[attr-defined]
        assert rec is not None
        rec.finish()
    assert time.perf_counter() - began > WRITE_S
    told = Told(spool)
    ((step, blocked_s, _),) = told.spans("checkpoint")
    assert step == 3 and near(blocked_s, truth.total_s("save"))
    assert [event["async"] for event in told.of("begin") if event["span"] == "checkpoint"] == [True]
    (durable,) = told.of("durable")
    assert (durable["step"], durable["ok"]) == (3, not fails)
    begun = next(event["ts_ns"] for event in told.of("begin") if event["span"] == "checkpoint")
    assert near((durable["ts_ns"] - begun) / 1e9, truth.total_s("save") + WRITE_S, least_s=0.08)


def test_several_optimizers_each_count_as_global_step_does(spool: Path, tmp_path: Path) -> None:
    class Two(Model):
        automatic_optimization = False

        def __init__(self, truth: Truth) -> None:
            super().__init__(truth)
            self.automatic_optimization = False

        def training_step(self, batch: Tensor, index: int) -> None:
            for optimizer in self.optimizers():  # type: ignore[union-attr]
                optimizer.zero_grad()
                self.manual_backward(self.net(batch).square().mean())
                optimizer.step()

        def configure_optimizers(self) -> Any:
            return [torch.optim.SGD(part.parameters(), lr=0.1) for part in self.net]

    made = trainer(tmp_path, GoodputCallback(run="two"))
    made.fit(Two(Truth()), loader(3))
    assert made.global_step == 6
    assert Told(spool).steps() == [1, 2, 3, 4, 5, 6]


def test_an_update_that_the_scaler_leaves_out(spool: Path, tmp_path: Path) -> None:
    class Overflows(Model):
        def training_step(self, batch: Tensor, index: int) -> Tensor:
            loss = super().training_step(batch, index)
            return loss * float("inf") if self.global_step == 2 else loss

    scaled = MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=4.0))
    trainer(tmp_path, GoodputCallback(run="amp"), plugins=[scaled]).fit(Overflows(Truth()), loader(4))
    applied = [(event["step"], event.get("applied", True)) for event in Told(spool).of("step")]
    assert applied == [(1, True), (2, True), (3, False), (4, True)]


def test_a_recorder_begun_before_is_joined_and_left_to_its_owner(spool: Path, tmp_path: Path) -> None:
    rec = goodput.start("joined")
    trainer(tmp_path, GoodputCallback()).fit(Model(Truth()), loader(2))
    assert rec.active
    rec.finish()
    assert Told(spool).steps() == [1, 2]


def test_beside_the_watch_of_a_plain_loop_nothing_is_told_twice(spool: Path, tmp_path: Path) -> None:
    """As under `goodput run`, where the trainer is watched without its callback too."""
    truth = Truth()
    rec = goodput.torch.watch(run="both")
    saves = ModelCheckpoint(tmp_path / "saves", every_n_train_steps=4, save_top_k=-1, save_on_train_epoch_end=False)
    how = {"val_check_interval": 4, "num_sanity_val_steps": 1, "accumulate_grad_batches": 2}
    trainer(tmp_path, GoodputCallback(), saves, **how).fit(Model(truth), loader(8, truth), loader(1))
    rec.finish()
    told = Told(spool)
    assert told.steps() == [1, 2, 3, 4]
    assert told.resumes() == [None]
    assert [step for step, _, _ in told.spans("checkpoint")] == [4]
    assert [step for step, _, _ in told.spans("evaluation")] == [0, 2, 4]
    assert near(told.data_s(), truth.total_s("fetch"))


def test_a_trainer_that_knows_nothing_of_us_can_be_watched(spool: Path, tmp_path: Path) -> None:
    truth = Truth()
    rec = goodput.torch.watch(run="unchanged")
    goodput.lightning.watch(rec)
    saves = ModelCheckpoint(tmp_path / "saves", every_n_train_steps=2, save_top_k=-1, save_on_train_epoch_end=False)
    trainer(tmp_path, saves).fit(Model(truth), loader(4, truth))
    assert rec.active
    rec.finish()
    told = Told(spool)
    assert told.steps() == [1, 2, 3, 4]
    assert [step for step, _, _ in told.spans("checkpoint")] == [2, 4]
    assert near(told.span_s("checkpoint"), truth.total_s("save"))
    assert near(sum(told.step_s()), truth.total_s("work") + truth.total_s("fetch"))


def test_validate_alone_records_nothing(spool: Path, tmp_path: Path) -> None:
    trainer(tmp_path, GoodputCallback(run="none")).validate(Model(Truth()), loader(1))
    assert goodput.hooks.recording() is None  # type: ignore[attr-defined]
    assert not spool.exists()


def test_the_callback_can_be_copied(tmp_path: Path) -> None:
    callback = GoodputCallback(run="copied")
    for other in (copy.deepcopy(callback), pickle.loads(pickle.dumps(callback))):
        assert type(other) is GoodputCallback and other._run == "copied"


def test_pytorch_lightning_is_served_where_a_program_uses_it(spool: Path, tmp_path: Path) -> None:
    done = run_script(
        f"""
        import pytorch_lightning as pl, torch
        from goodput.lightning import GoodputCallback
        assert issubclass(GoodputCallback, pl.Callback) and "lightning.pytorch" not in sys.modules

        class Model(pl.LightningModule):
            def __init__(self):
                super().__init__()
                self.net = torch.nn.Linear(4, 1)
            def training_step(self, batch, index):
                if self.global_step == 3:
                    raise KeyError("as planned")
                return self.net(batch).mean()
            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), lr=0.1)

        try:
            pl.Trainer(
                accelerator="cpu", max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
                default_root_dir={str(tmp_path)!r}, callbacks=[GoodputCallback(run="old-name")],
            ).fit(Model(), torch.utils.data.DataLoader(torch.ones(6, 4), batch_size=1))
        except KeyError:
            sys.exit(3)
        """,
        spool,
    )
    assert done.returncode == 3, done.stderr
    told = Told(spool)
    assert told.steps() == [1, 2, 3]
    # The program caught it and left by an exit: the training had failed all the same.
    assert told.stops() == [("exception", "KeyError")]


def test_ranks_that_lightning_starts_are_one_job(spool: Path, tmp_path: Path) -> None:
    """Lightning's own launcher: no torchrun tells the ranks apart, and rank 1 is 40 ms late in every step."""
    script = tmp_path / "train.py"
    script.write_text(
        f"""
import sys, time, warnings
import lightning.pytorch as pl, torch
from goodput.lightning import GoodputCallback

class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(4, 1)
    def training_step(self, batch, index):
        time.sleep({WORK_S} + 0.04 * self.global_rank)
        return self.net(batch).mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

pl.Trainer(
    accelerator="cpu", devices=2, strategy="ddp", max_epochs=1, logger=False, enable_checkpointing=False,
    enable_progress_bar=False, default_root_dir={str(tmp_path)!r}, callbacks=[GoodputCallback(run="own-launcher")],
).fit(Model(), torch.utils.data.DataLoader(torch.ones(52, 4), batch_size=1))
"""
    )
    done = subprocess.run(
        [sys.executable, str(script)],
        env=environment(spool, OMP_NUM_THREADS="1"),
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    starts = [Told(spool, rank).of("start")[0] for rank in (0, 1)]
    assert [start["world_size"] for start in starts] == [2, 2]
    assert starts[0]["job"] == starts[1]["job"] == f"local:{starts[0]['node']}:{starts[0]['pid']}"
    report = ledger(spool, "own-launcher")
    assert [(a["world_size"], a["last_step"], a["end_cause"]) for a in report["attempts"]] == [(2, 26, "finished")]
    assert [slow["rank"] for slow in report["stragglers"]] == [1]
    assert near(report["gpu_s"]["straggler"], 2 * 0.04 * 25, share=0.2)
