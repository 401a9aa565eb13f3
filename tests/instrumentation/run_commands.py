"""Runs commands under `goodput run`, and beside it, for tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recorder_scripts import SOURCES

_START = "import sys; sys.path.insert(0, {!r}); from goodput.cli import main; sys.exit(main(['run', *sys.argv[1:]]))"
GOODPUT_RUN = [sys.executable, "-E", "-c", _START.format(SOURCES)]
"""What a test puts on PYTHONPATH is for the command alone, hence `-E`."""


def plain_environment(spool: Path, **more: str) -> dict[str, str]:
    """As for a training whose environment knows nothing of us, but for the spool."""
    left_out = ("GOODPUT_", "_GOODPUT_", "TORCHELASTIC_", "PYTHONPATH")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    return {**kept, "GOODPUT_SPOOL": str(spool), "OMP_NUM_THREADS": "1", **more}


def run_under(
    command: Sequence[str], spool: Path, *options: str, environment: dict[str, str] | None = None, **how: Any
) -> subprocess.CompletedProcess[bytes]:
    """Run a command under `goodput run` to its end, with its output in pipes unless told otherwise."""
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "timeout": 100, **how}
    return subprocess.run(
        [*GOODPUT_RUN, *options, "--", *command], env=plain_environment(spool, **(environment or {})), **how
    )


def run_alone(
    command: Sequence[str], spool: Path, *, environment: dict[str, str] | None = None, **how: Any
) -> subprocess.CompletedProcess[bytes]:
    """Run the same command without us."""
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "timeout": 100, **how}
    return subprocess.run(list(command), env=plain_environment(spool, **(environment or {})), **how)
