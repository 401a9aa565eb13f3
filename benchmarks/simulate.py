"""What simulation and advice cost: rows of 400 runs, and the advice for a long record.

    python benchmarks/simulate.py

- `rows`: 200 hours of work with a failure in 3.1 hours, at nine intervals and three lengths of saves, 400 runs each;
  a row is to take less than a second.
- `kinds`: one row with each of the other things that a job can do.
- `advice`: the silences of a million steps, the noise of 200,000 values, the saves of a fleet of 64 runs.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import numpy as np

from goodput_analytics.advice_fleet import FleetSave, advise_fleet
from goodput_analytics.scale import fit_noise
from goodput_analytics.simulate import simulate
from goodput_analytics.simulate_job import Elastic, Job

HOUR_S = 3600.0
RUNS = 400
ROW_TARGET_S = 1.0
MINUTES = (5, 10, 20, 30, 45, 60, 90, 120, 180)
COMMON = {"useful_s": 200 * HOUR_S, "restart_s": 600.0}
REPEATS = 5


def best_s(work: Callable[[], object]) -> float:
    """The least of a few times: what else the machine did can only add to it."""
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def rows() -> float:
    worst = 0.0
    for checkpoint_s in (20.0, 120.0, 600.0):
        job = Job(checkpoint_s=checkpoint_s, mtbf_s=3.1 * HOUR_S, **COMMON)
        times = [best_s(lambda job=job, m=m: simulate(job, 60.0 * m, runs=RUNS)) for m in MINUTES]
        print(f"  saves of {checkpoint_s:3.0f} s: {1000 * min(times):.0f} to {1000 * max(times):.0f} ms a row")
        worst = max(worst, *times)
    return worst


def kinds() -> None:
    job = {"checkpoint_s": 120.0, "mtbf_s": 3.1 * HOUR_S, **COMMON}
    elastic = Elastic(nodes=64, repair_s=4 * HOUR_S, restart_s=120.0)
    for name, more in {
        "weibull": {"weibull_shape": 0.7},
        "background saves": {"write_s": 300.0},
        "hangs": {"hang_ratio": 0.3, "hang_timeout_s": 600.0},
        "elastic, 64 nodes": {"elastic": elastic},
    }.items():
        whole = Job(**{**job, **more})
        print(f"  {name}: {1000 * best_s(lambda whole=whole: simulate(whole, 1800.0, runs=RUNS)):.0f} ms")


def advice() -> None:
    from goodput_analytics.timeouts import advise_timeout

    rng = np.random.default_rng(1)
    silences = {"step": rng.lognormal(0, 0.3, 1_000_000), "checkpoint": rng.lognormal(3, 0.3, 2_000)}
    print(f"  timeout from 1,000,000 steps: {1000 * best_s(lambda: advise_timeout(silences, 1e6)):.0f} ms")
    late_s = 1 + 0.5 * (rng.random((200, 1000)) < 0.001)
    print(f"  noise from 200,000 values: {1000 * best_s(lambda: fit_noise(late_s, late_s.max(axis=1))):.0f} ms")
    draw = random.Random(1)
    saves = []
    for run in range(64):
        for n in range(100):
            begin_s = 1800.0 * n + draw.uniform(0, 600)
            end_s = begin_s + draw.uniform(30, 90)
            saves.append(FleetSave(run=f"run-{run}", begin_s=begin_s, end_s=end_s, gpus=64))
    print(f"  collisions of 6,400 saves: {1000 * best_s(lambda: advise_fleet(saves)):.0f} ms")


def main() -> int:
    print("rows, 400 runs each")
    worst_s = rows()
    print("one row, 400 runs, 30 minutes between saves of 120 s")
    kinds()
    print("advice")
    advice()
    held = worst_s < ROW_TARGET_S
    print(f"the slowest row took {worst_s:.3f} s; {'below' if held else 'NOT below'} {ROW_TARGET_S:.0f} s")
    return 0 if held else 1


if __name__ == "__main__":
    raise SystemExit(main())
