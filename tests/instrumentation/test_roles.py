"""Roles of ranks, from a device mesh or told, and that they are compared within them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from adapter_truth import Told, ledger
from recorder_scripts import begin_script
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore

import goodput.torch
from goodput._roles import role


@pytest.fixture
def mesh() -> Iterator[Any]:
    """As rank 6 of 16 would see it, with collectives that do nothing."""
    dist.init_process_group("fake", store=FakeStore(), rank=6, world_size=16)
    yield init_device_mesh("cpu", (2, 4, 2), mesh_dim_names=("pp", "dp", "ep"))
    dist.destroy_process_group()


def test_a_pipelines_stage_is_a_role_and_what_else_is_said_to_be(mesh: Any) -> None:
    assert role(mesh) == "pp=0"
    assert role(mesh, "ep", "pp") == "ep=0,pp=0"
    assert role(mesh["dp"]) == "pp=0", "a slice knows what it was cut from"
    assert role(mesh, "dp") == "dp=3"
    flat = init_device_mesh("cpu", (16,), mesh_dim_names=("dp",))
    assert role(flat) is None
    assert role(init_device_mesh("cpu", (16, 1), mesh_dim_names=("dp", "pp"))) is None, "one stage is none"
    assert role(init_device_mesh("cpu", (4, 4))) is None


@pytest.mark.parametrize("how", ["sharded", "mesh", "word", "none"])
def test_a_watch_tells_the_group(how: str, mesh: Any, spool: Path) -> None:
    model = nn.Linear(8, 8)
    if how == "sharded":
        fully_shard(model, mesh=mesh["dp"])
    group = {"mesh": mesh, "word": 3}.get(how)
    rec = goodput.torch.watch(model, torch.optim.SGD(model.parameters(), lr=0.1), run="roles", group=group)
    rec.finish()
    starts = Told(spool).of("start")
    wanted = {"sharded": "pp=0", "mesh": "pp=0", "word": "3", "none": None}[how]
    assert starts[-1].get("group") == wanted
    assert len(starts) == (1 if how == "none" else 2)
    if len(starts) == 2:
        again = {name: value for name, value in starts[1].items() if name not in ("seq", "ts_ns", "group")}
        assert again == {name: value for name, value in starts[0].items() if name not in ("seq", "ts_ns")}


def test_a_mesh_that_cannot_be_read_is_harmless(spool: Path, swallowed: list[str]) -> None:
    class Odd:
        mesh_dim_names = ("pp",)

        def _get_root_mesh(self) -> None:
            return None

        def get_coordinate(self) -> list[int]:
            raise RuntimeError("no group")

    rec = goodput.torch.watch(nn.Linear(1, 1), run="odd", group=Odd())
    assert rec.active
    rec.finish()
    assert swallowed == ["the ranks that do the same work could not be told"]
    swallowed.clear()


def test_uneven_groups_that_are_told_late_are_no_stragglers(spool: Path) -> None:
    ranks = [
        begin_script(
            f"""
            rec = goodput.start("late", job="j")
            rec.in_group({rank} // 2)
            for step in range(1, 31):
                rec.begin_step(step)
                time.sleep({0.02 if rank > 1 else 0.01} + {0.02 if rank == 1 else 0})
                rec.own_work_done()
                rec.end_step()
            rec.finish()
            """,
            spool,
            RANK=str(rank),
            WORLD_SIZE="4",
        )
        for rank in range(4)
    ]
    assert [rank.wait(60) for rank in ranks] == [0] * 4
    for rank in ranks:
        rank.communicate()
    report = ledger(spool, "late")
    assert [slow["rank"] for slow in report["stragglers"]] == [1]
