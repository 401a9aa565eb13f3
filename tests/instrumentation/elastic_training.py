"""A training for the ranks that are left: `torchrun --nnodes 1:2 ... elastic_training.py HOW FOLDER STEPS`.

HOW is `watch`, with the adapter's one line, or `plain`, without a word of us. What really happened stands in
`FOLDER/truth.jsonl`, one line for each thing as soon as it is over, by the clock around the very calls: a rank that is
killed has told what it did.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WORK_S, SAVE_S, SAVE_EVERY = 0.1, 0.2, 5


class Slow:
    """Makes the save that holds it slow."""

    def __reduce__(self) -> tuple[type[Slow], tuple[()]]:
        time.sleep(SAVE_S)
        return (Slow, ())


class Told:
    """What this process writes down of itself."""

    def __init__(self, folder: Path) -> None:
        self._file = os.open(folder / "truth.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.rank, self.world = -1, 0

    def say(self, what: str, began_s: float, step: int | None = None) -> None:
        line = {"what": what, "began_s": began_s, "ended_s": time.time(), "step": step, "rank": self.rank}
        place = {"world": self.world, "pid": os.getpid(), "agent": os.getppid()}
        os.write(self._file, json.dumps({**line, **place}).encode() + b"\n")

    @contextmanager
    def around(self, what: str, step: int) -> Iterator[None]:
        began_s = time.time()
        try:
            yield
        except BaseException:
            self.say("raised", began_s, step)
            raise
        self.say(what, began_s, step)


def process_began_s() -> float:
    """When the kernel started this process."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - age_s


def main() -> None:
    how, folder, last = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    told = Told(folder)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    told.rank, told.world = dist.get_rank(), dist.get_world_size()
    told.say("process", process_began_s())
    model = DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    if how == "watch":
        import goodput.torch

        rec = goodput.torch.watch(model, optimizer)
    kept, done = folder / "kept.pt", 0
    if kept.exists():
        # It holds an object of this very file.
        state = torch.load(kept, weights_only=False)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        done = int(state["step"])
    for step in range(done + 1, last + 1):
        with told.around("step", step):
            time.sleep(WORK_S)
            model(torch.ones(2, 8)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        if step % SAVE_EVERY == 0:
            if told.rank == 0:
                with told.around("save", step):
                    draft = folder / "draft.pt"
                    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
                    torch.save({**state, "slow": Slow()}, draft)
                draft.rename(kept)
            dist.barrier()
    if how == "watch":
        rec.finish()
    told.say("finished", time.time())
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)


if __name__ == "__main__":
    main()
