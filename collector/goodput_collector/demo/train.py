"""Trains a small character-level transformer under DistributedDataParallel: an example of the recorder in a real loop.

    torchrun --nproc-per-node 2 train.py --dir /tmp/tiny --steps 200

The lines with `rec` are what the recorder asks of a training loop. The lines with `stage` let `goodput demo` break
this training in known ways; run on its own, they do nothing.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import goodput
from goodput_collector.demo.sabotage import join_stage
from goodput_collector.demo.text import make_text

CONTEXT, BATCH, WIDTH, HEADS, LAYERS = 64, 8, 48, 4, 2


class Block(nn.Module):
    """Causal self-attention and a small perceptron, each beside a residual path."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.norms[0](x)).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        result: Tensor = x + self.mlp(self.norms[1](x))
        return result


class TinyTransformer(nn.Module):
    """Predicts the next character; returns the mean cross-entropy in nats."""

    def __init__(self, letters: int) -> None:
        super().__init__()
        self.letters = nn.Embedding(letters, WIDTH)
        self.places = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, letters))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        hidden = self.letters(x) + self.places(torch.arange(x.shape[1]))
        logits = self.head(self.blocks(hidden))
        return functional.cross_entropy(logits.flatten(0, 1), y.flatten())


def batches(data: Tensor, rank: int, first_step: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Endless batches. Which one a rank gets depends on the step alone, so a resumed run goes on as if undisturbed."""
    step = first_step
    while True:
        chance = torch.Generator().manual_seed(1_000 * step + rank)
        starts = torch.randint(len(data) - CONTEXT - 1, (BATCH, 1), generator=chance)
        crops = data[starts + torch.arange(CONTEXT + 1)]
        yield crops[:, :-1], crops[:, 1:]
        step += 1


def save(path: Path, state: dict[str, object]) -> None:
    """Writes a checkpoint that is whole or absent: under another name first, safe on disk, then renamed."""
    draft = path.with_suffix(".draft")
    with draft.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    draft.rename(path)
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def load_latest(folder: Path) -> dict[str, object] | None:
    """The newest checkpoint that can be read, or None."""
    for path in sorted(folder.glob("step-*.pt"), reverse=True):
        try:
            state: dict[str, object] = torch.load(path, weights_only=True)
            return state
        except Exception as error:  # a damaged file is no reason to stop: an older one may be whole
            print(f"{path.name} cannot be read ({error}); trying an older one", flush=True)
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains a small transformer on made-up text.")
    parser.add_argument("--name", default="tiny", help="name of the run")
    parser.add_argument("--dir", type=Path, required=True, help="where checkpoints are kept")
    parser.add_argument("--steps", type=int, default=200, help="step after which the training ends")
    parser.add_argument("--save-every", type=int, default=40, help="steps between checkpoints")
    parser.add_argument("--pace-s", type=float, default=0.0, help="least time for a rank's own work in a step")
    parser.add_argument("--timeout-s", type=float, default=600.0, help="how long a collective may wait")
    options = parser.parse_args()

    rec = goodput.start(run=options.name)
    rank = int(os.environ.get("RANK", "0"))
    stage = join_stage(rank)
    with stage.lifetime():
        with rec.span("rendezvous"):
            # The default group is patient, since processes start unevenly; the group that trains is not.
            dist.init_process_group("gloo", timeout=timedelta(minutes=3))
            dist.barrier()
            group = dist.new_group(timeout=timedelta(seconds=options.timeout_s))

        torch.manual_seed(0)
        text = make_text()
        letters = sorted(set(text))
        data = torch.tensor([letters.index(letter) for letter in text])
        model = TinyTransformer(len(letters))
        optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
        options.dir.mkdir(parents=True, exist_ok=True)
        with rec.span("load_checkpoint"):
            state = load_latest(options.dir)
            if state is not None:
                model.load_state_dict(state["model"])  # type: ignore[arg-type]
                optimizer.load_state_dict(state["optimizer"])  # type: ignore[arg-type]
        done = 0 if state is None else int(state["step"])  # type: ignore[call-overload]
        rec.resumed(step=None if state is None else done)

        dist.barrier()  # all have loaded: now nobody can keep the impatient group waiting
        ddp = DistributedDataParallel(model, process_group=group)

        # A rank has done its own work when its last gradient is there; from then on it waits for the others'.
        def own_work_done(_gradients: object) -> None:
            rec.own_work_done()
            stage.own_work_done()

        torch.autograd.graph.register_multi_grad_hook(tuple(model.parameters()), own_work_done)

        for step, (x, y) in enumerate(rec.data(batches(data, rank, done + 1)), start=done + 1):
            with rec.step(step), stage.step(step):
                began_s = time.monotonic()
                loss = ddp(x, y)
                time.sleep(max(0.0, began_s + options.pace_s - time.monotonic()))  # stands for a bigger model's work
                stage.lag(step)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            last = step >= options.steps or stage.is_last(step)
            if step % options.save_every == 0 or last:
                with rec.checkpoint(step), stage.save(step):
                    if rank == 0:
                        parts = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
                        save(options.dir / f"step-{step:08d}.pt", parts)
                    dist.barrier(group)  # nobody goes on before the save is safe
            if rank == 0 and step % 20 == 0:
                print(f"step {step} loss {loss.item():.3f}", flush=True)
            if last:
                break

        # Leave together and without the interpreter's own shutdown, which can abort in a torn-down process group.
        dist.barrier()
        dist.destroy_process_group()
        rec.finish()
    os._exit(0)


if __name__ == "__main__":
    main()
