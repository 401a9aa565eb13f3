"""The ranks of one life of a process group agree on a token, and never on an earlier life's."""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import sys
import time
import types
from pathlib import Path
from typing import Any

import pytest
from recorder_reading import of_rank, read_events
from recorder_scripts import environment

from goodput.attempt import LIMIT_NS, Agreement, Joined
from goodput.guard import Guard

SECOND_NS = 1_000_000_000


class Store:
    """A key-value store as torch's, that outlives process groups. A `get` that would wait is an error here."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}

    def set(self, key: str, value: str | bytes) -> None:
        self.values[key] = value.encode() if isinstance(value, str) else value

    def get(self, key: str) -> bytes:
        return self.values[key]

    def check(self, keys: list[str]) -> bool:
        return all(key in self.values for key in keys)


class World:
    """A process group as one rank sees it, put in the place of torch.distributed for the time of a poll."""

    def __init__(self, store: Store, rank: int, world_size: int) -> None:
        self.rank = rank
        self.agreement = Agreement(Guard())
        self.torch: Any = types.SimpleNamespace(
            is_initialized=lambda: self.torch.group.WORLD is not None,
            get_rank=lambda: rank,
            get_world_size=lambda: world_size,
            distributed_c10d=types.SimpleNamespace(_get_default_store=lambda: store),
            group=types.SimpleNamespace(WORLD=None),
        )
        self.now_ns = 0

    def init(self) -> None:
        self.torch.group.WORLD = type("ProcessGroup", (), {})()

    def destroy(self) -> None:
        self.torch.group.WORLD = None

    def poll(self, monkeypatch: pytest.MonkeyPatch) -> Joined | None:
        self.now_ns += SECOND_NS
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, "torch.distributed", self.torch)
            return self.agreement.poll(self.now_ns)


def agree(worlds: list[World], monkeypatch: pytest.MonkeyPatch, rounds: int = 5) -> dict[int, list[Joined]]:
    found: dict[int, list[Joined]] = {world.rank: [] for world in worlds}
    for _ in range(rounds):
        for world in worlds:
            joined = world.poll(monkeypatch)
            if joined is not None:
                found[world.rank].append(joined)
    return found


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0], [1, 0, 2]])
def test_all_ranks_learn_the_token_of_rank_0_once(order: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store()
    worlds = [World(store, rank, 3) for rank in order]
    assert agree(worlds, monkeypatch) == {0: [], 1: [], 2: []}, "there is no process group yet"
    for world in worlds:
        world.init()
    found = agree(worlds, monkeypatch)
    assert [len(joined) for joined in found.values()] == [1, 1, 1]
    assert len({joined[0].token for joined in found.values()}) == 1
    assert {rank: (j[0].rank, j[0].world_size) for rank, j in found.items()} == {r: (r, 3) for r in range(3)}


def test_a_store_that_outlived_an_attempt_cannot_mislead_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store()
    first = [World(store, rank, 3) for rank in range(3)]
    for world in first:
        world.init()
    # Rank 2 dies before it has read the answer, so the store holds all that a dead attempt can leave.
    before = agree(first[:2], monkeypatch)
    first[2].poll(monkeypatch)
    first[0].poll(monkeypatch)

    second = [World(store, rank, 3) for rank in (1, 2, 0)]
    for world in second:
        world.init()
    assert agree(second[:2], monkeypatch) == {1: [], 2: []}, "rank 0 of this life has not spoken"
    found = agree(second, monkeypatch)
    assert len({joined[0].token for joined in found.values()}) == 1
    assert found[0][0].token != before[0][0].token


def test_a_group_that_forms_again_in_the_same_processes_is_a_new_life(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store()
    worlds = [World(store, rank, 2) for rank in range(2)]
    tokens = []
    for life in range(3):
        for world in worlds:
            world.init()
        found = agree(worlds, monkeypatch)
        assert found[0][0].token == found[1][0].token
        tokens.append(found[0][0].token)
        if life != 1:
            # Once it is gone between two polls, once it is never seen to be gone.
            for world in worlds:
                world.destroy()
            assert agree(worlds, monkeypatch) == {0: [], 1: []}
    assert len(set(tokens)) == 3


def test_a_lone_rank_needs_no_store(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(Store(), 0, 1)
    world.torch.distributed_c10d = None
    world.init()
    (joined,) = agree([world], monkeypatch)[0]
    assert (joined.rank, joined.world_size, len(joined.token)) == (0, 1, 16)


def test_it_gives_up_in_time(monkeypatch: pytest.MonkeyPatch, swallowed: list[str]) -> None:
    store = Store()
    world = World(store, 1, 2)
    world.init()
    assert agree([world], monkeypatch, rounds=LIMIT_NS // SECOND_NS + 3) == {1: []}
    assert swallowed == ["the ranks could not agree on an attempt token in time"]
    swallowed.clear()
    late = World(store, 0, 2)
    late.init()
    assert agree([late, world], monkeypatch)[1] == []


def test_a_store_that_breaks_is_left_alone(monkeypatch: pytest.MonkeyPatch, swallowed: list[str]) -> None:
    world = World(Store(), 1, 2)
    world.init()
    world.poll(monkeypatch)

    def broken(keys: list[str]) -> bool:
        raise RuntimeError("Connection reset by peer")

    world.agreement._store.check = broken
    assert agree([world], monkeypatch) == {1: []}
    assert swallowed == ["the process group's store could not be used"]
    swallowed.clear()


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
def test_real_ranks_agree_through_gloos_store(spool: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    script = """
import goodput, time
rec = goodput.start(run="r")
import torch.distributed as dist
dist.init_process_group("gloo")
time.sleep(1.0)
with rec.step(1):
    dist.barrier()
rec.finish()
dist.barrier()
import os
os._exit(0)
"""
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", script],
            env=environment(
                spool,
                RANK=str(rank),
                WORLD_SIZE="2",
                MASTER_ADDR="127.0.0.1",
                MASTER_PORT=str(port),
                OMP_NUM_THREADS="1",
            ),
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    begun = time.monotonic()
    for rank in ranks:
        try:
            _, errors = rank.communicate(timeout=max(90 - (time.monotonic() - begun), 1))
        finally:
            rank.kill()
        assert rank.returncode == 0, errors
    joined = [event for event in of_rank(read_events(spool)) if event["kind"] == "joined"]
    assert sorted((event["rank"], event["world_size"]) for event in joined) == [(0, 2), (1, 2)]
    assert joined[0]["attempt_token"] == joined[1]["attempt_token"]
