"""Three ranks, one of which comes to a stop: it is named while the others still wait, and after they have given up."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pytest
from hang_training import CULPRIT, LONG_S
from recorder_scripts import environment
from straggler_truth import HERE

from goodput.cli import main
from goodput_analytics import Report, Settings, report

S = 1_000_000_000
RANKS = 3
QUICK = Settings(hang_floor_ns=2 * S, span_floor_ns=3 * S)
"""Limits of seconds, so as not to wait for the real ones of 10 s and a minute."""


@dataclass
class Watched:
    """What was said of one training: while it stood still, and after it had ended."""

    live: Report
    after: Report


def watch(place: str, how: str, timeout_s: float, folder: Path, settings: Settings) -> Watched:
    """Train, look while the others wait, and again when they have raised and the launcher has ended the rest."""
    spool = folder / "spool"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    group = {"WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(HERE / "hang_training.py"), place, how, str(timeout_s)],
            env=environment(
                spool, RANK=str(rank), LOCAL_RANK=str(rank), GOODPUT_JOB="job", GOODPUT_HEARTBEAT_S="0.5", **group
            ),
            stderr=subprocess.DEVNULL,
        )
        for rank in range(RANKS)
    ]
    run = f"{place}-{how}"
    try:
        live = None
        deadline = time.monotonic() + 60
        others = [one for rank, one in enumerate(ranks) if rank != CULPRIT]
        while all(one.poll() is None for one in others) and time.monotonic() < deadline:
            time.sleep(0.5)
            found = look(run, spool, folder / "live.duckdb", settings)
            if found is not None and (names(found) or place == "long") and found.state != "finished":
                live = found
                if place != "long":
                    break
                assert names(found) == (), found.findings
        assert live is not None, "nothing was said while the others waited"
        for one in others:
            one.wait(60)
    finally:
        for one in ranks:
            one.send_signal(signal.SIGCONT)
            one.kill()
            one.wait()
    after = look(run, spool, folder / "after.duckdb", settings)
    assert after is not None
    return Watched(live=live, after=after)


def look(run: str, spool: Path, database: Path, settings: Settings) -> Report | None:
    if not spool.exists() or main(["ingest", str(spool), "--db", str(database)]) != 0:
        return None
    with closing(duckdb.connect(str(database), read_only=True)) as con:
        return report(con, run, settings=settings) if con.execute("SELECT 1 FROM runs").fetchall() else None


def names(found: Report) -> tuple[int, ...]:
    """The ranks that a live hang's finding tells of."""
    for finding in found.findings:
        if finding.code in ("hang", "waited_for"):
            return tuple(rank for rank in range(RANKS) if f"Rank {rank} " in finding.evidence)
    return ()


def check(place: str, how: str, timeout_s: float, found: Watched) -> None:
    if place == "long":
        assert found.after.state == "finished" and found.after.incidents == ()
        assert found.after.gpu_s["hang"] == 0
        assert found.after.gpu_s["evaluation"] >= RANKS * LONG_S * 0.95
        return
    assert names(found.live) == (CULPRIT,), (place, how, found.live.findings)
    assert found.live.attempts[0].end_cause == "live"
    assert found.live.state == ("running" if place == "start" else "hung")
    (incident,) = found.after.incidents
    # Before the first step nothing is called a hang, nor a span that an exception ends: its end is a sign of progress.
    # Of a crash the one that raised first is suspected.
    crash = place in ("start", "save", "evaluation")
    assert incident.cause == ("crash" if crash else "hang")
    assert crash or incident.suspect_ranks == (CULPRIT,), (place, how, incident)
    if not crash:
        assert incident.detection_s == pytest.approx(timeout_s, abs=3)


def test_a_rank_that_comes_to_a_stop_is_named_live_and_after_the_abort(tmp_path: Path) -> None:
    """The short form: in a backward pass."""
    check("backward", "stuck", 6, watch("backward", "stuck", 6, tmp_path, QUICK))


PLACES = ("start", "data", "forward", "backward", "collective", "save", "evaluation")


@pytest.mark.soak
def test_the_whole_matrix_of_stops(tmp_path: Path) -> None:
    """Each place, stuck and stopped, and an evaluation by one rank that takes longer than a step may: six minutes.

    Should it fail, a victim is named for the culprit, or a rank that does what it said it does. Prints a line for each.
    """
    cells = [
        (place, how) for place in PLACES for how in ("stuck", "stopped") if (place, how) != ("collective", "stuck")
    ]
    for place, how in [*cells, ("long", "stuck")]:
        settings = Settings(hang_floor_ns=2 * S) if place == "long" else QUICK
        found = watch(place, how, 11, tmp_path / f"{place}-{how}", settings)
        said = next((f.evidence for f in found.live.findings if f.code in ("hang", "waited_for")), "nobody")
        after = [one.suspect_ranks for one in found.after.incidents]
        print(f"| {place} | {how} | {said} | {after} |", flush=True)
        check(place, how, 11, found)
