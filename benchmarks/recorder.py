"""What a recorded step costs the training thread, beside what one would write by hand and what others do.

    python benchmarks/recorder.py [--rounds N] [--peers .venv-peer/bin/python]

Each call is timed by itself, less what reading the clock twice costs: the median and the 99.9th percentile, in
microseconds. All loops take turns in one run, so that a busy machine weighs on them alike; then again beside a second
Python thread that never rests, which anything that makes a system call has to wait for. Peers run in turn with a loop
of ours, in an environment that has them: see benchmarks/peer-requirements.txt.
"""

from __future__ import annotations

import argparse
import array
import gc
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import goodput
from goodput.recorder import LiveRecorder

Loop = Callable[[int], "array.array[int]"]

HERE = Path(__file__).parent
BY_HAND = "file.write(json.dumps(event)), flush"
OURS = "with rec.step(n), one event each"
TAIL = 0.999


class Empty:
    """A context manager that does nothing."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


def empty(steps: int) -> array.array[int]:
    nothing = Empty()
    took = array.array("q", bytes(8 * steps))
    clock = time.perf_counter_ns
    for step in range(steps):
        begun = clock()
        with nothing:
            pass
        took[step] = clock() - begun
    return took


def recorded(rec: goodput.Recorder, coalesce: bool) -> Loop:
    def loop(steps: int) -> array.array[int]:
        if isinstance(rec, LiveRecorder) and not coalesce:
            # As for steps that take 50 ms or more: each one becomes an event of its own.
            rec.steps._shift, rec.steps._mark_next = 0, 1 << 62
        took = array.array("q", bytes(8 * steps))
        clock = time.perf_counter_ns
        for step in range(steps):
            begun = clock()
            with rec.step(step):
                pass
            took[step] = clock() - begun
        return took

    return loop


def by_hand(directory: Path) -> Loop:
    def loop(steps: int) -> array.array[int]:
        took = array.array("q", bytes(8 * steps))
        clock = time.perf_counter_ns
        now = time.time_ns()
        with (directory / "by_hand.jsonl").open("w") as file:
            for step in range(steps):
                event = {"kind": "step", "seq": step, "ts_ns": now, "step": step, "start_ns": now, "end_ns": now}
                begun = clock()
                file.write(json.dumps(event) + "\n")
                file.flush()
                took[step] = clock() - begun
        return took

    return loop


def clock_cost_ns() -> int:
    """What two readings of the clock take by themselves."""
    clock = time.perf_counter_ns
    return int(statistics.median(-(clock() - clock()) for _ in range(10_000)))


def measure(loops: dict[str, Loop], steps: int, rounds: int) -> tuple[dict[str, tuple[float, float]], float]:
    """Median and 99.9th percentile of each loop in microseconds; and the median over the rounds of ours by hand's."""
    every: dict[str, array.array[int]] = {label: array.array("q") for label in loops}
    ratios = []
    cost = clock_cost_ns()
    gc.disable()
    for _ in range(rounds):
        medians = {}
        for label, loop in loops.items():
            took = loop(steps)
            every[label].extend(took)
            medians[label] = max(statistics.median(took) - cost, 1)
        if OURS in medians:
            ratios.append(medians[OURS] / medians[BY_HAND])
        # The recorder is emptied ten times a second; a loop of empty steps would outrun it.
        time.sleep(0.02)
    gc.enable()
    figures = {}
    for label, values in every.items():
        ordered = sorted(values)
        figures[label] = (
            max(ordered[len(ordered) // 2] - cost, 0) / 1e3,
            max(ordered[int(len(ordered) * TAIL)] - cost, 0) / 1e3,
        )
    return figures, statistics.median(ratios)


def peers(python: str, steps: int, busy: bool) -> dict[str, tuple[float, float]]:
    """The same of other recorders; those that are not installed are left out, with a line."""
    figures = {}
    for name in ("ml-goodput-measurement", "nv-one-logger"):
        command = [python, str(HERE / "peer_recorders.py"), name, str(steps), "busy" if busy else "alone"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        except OSError as error:
            print(f"{name} is left out: {error}", file=sys.stderr)
            continue
        if done.returncode:
            print(f"{name} is left out: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
            continue
        for label, (median, tail) in json.loads(done.stdout.splitlines()[-1]).items():
            figures[label] = (median, tail)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--steps", type=int, default=300, help="steps in a round (default 300)")
    parser.add_argument("--rounds", type=int, default=300, help="rounds (default 300)")
    parser.add_argument("--peers", default=str(HERE.parent / ".venv-peer" / "bin" / "python"), metavar="PYTHON")
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        slow = goodput.start(run="bench", spool=directory / "spool")
        fast = goodput.start(run="bench-fast", spool=directory / "spool")
        for step in range(1000):
            with fast.step(step):
                pass
        loops: dict[str, Loop] = {
            "empty context manager": empty,
            "no-op recorder": recorded(goodput.NoopRecorder(), True),
            OURS: recorded(slow, False),
            "with rec.step(n), joined": recorded(fast, True),
            BY_HAND: by_hand(directory),
        }
        alone, ratio = measure(loops, args.steps, args.rounds)
        alone |= peers(args.peers, args.steps * 10, busy=False)
        resting = threading.Event()

        def burn() -> None:
            while not resting.is_set():
                sum(range(100))

        burning = threading.Thread(target=burn, daemon=True)
        burning.start()
        busy, busy_ratio = measure(loops, args.steps, args.rounds)
        resting.set()
        burning.join()
        busy |= peers(args.peers, args.steps * 10, busy=True)
        slow.finish()
        fast.finish()
        lost = {rec.run: rec.guard.lost for rec in (slow, fast) if isinstance(rec, LiveRecorder) and rec.guard.lost}

    print("| a step, µs | alone, median | 99.9 % | beside a busy thread, median | 99.9 % |")
    print("|:---|---:|---:|---:|---:|")
    for label, (median, tail) in alone.items():
        print(f"| {label} | {median:.2f} | {tail:.1f} | {busy[label][0]:.2f} | {busy[label][1]:.1f} |")
    print()
    print(f"Ours by hand's, median of {args.rounds} rounds: **{ratio:.2f}** alone, **{busy_ratio:.2f}** beside a busy")
    print(f"thread (wanted: at most 0.4); 99.9 % of our steps there within {busy[OURS][1] / 1e3:.4f} ms (wanted: 0.1).")
    if lost:
        print(f"Events without room: {lost}")


if __name__ == "__main__":
    main()
