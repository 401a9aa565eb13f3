"""Trainings of several ranks in which some are made slow: `straggler_training.py FOLDER CELL...`.

A cell is `KIND:PLACE:MS:STEPS`. All cells run one after another in the same processes, each as a run of its own, of the
cell's name. Kinds: `ddp`, `fsdp` (FSDP2), `plain` (gradients reduced by hand, a loss reduced between two steps),
`ddp-accumulating` and `fsdp-accumulating` (two micro-batches a step; the first one's gradients stay with the rank), and
`ddp-unfed` (a loop without a loader). Places: `data`, `forward`, `backward`, `clip` (between backward pass and
optimizer), `optimizer`, `between` (two steps), `collection` (garbage collected between two steps), `rotating` (forward,
each rank in turn), `two` and `three` of the ranks (the
latter in the last third), `nobody`.

Each rank leaves what it really waited in `FOLDER/delays-RANK.json`: by cell and step, in seconds.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

import goodput.torch
from goodput.recorder import LiveRecorder

WORK_S, STAGE_S = 0.02, 0.04
CULPRIT = 2


class Delays:
    """Where this rank is slow in the cell at hand, and how slow it was."""

    def __init__(self, rank: int, ranks: int) -> None:
        self.rank, self.ranks = rank, ranks
        self.place, self.seconds, self.step, self.steps = "nobody", 0.0, 0, 0
        self.spent_s: dict[int, float] = defaultdict(float)

    def mine(self) -> bool:
        if self.place == "rotating":
            return self.step % self.ranks == self.rank
        return self.rank in {"two": (1, 2), "three": (0, 1, 2), "nobody": ()}.get(self.place, (CULPRIT,))

    def at(self, place: str) -> None:
        here = {"rotating": "forward", "two": "forward", "three": "forward"}.get(self.place, self.place)
        # The first step of an attempt is none to compare with. Where most are slow, it shows against what was before.
        begins = self.steps * 2 // 3 if self.place == "three" else 1
        if here == place and self.step > begins and self.mine():
            began = time.perf_counter()
            if place == "collection":
                # As a collection that a training puts off until it has time for it.
                while time.perf_counter() - began < self.seconds:
                    gc.collect(0)
            else:
                time.sleep(self.seconds)
            # What lies between two steps is the next one's.
            self.spent_s[self.step + (place in ("between", "collection"))] += time.perf_counter() - began


class SlowHere(nn.Module):
    """Passes on what it gets; slow forward and backward where the cell says so."""

    def __init__(self, delays: Delays, work_s: float = 0.0) -> None:
        super().__init__()
        self.delays, self.work_s = delays, work_s

    def forward(self, given: Tensor) -> Tensor:
        time.sleep(self.work_s)
        self.delays.at("forward")
        found: Tensor = _Passed.apply(given, self.delays)  # type: ignore[no-untyped-call]
        return found


class _Passed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, given: Tensor, delays: Delays) -> Tensor:
        ctx.delays = delays
        return given.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        ctx.delays.at("backward")
        return gradients[0], None


class Batches(Dataset[Tensor]):
    """As many batches as there are steps times micro-batches."""

    def __init__(self, delays: Delays, length: int, micro: int) -> None:
        self.delays, self.length, self.micro = delays, length, micro

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Tensor:
        if index % self.micro == 0:
            self.delays.step = index // self.micro + 1
            self.delays.at("data")
        return torch.full((16,), 1.0 + index % 3)


def train(cell: str, delays: Delays) -> None:
    kind, place, ms, steps = cell.split(":")
    torch.manual_seed(0)
    delays.place, delays.seconds, delays.step, delays.steps = place, int(ms) / 1e3, 0, int(steps)
    delays.spent_s = defaultdict(float)
    micro = 2 if kind.endswith("accumulating") else 1
    model: Any = nn.Sequential(
        nn.Linear(16, 16),
        nn.ReLU(),
        nn.Linear(16, 16),
        SlowHere(delays, WORK_S / micro),
        nn.Linear(16, 4),
        nn.Linear(4, 1),
    )
    mesh = None
    if kind == "staged":
        stages = init_device_mesh("cpu", (2, delays.ranks // 2), mesh_dim_names=("pp", "dp"))
        mesh = stages["dp"]
        model[3].work_s += STAGE_S * stages.get_local_rank("pp")
    if kind.startswith(("fsdp", "staged")):
        for layer in (model[0], model[2], model[4]):
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    elif kind.startswith("ddp"):
        model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    optimizer.register_step_pre_hook(lambda *_: delays.at("optimizer"))
    rec = goodput.torch.watch(model, optimizer, run=cell)
    dist.barrier()
    if kind == "ddp-unfed":
        made = Batches(delays, int(steps), 1)
        batches: Any = (made[index][None] for index in range(len(made)))
    else:
        batches = DataLoader(Batches(delays, micro * int(steps), micro), batch_size=1)
    for index, batch in enumerate(batches):
        last = index % micro == micro - 1
        with _kept(model, kind, last):
            model(batch).square().mean().backward()
        if not last:
            continue
        if kind == "staged":
            dist.barrier()
        if kind == "plain":
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
        delays.at("clip")
        optimizer.step()
        optimizer.zero_grad()
        if kind == "plain":
            dist.all_reduce(torch.ones(1))
        delays.at("between")
        delays.at("collection")
    rec.finish()
    assert isinstance(rec, LiveRecorder) and rec.wait_closed()


def _kept(model: Any, kind: str, last: bool) -> contextlib.AbstractContextManager[None]:
    """The gradients of a micro-batch that is not the last stay with the rank."""
    if kind == "fsdp-accumulating":
        model.set_requires_gradient_sync(last)
    elif kind == "ddp-accumulating" and not last:
        kept: Callable[[], contextlib.AbstractContextManager[None]] = model.no_sync
        return kept()
    return contextlib.nullcontext()


def main() -> None:
    folder, cells = Path(sys.argv[1]), sys.argv[2:]
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    delays = Delays(rank, dist.get_world_size())
    spent: dict[str, dict[int, float]] = {}
    for cell in cells:
        train(cell, delays)
        spent[cell] = dict(delays.spent_s)
        dist.barrier()
    (folder / f"delays-{rank}.json").write_text(json.dumps(spent))
    dist.barrier()
    os._exit(0)


if __name__ == "__main__":
    main()
