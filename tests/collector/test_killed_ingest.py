"""An ingest that is killed anywhere goes on where it stopped: nothing is lost, nothing is doubled."""

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import made_events
import pytest

import goodput_analytics
from goodput_collector.database import open_database
from goodput_collector.landing import ingest_files

# Small slices: many transactions, so that a kill meets one of them half done.
INGEST = """
import sys
from pathlib import Path
from goodput_collector.database import open_database
from goodput_collector.landing import Landing
connection = open_database(sys.argv[1])
print("open", flush=True)
Landing(connection, slice_bytes=1 << 15).take([Path(name) for name in sys.argv[2:]])
"""


def long_life(tmp_path: Path, steps: int) -> Path:
    events = made_events.attempt(
        0, started_s=0, first_step_s=10, steps=range(1, steps + 1), resumed=None, save_after=steps // 2,
        stop_s=13 + steps, reason="finished",
    )  # fmt: skip
    return made_events.write(tmp_path / "long.jsonl", events)


def ingest_until(db: Path, file: Path, after_s: float) -> bool:
    """Begin an ingest and kill it so long after it opened the database; True when it was done before."""
    with subprocess.Popen(
        [sys.executable, "-c", INGEST, str(db), str(file)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "open\n"
        try:
            return process.wait(after_s) == 0
        except subprocess.TimeoutExpired:
            process.kill()
            return False


def figures(db: Path) -> str:
    connection = open_database(db, read_only=True)
    try:
        return json.dumps(goodput_analytics.report(connection, "by-hand").as_json(), sort_keys=True)
    finally:
        connection.close()


def kill_and_go_on(tmp_path: Path, *, steps: int, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    file = long_life(tmp_path, steps)
    whole, killed = tmp_path / "whole.duckdb", tmp_path / "killed.duckdb"
    ingest_files(whole, [file])
    right = figures(whole)

    # How long it takes undisturbed says when a kill can meet it.
    begun = time.monotonic()
    assert ingest_until(tmp_path / "timed.duckdb", file, 600)
    usual_s = time.monotonic() - begun
    met = 0
    while met < kills:
        if ingest_until(killed, file, chance.uniform(0, usual_s / 2)):
            assert figures(killed) == right, f"seed {seed}, after {met} kills"
            killed.unlink()
        else:
            met += 1
    ingest_files(killed, [file])
    assert figures(killed) == right, f"seed {seed}, after {met} kills"


def test_an_ingest_killed_a_few_times_has_the_same_figures(tmp_path: Path) -> None:
    kill_and_go_on(tmp_path, steps=2_000, kills=2, seed=11)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(4))
def test_an_ingest_killed_a_hundred_times_has_the_same_figures(seed: int, tmp_path: Path) -> None:
    """About two minutes each on two cores. A difference would mean an offset and its rows were not kept as one."""
    kill_and_go_on(tmp_path, steps=20_000, kills=25, seed=seed)
