"""What a recorded step costs the training thread, beside what one would write by hand.

    python benchmarks/recorder.py [--steps N] [--rounds N]

Each round times all loops one after the other in turn; printed are the medians over the rounds, in microseconds per
step, and their ratio to a `with` over an empty context manager, and to a flushed `json.dumps` of the same event.
Medians of interleaved rounds, so that a busy machine weighs on all of them alike.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import goodput
from goodput.recorder import LiveRecorder


class Empty:
    """A context manager that does nothing."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


def empty(steps: int) -> float:
    nothing = Empty()
    begun = time.perf_counter_ns()
    for _ in range(steps):
        with nothing:
            pass
    return (time.perf_counter_ns() - begun) / steps


def recorded(rec: goodput.Recorder, steps: int, coalesce: bool) -> float:
    if isinstance(rec, LiveRecorder) and not coalesce:
        # As for steps that take 50 ms or more: each one becomes an event of its own.
        rec.steps._shift, rec.steps._mark_next = 0, 1 << 62
    begun = time.perf_counter_ns()
    for step in range(steps):
        with rec.step(step):
            pass
    return (time.perf_counter_ns() - begun) / steps


def by_hand(directory: Path, steps: int) -> float:
    with (directory / "by_hand.jsonl").open("w") as file:
        begun = time.perf_counter_ns()
        for step in range(steps):
            start = time.time_ns()
            end = time.time_ns()
            event = {"kind": "step", "seq": step, "ts_ns": end, "step": step, "start_ns": start, "end_ns": end}
            file.write(json.dumps(event) + "\n")
            file.flush()
        return (time.perf_counter_ns() - begun) / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--steps", type=int, default=300, help="steps in a round (default 300)")
    parser.add_argument("--rounds", type=int, default=200, help="rounds (default 200)")
    parser.add_argument("--busy", action="store_true", help="beside a second busy Python thread")
    args = parser.parse_args()

    if args.busy:

        def burn() -> None:
            while True:
                sum(range(100))

        threading.Thread(target=burn, daemon=True).start()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        rec = goodput.start(run="bench", spool=directory / "spool")
        loops: dict[str, Callable[[], float]] = {
            "empty context manager": lambda: empty(args.steps),
            "no-op recorder": lambda: recorded(goodput.NoopRecorder(), args.steps, True),
            "with rec.step(n), one event each": lambda: recorded(rec, args.steps, False),
            "with rec.step(n), coalesced": lambda: recorded(fast, args.steps, True),
            "json.dumps, write, flush": lambda: by_hand(directory, args.steps),
        }
        fast = goodput.start(run="bench-fast", spool=directory / "spool")
        for step in range(1000):
            with fast.step(step):
                pass
        figures: dict[str, list[float]] = {label: [] for label in loops}
        for _ in range(args.rounds):
            for label, loop in loops.items():
                figures[label].append(loop())
            # The recorder is emptied ten times a second; a loop of empty steps would outrun it.
            time.sleep(0.02)
        rec.finish()
        fast.finish()
        lost = {r.run: r.guard.lost for r in (rec, fast) if isinstance(r, LiveRecorder) and r.guard.lost}
    medians = {label: statistics.median(values) for label, values in figures.items()}
    base, hand = medians["empty context manager"], medians["json.dumps, write, flush"]
    print(f"{'loop':36}{'µs/step':>9}{'x empty':>9}{'x by hand':>11}")
    for label, median in medians.items():
        print(f"{label:36}{median / 1000:9.3f}{median / base:9.1f}{median / hand:11.2f}")
    if lost:
        print(f"events without room: {lost}")


if __name__ == "__main__":
    main()
