"""Loops written with Accelerate: `goodput.torch.watch` on what `prepare` gave, against the test's own clock."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState, PartialState
from accelerate.utils import ProjectConfiguration
from adapter_truth import Told, Truth, ledger, near
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import goodput.torch

WORK_S, FETCH_S, EVAL_S = 0.05, 0.02, 0.1


class SlowData(Dataset[Tensor]):
    def __init__(self, length: int, truth: Truth) -> None:
        self.length, self.truth = length, truth

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Tensor:
        with self.truth.around("fetch"):
            time.sleep(FETCH_S)
            return torch.full((4,), float(index) / self.length)


class SlowState:
    """Something else to be saved, which takes a while."""

    def state_dict(self) -> dict[str, int]:
        time.sleep(0.1)
        return {"n": 1}

    def load_state_dict(self, state: dict[str, int]) -> None:
        time.sleep(0.1)


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """Accelerate keeps its state for the whole process."""
    yield
    AcceleratorState._reset_state(True)
    PartialState._reset_state()
    GradientState._reset_state()


def test_accumulation_evaluation_saves_and_resume(spool: Path, tmp_path: Path) -> None:
    truth = Truth()

    def train(batches: int, load: bool) -> None:
        accelerator = Accelerator(
            cpu=True,
            gradient_accumulation_steps=2,
            project_config=ProjectConfiguration(project_dir=str(tmp_path)),
        )
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        model, optimizer, loader = accelerator.prepare(
            model, optimizer, DataLoader(SlowData(batches, truth), batch_size=1)
        )
        accelerator.register_for_checkpointing(SlowState())
        rec = goodput.torch.watch(model, optimizer, run="accelerate")
        if load:
            with truth.around("load"):
                accelerator.load_state(str(tmp_path / "save"))
        model.train()
        for index, batch in enumerate(loader, start=1):
            with accelerator.accumulate(model), truth.around("work"):
                time.sleep(WORK_S)
                accelerator.backward(model(batch).square().mean())
                optimizer.step()
                optimizer.zero_grad()
            if index == 4 and not load:
                with truth.around("save"):
                    accelerator.save_state(str(tmp_path / "save"))
        with truth.around("evaluation"):
            model.eval()
            time.sleep(EVAL_S)
            model.train()
        rec.finish()

    train(8, load=False)
    told = Told(spool)
    assert told.steps() == [1, 2, 3, 4]
    assert [step for step, _, _ in told.spans("checkpoint")] == [2]
    assert near(told.span_s("checkpoint"), truth.total_s("save"))
    assert near(told.span_s("evaluation"), truth.total_s("evaluation"))
    assert near(told.data_s(), truth.total_s("fetch"))
    assert near(sum(told.step_s()), truth.total_s("work") + truth.total_s("fetch"), least_s=0.06)

    train(6, load=True)
    told = Told(spool)
    assert told.resumes() == [None, 2]
    assert told.steps() == [1, 2, 3, 4, 3, 4, 5]
    assert near(told.span_s("load_checkpoint"), truth.total_s("load"))
    report = ledger(spool, "accelerate")
    assert near(report["gpu_s"]["checkpoint"], truth.total_s("save"))
    assert near(report["phases_gpu_s"]["startup"]["load_checkpoint"], truth.total_s("load"))
    # Steps 3 and 4 and the evaluation after them were thrown away.
    assert near(report["gpu_s"]["evaluation"], truth.times_s["evaluation"][1])
    assert report["attempts"][1]["resume_step"] == 2
