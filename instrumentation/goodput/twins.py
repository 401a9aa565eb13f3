"""A second live launch under a run's name: told while it can still be stopped, not only by the ledger afterwards."""

from __future__ import annotations

import json
from pathlib import Path

from goodput.liveness import SUFFIX, is_alive, is_own

_READ_BYTES = 65536


def find_twin(directory: Path, run: str, rank: int) -> int | None:
    """The pid of another living process of this node that records the same rank of the same run; None for none.

    Raises OSError when the spool cannot be read. Our own process's locks are left alone: whoever closes a descriptor
    of one gives it up.
    """
    for path in sorted(directory.glob(f"r{rank}-*{SUFFIX}")):
        if is_own(path):
            continue
        try:
            with path.open("rb") as file:
                found = json.loads(file.read(_READ_BYTES))
            if found["run"] == run and int(found["rank"]) == rank and is_alive(path):
                return int(found["pid"])
        except (OSError, ValueError, KeyError, TypeError):
            # It has just gone, or is no lock of ours.
            continue
    return None


def twin_warning(run: str, rank: int, pid: int) -> str:
    """What to say of it."""
    return (
        f"process {pid} of this node records run {run!r} as rank {rank} too: two launches under one name, the later "
        f"of which is told as {run}~2. Stop one of them, or give it a name of its own"
    )
