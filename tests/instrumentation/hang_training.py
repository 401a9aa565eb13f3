"""A training of three ranks one of which comes to a stop: `hang_training.py PLACE HOW TIMEOUT`.

Places: `start` (before the first step), `data`, `forward`, `backward`, `collective`, `save`, `evaluation`; `long` is no
stop but an evaluation by one rank that takes as long. How: `stuck` (it never goes on, but lives) or `stopped` (by
SIGSTOP, and silent). In a `collective` the rank is inside one when it is stopped.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import goodput.torch

CULPRIT, STOP_AT, STEPS = 1, 8, 14
LONG_S, STEP_S = 7.0, 0.1


class Stop:
    def __init__(self, rank: int, place: str, how: str) -> None:
        self.mine, self.place, self.how, self.step = rank == CULPRIT, place, how, 0

    def at(self, place: str) -> None:
        if self.mine and self.place == place and self.step == (0 if place == "start" else STOP_AT):
            if self.how == "stopped":
                os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(1000)


class Backward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, given: Tensor, stop: Stop) -> Tensor:
        ctx.stop = stop
        return given.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        ctx.stop.at("backward")
        return gradients[0], None


def main() -> None:
    place, how, timeout_s = sys.argv[1:]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=float(timeout_s)))
    stop = Stop(dist.get_rank(), place, how)
    model = DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rec = goodput.torch.watch(model, optimizer, run=f"{place}-{how}")
    time.sleep(1.0)  # for the ranks to agree
    stop.at("start")
    for stop.step in range(1, STEPS + 1):
        stop.at("data")
        time.sleep(STEP_S)
        batch: Tensor = Backward.apply(torch.ones(2, 4, requires_grad=True), stop)  # type: ignore[no-untyped-call]
        stop.at("forward")
        model(batch).sum().backward()
        if stop.step == STOP_AT and place == "collective":
            if stop.mine:
                # From another thread, once this one is inside it.
                threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGSTOP)).start()
                dist.recv(torch.ones(1), src=0)
            else:
                dist.all_reduce(torch.ones(1))
        optimizer.step()
        optimizer.zero_grad()
        if stop.step == STOP_AT and place == "save":
            with rec.checkpoint(stop.step):
                stop.at("save")
                dist.barrier()
        if stop.step == STOP_AT and place == "evaluation":
            model.eval()
            stop.at("evaluation")
            dist.all_reduce(torch.ones(1))
            model.train()
        if stop.step == STOP_AT and place == "long":
            if stop.mine:
                model.eval()
                time.sleep(LONG_S)
                model.train()
            dist.barrier()
    rec.finish()
    dist.barrier()
    os._exit(0)


if __name__ == "__main__":
    main()
