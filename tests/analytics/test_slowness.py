"""Who is slow and lasts, and since when: noise names nobody, a rank that is 3 % slow is named at any size, a node is
followed through restarts, and the loss is what was injected however many ranks are slow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from loading import QUICK, loaded
from numpy.typing import NDArray

from goodput_analytics import report
from goodput_analytics.changes import change_points
from goodput_analytics.views import step_changes, suspects, worst_ranks
from reference.planned import S
from reference.stories import Story

Floats = NDArray[np.float64]
Rows = list[dict[str, Any]]
OTHERS_S = 0.1
"""What a step takes beside the ranks' own work."""


SIZES = (64, 64, 64, 256, 256, 256, 1024, 1024, 4096)


def noisy(rng: np.random.Generator, steps: int, ranks: int, noise_ratio: float = 0.01) -> Floats:
    """The own work of each rank in each step, in seconds: about one."""
    return 1 + noise_ratio * rng.standard_normal((steps, ranks))


@dataclass(frozen=True, kw_only=True)
class Part:
    """An attempt: what its ranks did, in seconds by step and rank, and on which node and device each of them ran."""

    own_s: Floats
    nodes: tuple[str, ...]
    devices: tuple[int | None, ...]


@contextmanager
def steps_of(*parts: Part) -> Iterator[duckdb.DuckDBPyConnection]:
    """The relations that slowness is read from, as the ledger would leave them of these attempts."""
    windows: dict[str, list[Any]] = {name: [] for name in WINDOWS}
    members: dict[str, list[Any]] = {"attempt": [], "rank": [], "source_id": [], "node": []}
    starts: dict[str, list[Any]] = {"source_id": [], "seq": [], "local_rank": []}
    now_ns = number = 0
    for attempt, part in enumerate(parts):
        steps, ranks = part.own_s.shape
        highest = part.own_s.max(axis=1)
        lowest = np.partition(part.own_s, -(-ranks // 4) - 1, axis=1)[:, -(-ranks // 4) - 1]
        ends = now_ns + np.cumsum(((highest + OTHERS_S) * S).astype(np.int64))
        begins = np.concatenate([[now_ns], ends[:-1]])
        filled: dict[str, Any] = {
            "attempt": np.full(steps, attempt), "idx": np.arange(steps), "step": number + 1 + np.arange(steps),
            "c": np.ones(steps, np.int64), "begin_ns": begins, "end_ns": ends, "net_ns": ends - begins,
            "straggler_ns": ((highest - lowest) * S).astype(np.int64),
            "latest_rank": part.own_s.argmax(axis=1), "late_ranks": np.full(steps, ranks),
            "ranks": np.full(steps, ranks), "applied": np.full(steps, True),
        }  # fmt: skip
        for name, kind in WINDOWS.items():
            windows[name].append(filled.get(name, np.zeros(steps, np.int64)).astype(kind))
        first = len(members["rank"])
        members["attempt"] += [attempt] * ranks
        members["rank"] += range(ranks)
        members["source_id"] += range(first, first + ranks)
        members["node"] += part.nodes
        starts["local_rank"] += part.devices
        now_ns, number = int(ends[-1]) + 60 * S, number + steps
    starts["source_id"] = members["source_id"]
    starts["seq"] = [0] * len(members["rank"])
    gpus = {"attempt": list(range(len(parts))), "gpus": [part.own_s.shape[1] for part in parts]}
    con = connection()
    for name, columns in {
        "gp_window_parts": {column: np.concatenate(told) for column, told in windows.items()},
        "gp_members": members,
        "ev_start": starts,
        "gp_attempts": gpus,
    }.items():
        con.register("handed_in", pa.table(columns))
        con.execute(f"CREATE OR REPLACE TABLE {name} AS FROM handed_in")
    yield con


@cache
def connection() -> duckdb.DuckDBPyConnection:
    """A database for all runs of this kind, one after another."""
    con = duckdb.connect(":memory:")
    for statement in QUICK:
        con.execute(statement)
    return con


WINDOWS = dict.fromkeys(
    (
        *("attempt", "idx", "step", "c", "begin_ns", "end_ns", "net_ns", "hang_ns", "data_ns", "gap_ns"),
        *("straggler_ns", "latest_rank", "late_ranks", "ranks"),
    ),
    "int64",
) | {"applied": "bool"}


def eight_a_node(own_s: Floats, shift: int = 0) -> Part:
    """Ranks on nodes of eight devices; rank 0 on the `shift`-th device of all, and so on around."""
    ranks = own_s.shape[1]
    places = [(rank + shift) % ranks for rank in range(ranks)]
    return Part(
        own_s=own_s, nodes=tuple(f"n{place // 8}" for place in places), devices=tuple(place % 8 for place in places)
    )


@pytest.mark.parametrize("runs", [9, pytest.param(100, marks=pytest.mark.soak)])
def test_noise_names_nobody_at_any_size_and_a_rank_3_percent_slow_is_named(runs: int) -> None:
    rng = np.random.default_rng(20)
    for run in range(runs):
        ranks = SIZES[run % len(SIZES)]
        own_s = noisy(rng, 120, ranks)
        slow = int(rng.integers(ranks))
        with steps_of(eight_a_node(own_s)) as con:
            assert suspects(con).num_rows == 0
            assert step_changes(con).num_rows == 0
        if run < len(SIZES):
            own_s[:, slow] += 0.03
            with steps_of(eight_a_node(own_s)) as con:
                told = suspects(con).to_pylist()
            assert {row["rank"] for row in told if row["grain"] == "rank"} == {slow}
            assert all(row["lasting"] for row in told)
            assert {(row["node"], row["device"]) for row in told if row["grain"] == "device"} == {
                (f"n{slow // 8}", slow % 8)
            }


def test_a_slow_device_is_followed_through_restarts_that_number_ranks_anew() -> None:
    rng = np.random.default_rng(3)
    parts = []
    for shift in (0, 5, 11):
        own_s = noisy(rng, 60, 32)
        own_s[:, (19 - shift) % 32] *= 1.05  # always the device 3 of n2
        parts.append(eight_a_node(own_s, shift))
    with steps_of(*parts) as con:
        told = suspects(con).to_pylist()
        assert step_changes(con).num_rows == 0  # it was slow from the first step on
    node, device = (next(row for row in told if row["grain"] == grain) for grain in ("node", "device"))
    assert (node["node"], node["attempts"], node["lasting"]) == ("n2", 3, True)
    assert node["one_device_ratio"] > 0.9  # it is one device, not the node
    assert (device["node"], device["device"], device["attempts"], device["rank"]) == ("n2", 3, 3, None)
    assert (device["first_step"], device["last_step"]) == (2, 180)
    ranks = {(row["attempt"], row["rank"]) for row in told if row["grain"] == "rank"}
    assert ranks == {(0, 19), (1, 14), (2, 8)}


def test_a_node_whose_ranks_are_all_slow_is_told_from_one_device() -> None:
    own_s = noisy(np.random.default_rng(4), 200, 64)
    own_s[:, 40:48] *= 1.05
    with steps_of(eight_a_node(own_s)) as con:
        told = suspects(con).to_pylist()
    assert told[0]["grain"] == "node" and told[0]["node"] == "n5"
    assert told[0]["one_device_ratio"] < 0.4
    assert {row["rank"] for row in told if row["grain"] == "rank"} <= set(range(40, 48))


def test_what_passed_is_transient_and_what_stays_is_persistent() -> None:
    own_s = noisy(np.random.default_rng(5), 2_000, 16)
    own_s[500:800, 3] *= 1.08
    own_s[1_500:, 9] *= 1.08
    with steps_of(eight_a_node(own_s)) as con:
        told = {row["rank"]: row for row in suspects(con).to_pylist() if row["grain"] == "rank"}
        late = {
            row["rank"] for row in suspects(con, from_ns=int(1_200 * 1.1 * S)).to_pylist() if row["grain"] == "rank"
        }
    assert set(told) == {3, 9}
    assert (told[3]["lasting"], told[9]["lasting"]) == (False, True)
    assert abs(told[3]["first_step"] - 500) <= 50 and abs(told[3]["last_step"] - 800) <= 50
    assert abs(told[9]["first_step"] - 1_500) <= 50 and told[9]["last_step"] == 2_000
    assert told[9]["slowest_ratio"] > 0.9 and told[9]["expected_ratio"] == 1 / 16
    assert late == {9}


def test_a_short_spell_of_great_waits_is_not_lost_among_many_steps() -> None:
    own_s = noisy(np.random.default_rng(17), 1_000, 10)
    own_s[:, 0] += 0.01  # always a little late, and so known already
    own_s[600:608, 6] *= 1.8
    with steps_of(eight_a_node(own_s)) as con:
        told = {row["rank"]: row for row in suspects(con).to_pylist() if row["grain"] == "rank"}
        first = suspects(con, most=1).num_rows
    assert set(told) == {0, 6}
    assert (told[0]["severe"], told[0]["lasting"]) == (False, True)
    assert (told[6]["severe"], told[6]["lasting"]) == (True, False)
    assert (told[6]["first_step"], told[6]["last_step"]) == (601, 608)
    assert told[6]["slowest_steps"] == 8 and first == 1


def test_great_waits_that_strike_this_rank_and_that_name_nobody() -> None:
    rng = np.random.default_rng(18)
    own_s = noisy(rng, 1_000, 16)
    struck = rng.choice(1_000, 60, replace=False)
    own_s[struck, rng.integers(16, size=60)] *= 2
    with steps_of(eight_a_node(own_s)) as con:
        assert suspects(con).num_rows == 0


def test_a_rank_that_is_the_latest_by_next_to_nothing_is_no_suspect() -> None:
    own_s = noisy(np.random.default_rng(6), 200, 8, noise_ratio=0.0001)
    own_s[:, 0] += 0.005
    with steps_of(eight_a_node(own_s)) as con:
        assert suspects(con).num_rows == 0


def test_without_nodes_and_devices_ranks_are_told() -> None:
    own_s = noisy(np.random.default_rng(7), 100, 4)
    own_s[:, 2] *= 1.1
    with steps_of(Part(own_s=own_s, nodes=(None,) * 4, devices=(None,) * 4)) as con:  # type: ignore[arg-type]
        (row,) = suspects(con).to_pylist()
    assert (row["grain"], row["rank"], row["node"], row["device"]) == ("rank", 2, None, None)


# -- since when ------------------------------------------------------------------------------------------------------


def test_a_change_of_5_6_percent_is_put_on_its_step_in_a_hundred_thousand_with_outliers() -> None:
    rng = np.random.default_rng(8)
    values = np.exp(rng.normal(0, 0.01, 100_000))
    values[42_782:] *= 1.056
    values[rng.integers(0, values.size, 300)] *= 5
    (place,) = change_points(values)
    assert abs(place - 42_782) <= 1


@pytest.mark.parametrize("size", [0, 31, 32, 200, 1_024, 1_025, 5_000])
def test_a_level_that_does_not_change_has_no_change_points(size: int) -> None:
    rng = np.random.default_rng(size)
    for _ in range(10):
        assert change_points(np.exp(rng.normal(0, 0.05, size))) == []
        assert change_points(np.exp(0.02 * rng.standard_t(2, size))) == []  # outliers in plenty
    assert change_points(np.ones(size)) == []


def test_changes_up_and_down_are_found_and_small_ones_and_short_ones_are_not() -> None:
    values = np.exp(np.random.default_rng(9).normal(0, 0.01, 3_000))
    values[1_000:1_200] *= 1.04
    values[2_000:] *= 0.95
    values[2_500:2_510] *= 3
    found = change_points(values)
    assert [abs(place - right) <= 9 for place, right in zip(found, (1_000, 1_200, 2_000), strict=True)] == [True] * 3
    small = np.ones(3_000)
    small[1_000:] *= 1.009
    assert change_points(small) == []


def test_what_wanders_is_no_row_of_changes() -> None:
    rng = np.random.default_rng(10)
    found = 0
    for _ in range(10):
        wandering = np.zeros(2_000)
        for place, push in enumerate(rng.normal(0, 0.01, 2_000)):
            wandering[place] = 0.9 * wandering[place - 1] + push
        found += len(change_points(np.exp(wandering)))
    assert found <= 2


def test_a_change_names_who_is_the_slowest_from_then_on() -> None:
    own_s = noisy(np.random.default_rng(11), 1_000, 64)
    own_s[:, 20] *= 1.04  # slow all along: not what changed
    own_s[600:, 50] *= 1.1
    with steps_of(eight_a_node(own_s)) as con:
        (change,) = step_changes(con).to_pylist()
    assert abs(change["step"] - 601) <= 2
    assert (change["node"], change["rank"], change["part"]) == ("n6", 50, "straggler")
    assert change["slowest_ratio"] > 0.95 and change["lasts"]
    grew_s = float(np.median(own_s[600:].max(axis=1)) - np.median(own_s[:600].max(axis=1)))
    assert change["after_s"] - change["before_s"] == pytest.approx(grew_s, rel=0.05)
    assert change["extra_gpu_s"] == pytest.approx(grew_s * 400 * 64, rel=0.05)


def test_a_change_for_all_ranks_names_nobody() -> None:
    own_s = noisy(np.random.default_rng(12), 400, 64)
    own_s[:, 20] *= 1.06
    own_s[200:] *= 1.08
    with steps_of(eight_a_node(own_s)) as con:
        (change,) = step_changes(con).to_pylist()
    assert (change["part"], change["node"], change["rank"], change["slowest_ratio"]) == ("productive", None, None, None)


# -- through the whole ledger ----------------------------------------------------------------------------------------


def trained(own_s: Floats, token: str = "a", shift: int = 0, stages: int = 1) -> Story:
    """A run whose steps last as long as the slowest rank's own work."""
    story, ranks = Story(), own_s.shape[1]
    group = story.group(start=0, ranks=ranks, token=token)
    for event, rank in zip(story.events, range(ranks), strict=True):
        place = (rank + shift) % ranks
        event.update(node=f"n{place // 8}", local_rank=place % 8)
        if stages > 1:
            event["group"] = f"stage-{rank % stages}"
    now = 10.0
    for number, row in enumerate(own_s):
        took = float(row.max()) + OTHERS_S
        group.step(number + 1, now, now + took, busy=dict(enumerate(row.tolist())))
        now += took
    group.stop(now + 1, "finished")
    return story


@pytest.mark.parametrize(("ranks", "slow"), [(4, 2), (4, 3), (16, 8)])
def test_the_loss_is_what_was_injected_when_several_ranks_are_slow(ranks: int, slow: int) -> None:
    own_s = noisy(np.random.default_rng(ranks + slow), 120, ranks, noise_ratio=0.002)
    own_s[40:, :slow] += 0.25
    with loaded(trained(own_s).events) as con:
        one = report(con, "story")
        worst = worst_ranks(con).to_pylist()[1 : slow + 1]
        (change,) = step_changes(con).to_pylist()
    assert one.gpu_s["straggler"] == pytest.approx(0.25 * 80 * ranks, rel=0.1)
    codes = {finding.code: finding for finding in one.findings}
    assert ("common_slowdown" in codes) == (2 * slow > ranks)
    assert {row["rank"] for row in worst} == set(
        range(slow)
    )  # all of them, though each is the latest now and then only
    assert worst[-1]["saved_ratio"] > 0.95 > 0.05 > worst[-2]["saved_ratio"]
    assert change["step"] == 41
    assert codes["slower_steps"].says.startswith("From step 41 on steps take 2")
    assert codes["slower_steps"].gpu_s == pytest.approx(0.25 * 80 * ranks, rel=0.1)


def test_uneven_stages_are_no_suspects_and_what_if_compares_inside_them() -> None:
    own_s = noisy(np.random.default_rng(13), 60, 8, noise_ratio=0.002)
    own_s[:, 1::2] += 0.5  # the second stage does more
    own_s[:, 4] += 0.2  # a slow rank of the first
    with loaded(trained(own_s, stages=2).events) as con:
        one = report(con, "story")
        told = suspects(con).to_pylist()
        rows = worst_ranks(con).to_pylist()
    assert {row["rank"] for row in told if row["grain"] == "rank"} == {4}
    assert (rows[1]["rank"], [row["k"] for row in rows][:2]) == (4, [0, 1])
    assert rows[1]["saved_ratio"] > 0.95
    assert [s.rank for s in one.stragglers] == [4]


def test_what_if_counts_each_of_several_slow_ranks_and_holds_what_the_paper_defines() -> None:
    own_s = noisy(np.random.default_rng(14), 60, 40, noise_ratio=0.0005)
    own_s[:, [5, 17]] += 0.5
    own_s[:, 30] += 0.1
    with loaded(trained(own_s).events) as con:
        one = report(con, "story")
        rows = worst_ranks(con, most=3).to_pylist()
    took_s = own_s.max(axis=1) + OTHERS_S
    ideal_s = took_s - (own_s.max(axis=1) - np.sort(own_s, axis=1)[:, 9])
    slowdown = took_s.sum() / ideal_s.sum()
    assert [row["k"] for row in rows] == [0, 1, 2, 3]
    assert (rows[0]["rank"], rows[0]["ranks"], rows[0]["saved_ratio"]) == (None, 40, 0)
    assert rows[0]["slowdown_ratio"] == pytest.approx(slowdown, rel=0.002)
    assert rows[0]["waste_ratio"] == pytest.approx(1 - 1 / slowdown, rel=0.01)
    assert {rows[1]["rank"], rows[2]["rank"]} == {5, 17} and rows[3]["rank"] == 30
    assert rows[1]["alone_ratio"] == pytest.approx(slowdown, rel=0.01)  # either alone would be as bad
    assert rows[1]["saved_ratio"] < 0.01  # and without one the other is left
    assert rows[2]["saved_ratio"] == pytest.approx(0.8, abs=0.01)
    assert rows[3]["slowdown_ratio"] == pytest.approx(1, abs=0.002)
    assert rows[2]["saved_gpu_s"] == pytest.approx(rows[2]["saved_ratio"] * one.gpu_s["straggler"])


def test_the_worst_3_percent_are_told_even_where_fewer_are_asked_for() -> None:
    own_s = noisy(np.random.default_rng(15), 30, 100)
    own_s[:, :3] += 0.3
    with loaded(trained(own_s).events) as con:
        report(con, "story")
        rows = worst_ranks(con, most=1).to_pylist()
    assert [row["k"] for row in rows] == [0, 1, 3]
    assert rows[2]["saved_ratio"] > 0.7


def test_a_slow_node_is_a_finding_once_restarts_have_not_cured_it() -> None:
    story, now = Story(), 0.0
    rng = np.random.default_rng(16)
    for attempt, shift in enumerate((0, 4)):
        own_s = noisy(rng, 40, 16)
        own_s[:, (11 - shift) % 16] *= 1.2
        group = story.group(start=now, ranks=16, token=f"t{attempt}")
        for rank, event in enumerate(story.events[-16:]):
            place = (rank + shift) % 16
            event.update(node=f"n{place // 8}", local_rank=place % 8)
        now += 5
        for number, row in enumerate(own_s):
            took = float(row.max()) + OTHERS_S
            group.step(attempt * 40 + number + 1, now, now + took, busy=dict(enumerate(row.tolist())))
            now += took
        group.stop(now + 1, "exception" if attempt == 0 else "finished")
        now += 2
    with loaded(story.events) as con:
        found = {finding.code: finding for finding in report(con, "story").findings}
        first = worst_ranks(con).to_pylist()[1]
    assert found["slow_node"].says.startswith("Node n1 was the slowest in 2 attempts, whichever ranks ran on it: ")
    assert found["slow_node"].evidence.endswith("Nearly always it was its device 3.")
    assert found["slow_node"].gpu_s == pytest.approx(0.2 * 80 * 16, rel=0.15)
    assert (first["rank"], first["node"]) == (7, "n1") and first["saved_ratio"] > 0.7  # one device, two numbers
