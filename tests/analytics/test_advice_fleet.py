"""Saves that collide: contention that is known is found again, and what staggering is worth."""

from __future__ import annotations

import math
import random

import pytest
from loading import loaded

from goodput_analytics.advice_fleet import FleetSave, advise_fleet, fleet
from reference.planned import Life, S, Shape

BASES_S = (20.0, 25.0, 30.0, 35.0)


def share_a_disk(contention: float, saves: int, seed: int, every_s: float = 300.0) -> list[FleetSave]:
    """Runs of different sizes that work and save; a save goes on the slower the more are in flight."""
    rng = random.Random(seed)
    begins = {i: rng.uniform(0, every_s) for i in range(len(BASES_S))}
    left: dict[int, float] = {}
    began: dict[int, float] = {}
    done: list[FleetSave] = []
    now = 0.0
    while len(done) < saves:
        slower = 1 + contention * (len(left) - 1)
        begin_s, begin = min(((at, i) for i, at in begins.items()), default=(math.inf, -1))
        end_s, end = min(((now + work * slower, i) for i, work in left.items()), default=(math.inf, -1))
        at = min(begin_s, end_s)
        left = {i: work - (at - now) / slower for i, work in left.items()}
        now = at
        if begin_s <= end_s:
            del begins[begin]
            began[begin], left[begin] = now, BASES_S[begin] * math.exp(rng.gauss(0, 0.1))
        else:
            del left[end]
            done.append(FleetSave(run=f"run-{end}", begin_s=began[end], end_s=now, gpus=8))
            begins[end] = now + every_s
    return done


@pytest.mark.parametrize("contention", [0.0, 0.3, 1.0, 2.0])
def test_contention_and_times_alone_are_found_again(contention: float) -> None:
    saves = share_a_disk(contention, 300, seed=1)
    told = advise_fleet(saves)
    assert told.contention == pytest.approx(contention, abs=0.07 + 0.07 * contention)
    assert told.saved_gpu_s is not None
    for one in told.runs:
        assert one.alone_s == pytest.approx(BASES_S[int(one.run[-1])], rel=0.06)
    # Truly alone saves would have taken their bases.
    truly = sum((s.end_s - s.begin_s - BASES_S[int(s.run[-1])]) * 8 for s in saves)
    assert told.saved_gpu_s == pytest.approx(truly, rel=0.12, abs=0.03 * told.blocked_gpu_s)
    assert sum(one.lost_gpu_s for one in told.runs) == pytest.approx(told.saved_gpu_s)
    assert sum(crowd.saves for crowd in told.crowds) == len(saves) == told.saves
    slowdowns = [crowd.slowdown for crowd in told.crowds if crowd.saves >= 5]
    assert len(slowdowns) >= 2
    if contention:
        assert slowdowns == sorted(slowdowns) and slowdowns[0] == pytest.approx(1, abs=0.1)


def test_what_nothing_tells_is_not_told() -> None:
    apart = [FleetSave(run="a", begin_s=100.0 * i, end_s=100.0 * i + 5, gpus=1) for i in range(20)]
    told = advise_fleet(apart)
    assert (told.contention, told.saved_gpu_s, told.saves) == (None, None, 20)
    assert told.busy_ratio == pytest.approx(100 / 1905)
    few = advise_fleet(apart[:3])
    assert (few.contention, few.saves) == (None, 3)
    nothing = advise_fleet([])
    assert (nothing.saves, nothing.contention, nothing.busy_ratio, nothing.crowds) == (0, None, None, ())


def lives() -> list[Life]:
    """Two runs whose saves meet (20 s each) and then do not (10 s each), eight times over."""
    made = []
    for run, (before, after) in {"a": (30, 49), "b": (50, 29)}.items():
        life = Life(shape=Shape(ranks=2), run=run)
        life.launch()
        for _ in range(8):
            life.plain(20)
            life.save(20 * S)
            life.plain(before)
            life.save(10 * S)
            life.plain(after)
        life.finish(0, 0)
        made.append(life)
    return made


def events(made: list[Life]) -> list[dict[str, object]]:
    return [event | {"source": f"{event['run']}/{event['source']}"} for life in made for event in life.events]


def test_a_fleet_from_its_record() -> None:
    with loaded(events(lives())) as con:
        told = fleet(con)
    assert (told.saves, told.async_saves, told.left_out) == (32, 0, ())
    assert told.contention == pytest.approx(1.0, abs=1e-3)
    assert [(c.in_flight, c.saves, round(c.mean_s), round(c.slowdown, 2)) for c in told.crowds] == [
        (1, 16, 10, 1.0),
        (2, 16, 20, 2.0),
    ]
    # Ten seconds each of sixteen saves, two GPUs waiting.
    assert told.saved_gpu_s == pytest.approx(320, rel=1e-3)
    assert told.blocked_gpu_s == pytest.approx(16 * 30 * 2)
    assert {one.run: round(one.alone_s) for one in told.runs} == {"a": 10, "b": 10}


def test_background_saves_are_counted_apart() -> None:
    life = Life(shape=Shape(), run="a")
    life.launch()
    life.background_save(S, durable=True)
    life.finish(0, 0)
    with loaded(life.events) as con:
        told = fleet(con)
    assert (told.saves, told.async_saves) == (0, 1)
