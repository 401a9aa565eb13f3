"""Dumps of torch's flight recorder tell who did not reach the collective that the others wait in."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from goodput_analytics.flight import FlightError, Waiting, read_dump, waiting
from goodput_collector.commands import COMMANDS

SCRIPT = """
import os, sys, time
import torch, torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace
dist.init_process_group("gloo")
pair = dist.new_group([0, 1])
x = torch.ones(4)
for _ in range(3):
    dist.all_reduce(x)
dist.all_reduce(x, group=pair) if dist.get_rank() < 2 else None
if dist.get_rank() != 1:
    dist.all_reduce(x, async_op=True)
    time.sleep(0.5)
open(f"{sys.argv[1]}/trace_rank_{dist.get_rank()}", "wb").write(_dump_fr_trace())
os._exit(0)
"""


def dump(folder: Path, rank: int, last: int, *, as_json: bool = False) -> None:
    """The dump of one of four ranks, which entered `last` collectives and sent something after them."""
    entry: dict[str, Any] = {
        "process_group": ("0", "default_pg"),
        "collective_seq_id": last,
        "profiling_name": "nccl:all_reduce",
        "is_p2p": False,
    }
    sent = {**entry, "collective_seq_id": last + 9, "is_p2p": True}
    told = {"version": "2.10", "pg_config": {"0": {"name": "0", "ranks": "[0, 1, 2, 3]"}}, "entries": [entry, sent]}
    (folder / f"nccl_trace_rank_{rank}").write_bytes(json.dumps(told).encode() if as_json else pickle.dumps(told))


def test_the_missing_rank_of_a_real_job_is_named(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(SCRIPT)
    dumps = tmp_path / "dumps"
    dumps.mkdir()
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3", script, dumps]
    there = {**os.environ, "TORCH_FR_BUFFER_SIZE": "100"}
    subprocess.run(command, check=True, capture_output=True, env=there, timeout=90)
    (found,) = waiting(read_dump(path) for path in dumps.iterdir())
    assert (found.operation, found.number, found.waiting, found.unknown) == ("gloo:all_reduce", 4, (0, 2), ())
    assert found.missing == ((1, 3),)


def test_who_is_behind_and_who_left_nothing_are_told_apart(tmp_path: Path) -> None:
    for rank, last in ((0, 7), (1, 5), (2, 7)):
        dump(tmp_path, rank, last, as_json=rank == 2)
    assert waiting(read_dump(path) for path in tmp_path.iterdir()) == [
        Waiting(group="0", number=7, operation="nccl:all_reduce", waiting=(0, 2), missing=((1, 5),), unknown=(3,))
    ]
    shown = CliRunner().invoke(COMMANDS, ["flight", str(tmp_path)])
    assert shown.exit_code == 0
    assert shown.output.splitlines() == [
        "group 0: ranks 0, 2 in nccl:all_reduce (collective 7)",
        "  missing: rank 1, which last entered collective 5",
        "  left no dump: rank 3",
    ]


def test_where_all_are_there_nobody_is_named(tmp_path: Path) -> None:
    for rank in range(4):
        dump(tmp_path, rank, 7)
    shown = CliRunner().invoke(COMMANDS, ["flight", str(tmp_path)])
    assert shown.output == "4 ranks entered the same collectives: none is missing.\n"


def test_odd_ranks_and_entries_of_a_dump_are_passed_over(tmp_path: Path) -> None:
    odd = {"pg_config": {"0": {"ranks": ["x", None, 1]}, "1": 7}, "entries": [3, {"collective_seq_id": "x"}, {"pg": 1}]}
    (tmp_path / "trace_rank_0").write_bytes(pickle.dumps(odd))
    assert waiting([read_dump(tmp_path / "trace_rank_0")]) == []
    dump(tmp_path, 1, 2)
    (found,) = waiting(read_dump(path) for path in sorted(tmp_path.iterdir()))
    assert (found.waiting, found.missing, found.unknown) == ((1,), ((0, 0),), (2, 3))


class Evil:
    """What runs something when it is unpickled without care."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.putenv, ("GOODPUT_WAS_HERE",)


@pytest.mark.parametrize("data", [pickle.dumps(Evil()), b"", b"\x80\x04.", b"[1]", b"{", pickle.dumps({"entries": 3})])
def test_what_is_no_dump_is_refused_in_a_line_and_runs_nothing(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "trace_rank_0"
    file.write_bytes(data)
    with pytest.raises(FlightError, match="trace_rank_0 is no dump"):
        read_dump(file)
    shown = CliRunner().invoke(COMMANDS, ["flight", str(file), str(tmp_path / "none")])
    assert shown.exit_code == 1 and "no dump was read" in shown.output
