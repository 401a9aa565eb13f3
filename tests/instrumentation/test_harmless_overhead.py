"""Short form of benchmarks/overhead.py: the same two trainings in turn, for a few steps."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from recorder_scripts import environment

OVERHEAD = Path(__file__).parents[2] / "benchmarks" / "overhead.py"
PAIRS, WARM_UP = 20, 20


@pytest.mark.soak
def test_training_with_the_callback_is_the_same_training(spool: Path) -> None:
    pytest.importorskip("torch")
    done = subprocess.run(
        [sys.executable, str(OVERHEAD), "--pairs", str(PAIRS), "--step-ms", "15", "--threads", "1", "--json"],
        env=environment(spool),
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["weights_identical"]
    assert found["recorded_steps"] == PAIRS + WARM_UP, "each watched step, and no other"
    # So few steps on a busy machine tell no half per cent; a callback that waits for something each step costs this.
    assert found["time_low_ratio"] < 0.5
