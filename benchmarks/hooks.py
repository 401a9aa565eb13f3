"""What it costs several ranks to have their own work measured.

    python benchmarks/hooks.py [--ranks 2] [--rounds 6] [--steps 120]

A small model trains under DDP and under FSDP2 on gloo, in turns with `goodput.torch.watch` and without, each time in
new processes. Each round gives the median step of either; told is the median of the rounds' ratios, with the least
and the greatest.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

TRAINING = """
import sys, time
import torch, torch.distributed as dist
from torch import nn
kind, watched, steps = sys.argv[1], sys.argv[2] == "watched", int(sys.argv[3])
torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(*(layer for _ in range(8) for layer in (nn.Linear(384, 384), nn.ReLU())))
if kind == "ddp":
    model = nn.parallel.DistributedDataParallel(model)
else:
    from torch.distributed.fsdp import fully_shard
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
if watched:
    import goodput.torch
    goodput.torch.watch(model, optimizer, run="hooks")
x = torch.randn(256, 384)
took = []
for step in range(steps):
    begun = time.perf_counter()
    model(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    took.append(time.perf_counter() - begun)
if dist.get_rank() == 0:
    print("median", sorted(took[steps // 4:])[len(took[steps // 4:]) // 2])
dist.destroy_process_group()
"""


def median_step_s(script: Path, kind: str, watched: bool, ranks: int, steps: int) -> float:
    """The median step of rank 0 in one training."""
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={ranks}",
        str(script),
        kind,
    ]
    command += ["watched" if watched else "bare", str(steps)]
    there = {
        **os.environ,
        "GOODPUT_SPOOL": str(script.parent / "spool"),
        "OMP_NUM_THREADS": "1",
        "GOODPUT_SUMMARY": "0",
    }
    told = subprocess.run(command, check=True, capture_output=True, text=True, env=there).stdout
    return float(next(line.split()[1] for line in told.splitlines() if line.startswith("median")))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--steps", type=int, default=120)
    args = parser.parse_args()
    print("| training | bare step, ms | watched, ms | ratio (least to greatest of the rounds) |\n|---|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "training.py"
        script.write_text(TRAINING)
        for kind in ("ddp", "fsdp2"):
            pairs = []
            for number in range(args.rounds):
                order = (False, True) if number % 2 else (True, False)
                told = {watched: median_step_s(script, kind, watched, args.ranks, args.steps) for watched in order}
                pairs.append((told[False], told[True]))
            ratios = [watched / bare for bare, watched in pairs]
            bare_ms, watched_ms = (1000 * statistics.median(side) for side in zip(*pairs, strict=True))
            print(
                f"| {kind}, {args.ranks} ranks | {bare_ms:.2f} | {watched_ms:.2f} "
                f"| **{statistics.median(ratios):.3f}** ({min(ratios):.3f} to {max(ratios):.3f}) |"
            )


if __name__ == "__main__":
    main()
