"""Training with the callback against training without it: the difference per step, and the weights at the end.

    python benchmarks/overhead.py [--pairs N] [--step-ms MS] [--json]

One process trains one model, compute-bound on all cores that it may use, in turns of four steps: with `goodput.torch`
watching, its hooks on the optimizer, the measured loader and the recorder's thread, and without any of them, in an
order drawn anew for each two turns. (Two processes would differ more by where their memory lies than by us.) Printed is
the median of the differences between the two turns, over the median turn, with its 95 % bootstrap interval; once in
time and once in processor time of all threads, which other programs disturb less. Then two processes train from the
same seed, one of them watched: are the weights the same, bit for bit?

On a machine with much else to do, `taskset -c 1 nice -n -20` before it gives the training and its recorder one core.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import goodput.torch
from goodput.recorder import LiveRecorder

WIDTH = 768
LAYERS = 4
TURN = 4
"""Steps in a turn: the recorder's thread, which wakes ten times a second, wakes in each."""
WARM_UP = 5
RESAMPLES = 4000
SAME_STEPS = 50


class Trainer:
    """A small model from a fixed seed, and a batch."""

    def __init__(self, batch: int, threads: int) -> None:
        torch.manual_seed(7)
        torch.set_num_threads(threads)
        layers: list[torch.nn.Module] = []
        for _ in range(LAYERS):
            layers += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU(), torch.nn.Dropout(0.1)]
        self.model = torch.nn.Sequential(*layers, torch.nn.Linear(WIDTH, 1))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.data = torch.randn(batch, WIDTH)

    def learn(self, data: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        self.model(data).square().mean().backward()
        self.optimizer.step()

    def digest(self) -> str:
        content = b"".join(parameter.detach().numpy().tobytes() for parameter in self.model.parameters())
        return hashlib.sha256(content).hexdigest()


class Turns:
    """Turns of one trainer, with and without the callback."""

    def __init__(self, trainer: Trainer, spool: str) -> None:
        self._trainer = trainer
        rec = goodput.start(run="overhead", spool=spool)
        assert isinstance(rec, LiveRecorder) and rec._worker is not None
        self.rec = rec
        goodput.torch.watch(trainer.model, trainer.optimizer, rec)
        optimizer: Any = trainer.optimizer
        self._hooks = [
            (hooks, dict(hooks))
            for hooks in (optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks)
        ]
        assert all(ours for _, ours in self._hooks)
        self._watched = True
        worker: Any = rec._worker
        tick = worker.tick
        # Without the callback there would be no thread.
        worker.tick = lambda: tick() if self._watched else None

    def turn(self, watched: bool) -> tuple[int, int]:
        """One turn; gives its time and its processor time in nanoseconds."""
        self._watched = watched
        batches: Any = [self._trainer.data] * TURN
        for hooks, ours in self._hooks:
            hooks.clear()
            hooks.update(ours if watched else {})
        if watched:
            batches = self.rec.data(batches)
        begun, cpu = time.perf_counter_ns(), time.process_time_ns()
        for data in batches:
            self._trainer.learn(data)
        return time.perf_counter_ns() - begun, time.process_time_ns() - cpu


def same(how: str, batch: int, threads: int) -> None:
    """Train some steps, watched or not, and print the digest of the weights."""
    trainer = Trainer(batch, threads)
    rec = goodput.torch.watch(trainer.model, trainer.optimizer, run="same") if how == "with" else None
    for _ in range(SAME_STEPS):
        trainer.learn(trainer.data)
    if rec is not None:
        rec.finish()
    print(trainer.digest())


def weights_identical(batch: int, threads: int, spool: str) -> bool:
    environment = {**os.environ, "GOODPUT_SPOOL": spool, "GOODPUT_SUMMARY": "0"}
    digests = []
    for how in ("with", "without"):
        command = [sys.executable, __file__, "--same", how, "--batch", str(batch), "--threads", str(threads)]
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=300)
        digests.append(done.stdout.split()[-1])
    return digests[0] == digests[1]


def rows_for(step_ms: float, threads: int) -> int:
    """How many rows make a step of about this long here."""
    rows = 64
    trainer = Trainer(rows, threads)
    took = []
    for _ in range(8):
        begun = time.perf_counter()
        trainer.learn(trainer.data)
        took.append(time.perf_counter() - begun)
    return max(8, int(rows * step_ms / 1e3 / sorted(took)[3]))


def interval(differences: Any, typical: float) -> tuple[float, float, float]:
    """The median difference over a typical turn, with its 95 % bootstrap interval."""
    dice = np.random.default_rng(1)
    drawn = dice.choice(differences, size=(RESAMPLES, len(differences)))
    low, high = np.quantile(np.median(drawn, axis=1), [0.025, 0.975])
    return float(np.median(differences)) / typical, float(low) / typical, float(high) / typical


def measure(pairs: int, step_ms: float, threads: int) -> dict[str, Any]:
    batch = rows_for(step_ms, threads)
    dice = random.Random(1)
    turns = max(pairs // TURN, 1)
    with tempfile.TemporaryDirectory() as spool:
        trainer = Trainer(batch, threads)
        both = Turns(trainer, spool)
        taken: dict[bool, list[tuple[int, int]]] = {False: [], True: []}
        for number in range(WARM_UP + turns):
            for watched in dice.sample([False, True], 2):
                took = both.turn(watched)
                if number >= WARM_UP:
                    taken[watched].append(took)
        both.rec.finish()
        told = sum(
            json.loads(line).get("count", 1)
            for path in Path(spool).glob("*.jsonl")
            for line in path.read_text().splitlines()
            if '"kind":"step"' in line
        )
        identical = weights_identical(batch, threads, spool)
    bare, watched_turns = (np.array(taken[watched], dtype=float) for watched in (False, True))
    step = float(np.median(bare[:, 0])) / TURN / 1e6
    result: dict[str, Any] = {"pairs": turns * TURN, "step_ms": step, "recorded_steps": told}
    for column, name in enumerate(("time", "cpu")):
        middle, low, high = interval((watched_turns - bare)[:, column], float(np.median(bare[:, column])))
        result |= {f"{name}_ratio": middle, f"{name}_low_ratio": low, f"{name}_high_ratio": high}
    return {**result, "weights_identical": identical}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--pairs", type=int, default=2000, help="pairs of steps (default 2000)")
    parser.add_argument("--step-ms", type=float, default=50, help="length of a step, about (default 50)")
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--threads", type=int, default=cores, help="threads of torch (default: all cores)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--same", choices=["with", "without"], help=argparse.SUPPRESS)
    parser.add_argument("--batch", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.same:
        same(args.same, args.batch, args.threads)
        return
    os.environ["GOODPUT_SUMMARY"] = "0"
    found = measure(args.pairs, args.step_ms, args.threads)
    if args.json:
        print(json.dumps(found))
        return
    print(f"{found['pairs']} pairs of steps of {found['step_ms']:.0f} ms, load {os.getloadavg()[0]:.1f}:")
    for name, label in (("time", "time"), ("cpu", "processor time of all threads")):
        middle, low, high = (100 * found[f"{name}{part}_ratio"] for part in ("", "_low", "_high"))
        print(f"- {label}: {middle:+.2f} % with the callback (95 % interval {low:+.2f} to {high:+.2f} %)")
    print(f"- weights bit for bit the same: {'yes' if found['weights_identical'] else 'NO'}")


if __name__ == "__main__":
    main()
