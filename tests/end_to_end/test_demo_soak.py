"""The whole demonstration, in each size that it takes: every figure must agree with what was done."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")


@pytest.mark.soak
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_every_figure_agrees_in_a_demonstration_with_all_faults(ranks: int, tmp_path: Path) -> None:
    """Two to three minutes each on two cores. A failure would mean that the ledger is not what really happened."""
    keep = tmp_path / "demo"
    done = subprocess.run(
        [sys.executable, "-m", "goodput", "demo", "--ranks", str(ranks), "--keep", str(keep)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "agree with what was done" in done.stdout
