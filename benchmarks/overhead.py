"""Training with the callback against training without it: the difference per step, and the weights at the end.

    python benchmarks/overhead.py [--pairs N] [--step-ms MS] [--json]

Two processes train the same model from the same seed, compute-bound on all cores; one is watched by `goodput.torch`,
with its hooks on the optimizer, the autograd graph and the loader, its thread and its heartbeats. They take turns step
by step, in an order drawn anew for each pair, and the one whose turn it is not is stopped (SIGSTOP). Printed is the
median of the pairs' differences, over the median step, with its 95 % bootstrap interval; once in time and once in
processor time of all threads, which other programs on the machine disturb less.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

WIDTH = 768
LAYERS = 4
WARM_UP = 10
RESAMPLES = 4000
REPORT = struct.Struct("<qq")


def build(batch: int, threads: int) -> tuple[Any, Any, Any]:
    import torch

    torch.manual_seed(7)
    torch.set_num_threads(threads)
    layers: list[Any] = []
    for _ in range(LAYERS):
        layers += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU()]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(WIDTH, 1))
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3), torch.randn(batch, WIDTH)


def learn(model: Any, optimizer: Any, data: Any) -> None:
    optimizer.zero_grad()
    model(data).square().mean().backward()
    optimizer.step()


def child(watched: bool, batch: int, threads: int) -> None:
    """Do a step for each byte on stdin, and report its time and processor time on stdout."""
    model, optimizer, data = build(batch, threads)
    inputs, reports = os.dup(0), os.dup(1)
    os.dup2(2, 1)

    def batches() -> Iterator[Any]:
        while os.read(inputs, 1):
            begun, cpu = time.perf_counter_ns(), time.process_time_ns()
            yield data
            os.write(reports, REPORT.pack(time.perf_counter_ns() - begun, time.process_time_ns() - cpu))

    if watched:
        import goodput.torch

        rec = goodput.torch.watch(model, optimizer, run="overhead")
        for given in rec.data(batches()):
            learn(model, optimizer, given)
        rec.finish()
    else:
        for given in batches():
            learn(model, optimizer, given)
    content = b"".join(parameter.detach().numpy().tobytes() for parameter in model.parameters())
    os.write(reports, hashlib.sha256(content).digest())


class Turn:
    """One of the two trainings, stopped but for its turns."""

    def __init__(self, how: str, batch: int, threads: int, spool: str) -> None:
        environment = {**os.environ, "GOODPUT_SPOOL": spool, "GOODPUT_SUMMARY": "0"}
        command = [sys.executable, __file__, "--child", how, "--batch", str(batch), "--threads", str(threads)]
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def step(self) -> tuple[int, int]:
        """One step; gives its time and its processor time in nanoseconds."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.write(b"s")
        self.process.stdin.flush()
        took_ns, cpu_ns = REPORT.unpack(self.process.stdout.read(REPORT.size))
        self.process.send_signal(signal.SIGSTOP)
        return took_ns, cpu_ns

    def weights(self) -> str:
        """End it; gives the digest of its weights."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.close()
        digest = self.process.stdout.read().hex()
        self.process.wait(60)
        return digest

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def batch_for(step_ms: float, threads: int) -> int:
    """How many rows make a step of about this long here."""
    rows = 64
    model, optimizer, data = build(rows, threads)
    took = []
    for _ in range(8):
        begun = time.perf_counter()
        learn(model, optimizer, data)
        took.append(time.perf_counter() - begun)
    return max(8, int(rows * step_ms / 1e3 / sorted(took)[3]))


def interval(differences: Any, typical: float) -> tuple[float, float, float]:
    """The median difference over a typical step, with its 95 % bootstrap interval."""
    dice = np.random.default_rng(1)
    drawn = dice.choice(differences, size=(RESAMPLES, len(differences)))
    low, high = np.quantile(np.median(drawn, axis=1), [0.025, 0.975])
    return float(np.median(differences)) / typical, float(low) / typical, float(high) / typical


def measure(pairs: int, step_ms: float, threads: int) -> dict[str, Any]:
    batch = batch_for(step_ms, threads)
    dice = random.Random(1)
    with tempfile.TemporaryDirectory() as spool:
        turns = [Turn(how, batch, threads, spool) for how in ("without", "with")]
        try:
            figures: list[list[tuple[int, int]]] = [[], []]
            for number in range(WARM_UP + pairs):
                for which in dice.sample([0, 1], 2):
                    took = turns[which].step()
                    if number >= WARM_UP:
                        figures[which].append(took)
            without, with_ = (turn.weights() for turn in turns)
        finally:
            for turn in turns:
                turn.end()
        steps = sum(path.read_text().count('"kind":"step"') for path in Path(spool).glob("*.jsonl"))
    bare, watched = (np.array(taken, dtype=float) for taken in figures)
    differences = watched - bare
    result: dict[str, Any] = {"pairs": pairs, "step_ms": float(np.median(bare[:, 0])) / 1e6, "step_events": steps}
    for column, name in enumerate(("time", "cpu")):
        typical = float(np.median(bare[:, column]))
        middle, low, high = interval(differences[:, column], typical)
        result |= {f"{name}_ratio": middle, f"{name}_low_ratio": low, f"{name}_high_ratio": high}
    return {**result, "weights_identical": without == with_}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--pairs", type=int, default=2000, help="pairs of steps (default 2000)")
    parser.add_argument("--step-ms", type=float, default=50, help="length of a step, about (default 50)")
    parser.add_argument(
        "--threads", type=int, default=os.cpu_count() or 1, help="threads of torch (default: all cores)"
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--child", choices=["with", "without"], help=argparse.SUPPRESS)
    parser.add_argument("--batch", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args.child == "with", args.batch, args.threads)
        return
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
