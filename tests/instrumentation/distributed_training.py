"""A training of two ranks that measures itself: `distributed_training.py ddp|fsdp FOLDER`.

Each rank leaves what really happened in `FOLDER/truth-RANK.json`: seconds by name, each around the very call.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from adapter_truth import Truth
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import goodput.dcp
import goodput.torch

WORK_S, LATE_S, DDP_STEPS = 0.05, 0.04, 26
truth = Truth()


def compute(model: nn.Module, work_s: float) -> None:
    with truth.around("own"):
        time.sleep(work_s)
        loss = model(torch.ones(2, 8)).square().mean()
    loss.backward()


def ddp(folder: Path, rank: int) -> None:
    """Rank 1 is late in every step, and rank 0 saves."""
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    # As `goodput run` does it: neither the model nor the optimizer is shown.
    rec = goodput.torch.watch(run="ddp")
    for step in range(1, DDP_STEPS + 1):
        with truth.around("step"):
            compute(model, WORK_S + (LATE_S if rank == 1 else 0.0))
            optimizer.step()
            optimizer.zero_grad()
        if step == DDP_STEPS // 2:
            with truth.around("save"):
                if rank == 0:
                    time.sleep(0.1)
                    torch.save({"model": model.state_dict(), "pad": Slow()}, folder / "c.pt")
                dist.barrier()
    rec.finish()


class Slow:
    """Makes the save that holds it slow."""

    def __reduce__(self) -> tuple[Any, ...]:
        time.sleep(0.2)
        return (Slow, ())


class State:
    """Model and optimizer as torch.distributed.checkpoint wants them."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.model, self.optimizer = model, optimizer

    def state_dict(self) -> dict[str, Any]:
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )


def fsdp(folder: Path, rank: int) -> None:
    """The first launch saves at steps 3 (blocking) and 6 (asynchronously) and makes 8; the second goes on to 10."""
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 2))
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    rec = goodput.torch.watch(model, optimizer, run="fsdp")
    goodput.dcp.watch()
    state = State(model, optimizer)
    group = dist.new_group()  # what is saved in the background must not mix with the training
    done, last, future = 0, 8, None
    if (folder / "c6" / ".metadata").exists():
        with truth.around("load"):
            dcp.load({"app": state}, checkpoint_id=folder / "c6")
        done, last = 6, 10
    for step in range(done + 1, last + 1):
        with truth.around("step"):
            compute(model, WORK_S)
            optimizer.step()
            optimizer.zero_grad()
        if step == 3:
            with truth.around("save"):
                dcp.save({"app": state}, checkpoint_id=folder / "c3")
        if step == 6 and done == 0:
            with truth.around("save"):
                future = dcp.async_save({"app": state}, checkpoint_id=folder / "c6", process_group=group)
    if future is not None:
        with truth.around("save"):
            future.result()
    with truth.around("evaluation"):
        model.eval()
        with torch.no_grad():
            model(torch.ones(2, 8))
        time.sleep(0.1)
        model.train()
    rec.finish()


def main() -> None:
    what, folder = sys.argv[1], Path(sys.argv[2])
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    {"ddp": ddp, "fsdp": fsdp}[what](folder, rank)
    (folder / f"truth-{rank}.json").write_text(json.dumps(truth.times_s))
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)


if __name__ == "__main__":
    main()
