"""What a ledger costs, beside a bare aggregation and beside a peer, and how the cost grows.

    python benchmarks/ledger.py [--quick] [--only wide|long|growth …] [--profile] [--peer-python PATH] [--write]

Every figure comes from a process of its own that opens the database file anew; figures that are compared were measured
in turn, and what counts is the ratio of their medians. The processor's time stands beside the clock's: it suffers less
from what else the machine does.

- `wide`: 1,024 ranks × 10,000 steps, a save by all ranks every 250 steps, two restarts; against a bare maximum and
  median per step of the same table.
- `long`: 1 rank × 1,000,000 steps; against ml-goodput-measurement with the same steps. That package is optional:

      python3 -m venv .venv-peer && .venv-peer/bin/pip install -r benchmarks/peer-requirements.txt

  (or `--peer-python PATH` of an interpreter that has it); where it is not there, that comparison is left out.
- `growth`: four and sixteen times the steps, restarts, rollbacks and spans; the time of each must not grow.

`--profile` lists the seconds of each relation. `--write` puts the result into docs/PERFORMANCE.md.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from document import put_section

HERE = Path(__file__).resolve().parent
HEADING = "## Ledger"
WIDE_TARGET = 8.0
LONG_TARGET = 0.2
GROWTH_TARGET = 1.25
"""Of a time that should not grow at all: what noise may add to it."""
MIB = 1 << 20
LISTED = 12
"""Relations that a profile lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The medians of some equal pieces of work: seconds by the clock and of the processor, and the greatest memory."""

    wall_s: float
    cpu_s: float
    peak_bytes: int
    parts: dict[str, tuple[float, float]]


def child(*command: str | Path) -> dict[str, Any]:
    """What a process of its own measured; empty where it cannot start its work."""
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, text=True, check=True)
    measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return measured


def ours(kind: str, file: Path, *rest: str | Path) -> dict[str, Any]:
    return child(sys.executable, HERE / "measured.py", kind, file, *rest)


def make(folder: Path, name: str, **shape: object) -> Path:
    """A database file with a run of that shape, in place of the one of that name before."""
    file = folder / f"{name}.duckdb"
    file.unlink(missing_ok=True)
    ours("make", file, json.dumps(shape))
    return file


def medians(costs: Sequence[dict[str, Any]]) -> Cost:
    names = costs[0].get("parts", {})
    return Cost(
        wall_s=statistics.median(c["wall_s"] for c in costs),
        cpu_s=statistics.median(c["cpu_s"] for c in costs),
        peak_bytes=max(c["peak_bytes"] for c in costs),
        parts={
            name: (
                statistics.median(c["parts"][name][0] for c in costs),
                statistics.median(c["parts"][name][1] for c in costs),
            )
            for name in names
        },
    )


def profile(title: str, cost: Cost) -> None:
    """Print where a ledger's time went."""
    print(f"\n{title}: {cost.wall_s:.2f} s ({cost.cpu_s:.2f} s of the processor)")
    rest = [cost.wall_s - sum(p[0] for p in cost.parts.values()), cost.cpu_s - sum(p[1] for p in cost.parts.values())]
    ordered = sorted(cost.parts.items(), key=lambda item: -item[1][0])
    for name, (wall_s, cpu_s) in ordered[:LISTED]:
        print(f"  {name:24} {wall_s:8.3f} {cpu_s:8.3f}")
    others = [sum(spent[i] for _, spent in ordered[LISTED:]) for i in range(2)]
    print(f"  {f'{len(ordered[LISTED:])} smaller ones':24} {others[0]:8.3f} {others[1]:8.3f}")
    print(f"  {'outside of relations':24} {rest[0]:8.3f} {rest[1]:8.3f}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One benchmark's table, and whether what was wanted was reached."""

    lines: tuple[str, ...]
    good: bool


def compared(title: str, costs: dict[str, Cost]) -> list[str]:
    lines = [
        f"| {title} | seconds | of the processor | peak memory, MiB |",
        "|:---|---:|---:|---:|",
        *(f"| {name} | {c.wall_s:.2f} | {c.cpu_s:.2f} | {c.peak_bytes / MIB:,.0f} |" for name, c in costs.items()),
    ]
    if len(costs) == 2:
        base, own = costs.values()
        lines.append(
            f"| **ratio** | **{own.wall_s / base.wall_s:.2f}** | {own.cpu_s / base.cpu_s:.2f} "
            f"| {own.peak_bytes / base.peak_bytes:.2f} |"
        )
    return lines


def wide(folder: Path, args: argparse.Namespace) -> Result:
    """Many ranks: against the bare aggregation."""
    ranks, steps = (256, 2000) if args.quick else (1024, 10000)
    shape = {"ranks": ranks, "steps": steps, "restarts": 2, "span_every": 250}
    file = make(folder, "wide", **shape, by_rank=args.by_rank, heartbeats=args.heartbeats)
    bare, ledger = [], []
    for _ in range(args.repeats):
        bare.append(ours("bare", file))
        ledger.append(ours("ledger", file))
    costs = {"bare `max, median` per step": medians(bare), "ledger": medians(ledger)}
    if args.profile:
        profile(f"{ranks:,} ranks × {steps:,} steps", costs["ledger"])
    ratio = costs["ledger"].wall_s / costs["bare `max, median` per step"].wall_s
    said = f"Wanted: a ratio of at most {WIDE_TARGET:.0f}."
    return Result(lines=(*compared(f"{ranks:,} ranks × {steps:,} steps", costs), "", said), good=ratio <= WIDE_TARGET)


def peer_python(told: str | None) -> str | None:
    """An interpreter that has the peer's package, if there is one."""
    kept = HERE.parent / ".venv-peer" / "bin" / "python"
    for candidate in (told, str(kept) if kept.exists() else None, sys.executable):
        if candidate is None:
            continue
        found = subprocess.run([candidate, "-c", "import ml_goodput_measurement.src.goodput"], capture_output=True)
        if found.returncode == 0:
            return candidate
    return None


def long(folder: Path, args: argparse.Namespace) -> Result:
    """Many steps of one rank: against the peer."""
    steps = 100_000 if args.quick else 1_000_000
    file = make(folder, "long", ranks=1, steps=steps)
    starts = folder / "starts.i64"
    ours("starts", file, starts)
    python = peer_python(args.peer_python)
    peer, ledger = [], []
    for _ in range(args.repeats):
        if python is not None:
            peer.append(child(python, HERE / "peer.py", starts))
        ledger.append(ours("ledger", file))
    own = medians(ledger)
    if args.profile:
        profile(f"1 rank × {steps:,} steps", own)
    if python is None:
        said = (
            "ml-goodput-measurement is not installed (`benchmarks/peer-requirements.txt`): no comparison, no verdict."
        )
        return Result(lines=(*compared(f"1 rank × {steps:,} steps", {"ledger": own}), "", said), good=True)
    costs = {"ml-goodput-measurement 0.2.3": medians(peer), "ledger": own}
    base = costs["ml-goodput-measurement 0.2.3"]
    good = own.wall_s <= LONG_TARGET * base.wall_s and own.peak_bytes < base.peak_bytes
    said = (
        f"Wanted: a ratio of at most {LONG_TARGET} of the time, and below 1 of the memory. The peer's log lies in "
        f"its memory ({statistics.median(c['log_bytes'] for c in peer) / MIB:,.0f} MiB before it begins to calculate), "
        "as it does once it has been fetched; filling it is not timed."
    )
    return Result(lines=(*compared(f"1 rank × {steps:,} steps", costs), "", said), good=good)


LONG_RUN = "steps, with rollbacks and spans"
GROWTH: dict[str, tuple[int, dict[str, Any]]] = {
    "steps": (25_000, {"ranks": 4}),
    "restarts": (250, {"ranks": 4, "steps": 24_000}),
    "rollbacks": (250, {"ranks": 4, "steps": 24_000}),
    "spans": (1_000, {"ranks": 4, "steps": 32_000, "span": "evaluation"}),
    LONG_RUN: (6_000, {"ranks": 4, "span": "evaluation"}),
}
"""Per kind: how many at first, and the rest of the run's shape."""
QUICK_PART = 4


def shape_with(kind: str, number: int, rest: dict[str, Any]) -> dict[str, Any]:
    """The shape of a run with so many of a kind; with none, what the others are held against."""
    if kind == "spans":
        return {**rest, "span_every": rest["steps"] // number if number else 0}
    if kind == LONG_RUN:
        return {**rest, "steps": max(number, 10), "span_every": 20 if number else 0, "rollbacks": number // 200}
    return {**rest, kind: max(number, 10) if kind == "steps" else number}


def growth(folder: Path, args: argparse.Namespace) -> Result:
    """One, four and sixteen times as many of one kind: what does each cost beyond the same run without any?"""
    lines = [
        "| of these | seconds | of the processor | each, of 4 times per 1 time | each, of 16 times per 4 times |",
        "|:---|---:|---:|---:|---:|",
    ]
    good = True
    for kind, (least, rest) in GROWTH.items():
        numbers = [factor * (least // QUICK_PART if args.quick else least) for factor in (0, 1, 4, 16)]
        files = [make(folder, f"{number}", **shape_with(kind, number, rest)) for number in numbers]
        rounds = [[ours("ledger", file) for file in files] for _ in range(args.repeats)]
        costs = [medians([costs[i] for costs in rounds]) for i in range(len(files))]
        none, one, four, sixteen = (cost.cpu_s for cost in costs)
        to_four, to_sixteen = ((four - none) / max(one - none, 1e-3) / 4, (sixteen - none) / max(four - none, 1e-3) / 4)
        good = good and to_sixteen <= GROWTH_TARGET
        times = " / ".join(f"{cost.wall_s:.2f}" for cost in costs)
        cpus = " / ".join(f"{cost.cpu_s:.2f}" for cost in costs)
        lines.append(
            f"| {' / '.join(f'{n:,}' for n in numbers)} {kind} | {times} | {cpus} | {to_four:.2f} | {to_sixteen:.2f} |"
        )
        print(lines[-1], flush=True)
        if args.profile:
            profile(f"{numbers[-1]:,} {kind}", costs[-1])
            profile(f"{numbers[-2]:,} {kind}", costs[-2])
    said = (
        f"Wanted: what each costs, in processor time beyond the same run without any, does not grow; {GROWTH_TARGET} "
        "from 4 to 16 times is taken for noise (linear: 1, quadratic: 4; the smallest cost is within the noise of a "
        "run). In the last line a rollback every 200 steps and a span every 20 come with them."
    )
    return Result(lines=(*lines, "", said), good=good)


def machine() -> str:
    """What the figures were measured on."""
    model = platform.machine()
    cpus = Path("/proc/cpuinfo")
    if cpus.exists():
        names = [line.partition(":")[2].strip() for line in cpus.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    commit = subprocess.run(
        ["git", "-C", str(HERE), "describe", "--always", "--dirty"], capture_output=True, text=True
    ).stdout.strip()
    today = datetime.datetime.now(tz=datetime.UTC).date()
    return f"{os.cpu_count()} cores ({model}), {today}, commit {commit or 'unknown'}"


def main() -> int:
    benches = {"wide": wide, "long": long, "growth": growth}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes: whether it works, and a first impression")
    parser.add_argument("--only", nargs="+", choices=benches, default=list(benches))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--profile", action="store_true", help="list the seconds of each relation")
    parser.add_argument("--by-rank", action="store_true", help="wide: rows lie rank after rank, not in order of time")
    parser.add_argument("--heartbeats", action="store_true", help="wide: with a heartbeat per rank every 5 s")
    parser.add_argument("--peer-python", help="an interpreter that has ml-goodput-measurement")
    parser.add_argument("--write", action="store_true", help="put the result into docs/PERFORMANCE.md")
    args = parser.parse_args()
    loads = [os.getloadavg()[0]]
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as name:
        for bench in args.only:
            results.append(benches[bench](Path(name), args))
            loads.append(os.getloadavg()[0])
            print("\n" + "\n".join(results[-1].lines) + "\n", flush=True)
    introduction = (
        "`benchmarks/ledger.py`: from the landed tables to the whole report, each time in a new process on a file that "
        f"it opens, medians of {args.repeats} runs in turn. {machine()}; load during the runs "
        f"{min(loads):.1f} to {max(loads):.1f}."
    )
    print(introduction)
    if args.write:
        put_section("\n".join([HEADING, "", introduction, *(line for r in results for line in ("", *r.lines)), ""]))
    # The small sizes are ruled by what a report costs at least: no verdict on them.
    return 0 if args.quick or all(result.good for result in results) else 1


if __name__ == "__main__":
    raise SystemExit(main())
