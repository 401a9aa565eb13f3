"""A training that knows nothing of us: what `goodput run` records of it is held against what it writes down itself.

    plain_training.py STEPS [--save FILE] [--loaders METHOD,METHOD] [--pace S] [--end HOW] [--truth FILE]

Under torchrun it trains with DistributedDataParallel, alone with one process.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset[torch.Tensor]):
    """The same numbers in every process."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((4,), float(index % 7))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("steps", type=int)
    parser.add_argument("--save", type=Path)
    parser.add_argument("--loaders", help="how each rank starts a worker for its input")
    parser.add_argument("--pace", type=float, default=0.0)
    parser.add_argument("--end", default="return")
    parser.add_argument("--truth", type=Path)
    options = parser.parse_args()

    distributed = "RANK" in os.environ
    rank = int(os.environ.get("RANK", "0"))
    if distributed:
        dist.init_process_group("gloo")
    torch.manual_seed(0)
    model: nn.Module = nn.Linear(4, 1)
    if distributed:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    done = 0
    if options.save is not None and options.save.exists():
        state = torch.load(options.save, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        done = int(state["step"])
        say(f"rank {rank} goes on after step {done}")
    method = options.loaders.split(",")[rank] if options.loaders else None
    loader = DataLoader(
        Numbers(2 * (options.steps - done)),
        batch_size=2,
        num_workers=0 if method is None else 1,
        multiprocessing_context=method,
    )
    truth: dict[str, list[float]] = {"steps": [], "saves": []}
    for step, batch in enumerate(loader, start=done + 1):
        time.sleep(options.pace)
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        truth["steps"].append(time.time())
        say(f"rank {rank} step {step} loss {loss.item():.9f}")
        if options.save is not None and step % 10 == 0:
            if rank == 0:
                began_s = time.time()
                draft = options.save.with_suffix(".draft")
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, draft)
                draft.rename(options.save)
                truth["saves"].append(time.time() - began_s)
            if distributed:
                dist.barrier()
        name, _, at = options.end.partition("@")
        if at == f"{rank}.{step}" and os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0":
            leave(name)
    if options.truth is not None:
        options.truth.with_suffix(f".{rank}").write_text(json.dumps(truth))
    if distributed:
        dist.barrier()
        dist.destroy_process_group()
        os._exit(0)
    leave(options.end)


def say(line: str) -> None:
    """In one piece: the ranks share their output."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def leave(how: str) -> None:
    print(f"leaves by {how}", file=sys.stderr, flush=True)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "raise":
        raise ValueError("the data has gone")
    elif how.startswith("os_exit"):
        os._exit(int(how.removeprefix("os_exit")))
    elif how.startswith("exit"):
        sys.exit(int(how.removeprefix("exit")))


if __name__ == "__main__":
    main()
