"""The demonstration itself, in short: a real training, really killed; and that nothing of it is ever left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import goodput
import goodput_analytics
import goodput_collector
from goodput.spool import recover_dead
from goodput_collector.demo import DemoOptions, launcher, run_demo
from goodput_collector.demo.sabotage import DIR_VARIABLE

pytest.importorskip("torch")

ROOTS = [str(Path(str(p.__file__)).parents[1]) for p in (goodput, goodput_collector, goodput_analytics)]
SCRIPT = """
import signal, sys
from pathlib import Path
from goodput.spool import recover_dead
from goodput_collector.demo import DemoOptions, run_demo
seconds, ranks, faults, keep = sys.argv[1:]
faults = tuple(faults.split(","))
signal.signal(signal.SIGINT, signal.default_int_handler)  # the tests may run where it is ignored
sys.exit(run_demo(DemoOptions(seconds=float(seconds), ranks=int(ranks), faults=faults, keep=Path(keep))))
"""


def start(keep: Path, seconds: float, ranks: int, faults: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(seconds), str(ranks), faults, str(keep)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(ROOTS), "COLUMNS": "120"},
    )


def left_behind(keep: Path) -> list[int]:
    """Processes that still run for this demonstration: they carry its folder in their environment."""
    mark = f"{DIR_VARIABLE}={keep}\0".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def wait_for(keep: Path, pattern: str, count: int, within_s: float = 60) -> None:
    deadline_s = time.monotonic() + within_s
    while len(list(keep.glob(pattern))) < count:
        assert time.monotonic() < deadline_s, f"no {count} {pattern} within {within_s} s"
        time.sleep(0.05)


@pytest.mark.timeout(240)
def test_a_killed_rank_is_in_the_ledger_as_it_was_killed(tmp_path: Path) -> None:
    keep = tmp_path / "demo"
    process = start(keep, seconds=20, ranks=2, faults="kill")
    output, _ = process.communicate(timeout=200)
    assert process.returncode == 0, output
    assert "kills rank 1 (SIGKILL)" in output
    assert "kill: steps lost" in output and "OFF" not in output
    assert "goodput report demo --db" in output
    assert (keep / "truth.jsonl").exists() and (keep / "goodput.duckdb").exists()
    assert left_behind(keep) == []


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGINT, 130),
        pytest.param(signal.SIGTERM, 143, marks=pytest.mark.soak),
        pytest.param(signal.SIGKILL, -signal.SIGKILL, marks=pytest.mark.soak),
    ],
)
def test_nothing_is_left_when_it_is_interrupted(tmp_path: Path, number: signal.Signals, code: int) -> None:
    keep = tmp_path / "demo"
    process = start(keep, seconds=60, ranks=2, faults="none")
    try:
        wait_for(keep, "truth/rank-*.jsonl", 2)
        assert len(left_behind(keep)) >= 3  # torchrun and its workers: so this test would see them
        process.send_signal(number)
        output, _ = process.communicate(timeout=30)
        assert process.returncode == code, output
        deadline_s = time.monotonic() + 5
        while left_behind(keep) and time.monotonic() < deadline_s:
            time.sleep(0.05)
        assert left_behind(keep) == []
    finally:
        process.kill()
        for pid in left_behind(keep):
            os.kill(pid, signal.SIGKILL)
        # Or the memory of those who were killed stays until the next boot. A lock is given back late in a death.
        deadline_s = time.monotonic() + 5
        while list((keep / "spool").glob("*.lock")) and time.monotonic() < deadline_s:
            recover_dead(keep / "spool")
            time.sleep(0.05)


@pytest.mark.timeout(120)
def test_a_training_that_fails_shows_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "train.py"
    broken.write_text("raise SystemExit('the fuse is burnt')")
    monkeypatch.setattr(launcher, "_SCRIPT", broken)
    assert run_demo(DemoOptions(ranks=1, faults=(), keep=tmp_path / "demo")) == 1
    output, errors = capfd.readouterr()
    assert "the fuse is burnt" in output
    assert "torchrun ended with exit code 1" in errors


def test_a_folder_with_something_in_it_is_not_used(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").write_text("precious")
    assert run_demo(DemoOptions(keep=tmp_path)) == 2
    assert "is not empty" in capfd.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_without_torch_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert run_demo(DemoOptions()) == 1
    errors = capfd.readouterr().err
    assert errors.count("\n") == 1 and "goodput-ledger[collector,torch]" in errors
