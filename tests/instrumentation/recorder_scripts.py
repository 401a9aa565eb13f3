"""Runs a training script in a process of its own, which may end as it likes."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

SOURCES = str(Path(__file__).parents[2] / "instrumentation")


def environment(spool: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GOODPUT_", "TORCHELASTIC_"))}
    path = os.pathsep.join(filter(None, [SOURCES, os.environ.get("PYTHONPATH", "")]))
    # Quiet, so that what a script says is all that there is.
    return {**kept, "PYTHONPATH": path, "GOODPUT_SPOOL": str(spool), "GOODPUT_SUMMARY": "0", **more}


def run_script(script: str, spool: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a script to its end; it has `goodput` imported."""
    return subprocess.run(
        [sys.executable, "-c", "import goodput, os, sys, time\n" + textwrap.dedent(script)],
        env=environment(spool, **more),
        capture_output=True,
        text=True,
        timeout=60,
    )


def begin_script(script: str, spool: Path, **more: str) -> subprocess.Popen[str]:
    """Start a script that the test ends."""
    return subprocess.Popen(
        [sys.executable, "-c", "import goodput, os, sys, time\n" + textwrap.dedent(script)],
        env=environment(spool, **more),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
