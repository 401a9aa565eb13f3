"""Holds what the ledger says of slow ranks against the delays that were put into a real training."""

from __future__ import annotations

import json
import socket
import statistics
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import duckdb
from adapter_truth import ledger
from recorder_scripts import environment

from goodput_analytics import report

HERE = Path(__file__).parent
S = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What came out of one cell.

    Attributes:
        cell: its name.
        right_ratio: share of the delayed steps that the ledger charges to the right rank; None without a delay.
        slowest: the rank with the greatest median lateness over the median rank's.
        excess_s: by how much.
        named: ranks that the report names.
        charged_ratio: the loss charged to stragglers, over what was injected; None without a delay.
        waited_s: what was charged to stragglers, per step.
        findings: codes of the report's findings.
    """

    cell: str
    right_ratio: float | None
    slowest: int
    excess_s: float
    named: tuple[int, ...]
    charged_ratio: float | None
    waited_s: float
    findings: tuple[str, ...]

    def line(self) -> str:
        right = "–" if self.right_ratio is None else f"{100 * self.right_ratio:.0f} %"
        charged = "–" if self.charged_ratio is None else f"{100 * self.charged_ratio:.1f} %"
        named = ", ".join(map(str, self.named)) or "nobody"
        kind, place, ms, _ = self.cell.split(":")
        most = f"{self.slowest} (+{1e3 * self.excess_s:.1f} ms)"
        return f"| {kind} | {place} | {ms} | {right} | {most} | {named} | {charged} |"


def run_cells(cells: list[str], folder: Path, spool: Path, ranks: int = 4) -> dict[str, list[dict[str, float]]]:
    """Train them all; by cell, what each rank was delayed in each step."""
    launch("straggler_training.py", [str(folder), *cells], spool, ranks, timeout_s=60 + 8.0 * len(cells))
    # Each run balances, or the report fails; one of them through the commands that a user has.
    ledger(spool, cells[0])
    told = [json.loads((folder / f"delays-{rank}.json").read_text()) for rank in range(ranks)]
    return {cell: [one[cell] for one in told] for cell in cells}


def launch(script: str, arguments: list[str], spool: Path, ranks: int, timeout_s: float) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    group = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(
            [sys.executable, str(HERE / script), *arguments],
            env=environment(spool, RANK=str(rank), LOCAL_RANK=str(rank), GOODPUT_JOB="job", **group),
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    try:
        said = [one.communicate(timeout=timeout_s)[1] for one in started]
    finally:
        for one in started:
            one.kill()
            one.wait()
    assert [one.returncode for one in started] == [0] * ranks, said


def judge(cell: str, delays: list[dict[str, float]], spool: Path) -> Judged:
    """Ask the ledger about a cell that has run."""
    ranks = len(delays)
    with closing(duckdb.connect(str(spool.parent / "run.duckdb"), read_only=True)) as con:
        told = report(con, cell)
        steps = con.execute(
            "SELECT step, latest_rank, straggler_ns, c FROM gp_window_parts WHERE idx > 0 ORDER BY step"
        ).fetchall()
        late = con.execute("SELECT step, rank, late_ns FROM gp_measures WHERE late_ns IS NOT NULL").fetchall()
    by_step: dict[int, dict[int, int]] = {}
    for step, rank, late_ns in late:
        by_step.setdefault(step, {})[rank] = late_ns
    assert len(by_step) >= len(steps) and all(len(by_step[step]) == ranks for step, *_ in steps), "not all told"
    # Short steps are told several at a time: what was injected into each of them, and then per step.
    told_c = {step: c for step, *_, c in steps}
    injected = {
        step: [sum(one.get(str(each), 0.0) for each in range(step - c + 1, step + 1)) for one in delays]
        for step, c in told_c.items()
    }
    delayed = [step for step, waits in injected.items() if max(waits) > 0]
    # Several that are slow in one step are all right.
    right = [rank for step, rank, *_ in steps if step in delayed and injected[step][rank] > 0]
    peers = {rank: range(ranks) for rank in range(ranks)}
    if cell.startswith("staged"):
        half = ranks // 2
        peers = {rank: range(half) if rank < half else range(half, ranks) for rank in range(ranks)}
    over = {
        rank: statistics.median(
            (by_step[step][rank] - statistics.median_low(by_step[step][peer] for peer in peers[rank])) / c
            for step, c in told_c.items()
        )
        for rank in range(ranks)
    }
    slowest = max(over, key=lambda rank: over[rank])
    charged_ns = sum(straggler_ns for _, _, straggler_ns, _ in steps)
    lost_s = sum(max(waits) - min(waits) for waits in injected.values())
    return Judged(
        cell=cell,
        right_ratio=len(right) / len(delayed) if delayed else None,
        slowest=slowest,
        excess_s=over[slowest] / S,
        named=tuple(slow.rank for slow in told.stragglers),
        charged_ratio=charged_ns / S / lost_s if lost_s else None,
        waited_s=charged_ns / S / sum(told_c.values()),
        findings=tuple(finding.code for finding in told.findings),
    )
