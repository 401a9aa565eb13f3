"""Views are reduced and still true: no GPU time is lost, the slow rank stands out, what is at risk is what is lost."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from loading import loaded

from goodput_analytics import Report, report
from goodput_analytics.advice_run import advise
from goodput_analytics.comparison import compare
from goodput_analytics.fleet import budget, fleet, lost_gpu_s, price_gpu_s
from goodput_analytics.saving import saving
from goodput_analytics.views import VIEWS, at_risk, endings, lateness, places, step_times, timeline, worst_ranks
from reference.planned import S
from reference.stories import Story, at

Rows = list[dict[str, object]]


def stormy() -> Story:
    """Four ranks: steps of 1 s, saves after 10 and 20, rank 1 a quarter late, a crash at 43, again from 20 at 60."""
    story = Story()
    first = story.group(start=0, ranks=4, token="a", device_kind="H100", labels={"team": "nlp"})
    first.resume(9, None)
    now = 10
    for n in range(1, 31):
        first.step(n, now, now + 1, busy={0: 0.5, 1: 0.75, 2: 0.5, 3: 0.5})
        now += 1
        if n in (10, 20):
            first.span("checkpoint", now, now + 1, step=n)
            now += 1
    first.tell("stop", 42.5, ranks=[1], reason="exception", detail="ValueError: 7")
    first.stop(43, "signal", ranks=[0, 2, 3])
    second = story.group(start=50, ranks=4, token="b")
    second.resume(58, 20)
    second.steps(21, 40, 60)
    second.stop(80, "finished")
    return story


@pytest.fixture(scope="module")
def told() -> tuple[duckdb.DuckDBPyConnection, Report]:
    with loaded(stormy().events) as con:
        yield con, report(con, "story")  # type: ignore[misc]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 300))
def test_the_timeline_loses_nothing_however_coarse(told: tuple[duckdb.DuckDBPyConnection, Report], most: int) -> None:
    con, one = told
    rows = timeline(con, most=most).to_pylist()
    sums: dict[str, float] = defaultdict(float)
    for row in rows:
        sums[row["category"]] += row["gpu_s"]
    assert sums == pytest.approx({c: v for c, v in one.gpu_s.items() if v})
    stretches = {(row["start_ns"], row["end_ns"]) for row in rows}
    assert len(stretches) <= most
    for start_ns, end_ns in stretches:
        inside = [row for row in rows if row["start_ns"] == start_ns]
        assert sum(row["share_ratio"] for row in inside) == pytest.approx(1.0)
        assert sum(row["gpus"] for row in inside) * (end_ns - start_ns) / S == pytest.approx(
            sum(row["gpu_s"] for row in inside)
        )


def test_the_timeline_of_a_part_is_the_ledger_of_that_part(told: tuple[duckdb.DuckDBPyConnection, Report]) -> None:
    con, _ = told
    # The save from 20 to 21, cut in the middle; one stretch.
    rows = timeline(con, at(20.5), at(23), most=1).to_pylist()
    assert {row["category"]: row["gpu_s"] for row in rows} == pytest.approx(
        {"checkpoint": 2.0, "productive": 6.0, "straggler": 2.0}
    )
    assert timeline(con, at(500), at(600)).num_rows == 0


def test_the_slow_rank_stands_out(told: tuple[duckdb.DuckDBPyConnection, Report]) -> None:
    con, one = told
    rows = lateness(con, most=1).to_pylist()
    assert {row["first_rank"]: row["late_s"] for row in rows} == pytest.approx(
        {0: 0.0, 1: 0.25, 2: 0.0, 3: 0.0}, abs=0.11
    )
    early = lateness(con, at(10), at(42), most=4).to_pylist()
    assert {row["late_s"] for row in early if row["first_rank"] == 1} == {0.25}
    assert {row["late_s"] for row in early if row["first_rank"] != 1} == {0.0}
    _, worst = worst_ranks(con).to_pylist()
    assert (worst["k"], worst["rank"], worst["saved_ratio"]) == (1, 1, 1.0)
    assert worst["saved_gpu_s"] == pytest.approx(one.gpu_s["straggler"])


def test_ranks_are_put_together_where_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    import goodput_analytics.views as views

    monkeypatch.setattr(views, "MOST_ROWS", 2)
    story = Story()
    group = story.group(start=0, ranks=5, token="a")
    for n in range(1, 11):
        group.step(n, 10 + n, 11 + n, busy={rank: 0.9 if rank == 3 else 0.5 for rank in range(5)})
    with loaded(story.events) as con:
        report(con, "story")
        rows = views.lateness(con, most=1).to_pylist()
    assert [(row["first_rank"], row["last_rank"]) for row in rows] == [(0, 2), (3, 4)]
    assert [row["late_s"] for row in rows] == pytest.approx([0.0, 0.4])


def test_what_is_at_risk_falls_at_a_save_and_at_the_end(told: tuple[duckdb.DuckDBPyConnection, Report]) -> None:
    con, _ = told
    rows = at_risk(con, at(0), at(80), most=80).to_pylist()
    risk = {round((row["end_ns"] - at(0)) / S): row["at_risk_gpu_s"] for row in rows}
    assert risk[10] == 0
    assert risk[20] == pytest.approx(10 * 3, abs=3.1)  # ten steps of four GPUs, a quarter of each waited
    assert risk[22] <= 4 and risk[42] == pytest.approx(10 * 3, abs=12)
    assert risk[45] == 0 and risk[58] == 0  # what was not saved is lost, and nothing is done yet
    assert risk[79] > 70


def test_without_a_durable_save_nobody_knows_what_is_at_risk() -> None:
    story = Story()
    story.group(start=0).steps(1, 5, 10)
    with loaded(story.events) as con:
        report(con, "story")
        assert at_risk(con).num_rows == 0


def test_step_times_leave_saves_and_first_steps_out(told: tuple[duckdb.DuckDBPyConnection, Report]) -> None:
    (row,) = step_times(told[0]).to_pylist()
    assert row["steps"] == 48
    assert row["least_s"] == row["median_s"] == row["most_s"] == 1.0


def test_endings_tell_who_went_first_and_what_it_said(told: tuple[duckdb.DuckDBPyConnection, Report]) -> None:
    rows = endings(told[0]).to_pylist()
    assert [(row["attempt"], row["rank"], row["reason"], row["detail"]) for row in rows[:2]] == [
        (0, 1, "exception", "ValueError: 7"),
        (0, 0, "signal", None),
    ]
    assert len(rows) == 8 and endings(told[0], most=3).num_rows == 3


def test_endings_tell_what_was_seen_from_outside() -> None:
    story = Story()
    story.group(start=0, token="a").steps(1, 5, 10)
    story.other("agent").tell("exit_observed", at(16), of="source-01", exit_code=137, signal=9, oom=True)
    with loaded(story.events) as con:
        report(con, "story")
        (row,) = endings(con).to_pylist()
    assert (row["exit_code"], row["signal"], row["oom"], row["reason"]) == (137, 9, True, None)


def test_places_tell_nodes_jobs_and_labels(told: tuple[duckdb.DuckDBPyConnection, Report]) -> None:
    rows = places(told[0]).to_pylist()
    assert len(rows) == 8
    assert (rows[0]["node"], rows[0]["job"], rows[0]["ranks"], rows[0]["device_kind"]) == ("node-0", "job", 1, "H100")
    assert "nlp" in str(rows[0]["labels"]) and rows[4]["labels"] is None


@pytest.mark.parametrize("name", VIEWS)
def test_a_run_that_only_started_can_be_viewed(name: str) -> None:
    story = Story()
    story.group(start=0)
    with loaded(story.events) as con:
        report(con, "story")
        assert VIEWS[name](con, from_ns=0, to_ns=2**62, most=10).num_rows <= 10


def test_a_fleet_adds_up_and_tells_planned_from_unplanned(told: tuple[duckdb.DuckDBPyConnection, Report]) -> None:
    _, one = told
    (incident,) = one.incidents
    planned = replace(one, run="b", incidents=(replace(incident, cause="preempted"),))
    both = fleet([one, planned])
    assert both.allocated_gpu_s == 2 * one.allocated_gpu_s and both.lost_gpu_s == pytest.approx(2 * lost_gpu_s(one))
    assert both.goodput_ratio == pytest.approx(one.goodput_ratio)
    assert {(c.cause, c.planned): c.gpu_s for c in both.causes} == {
        ("crash", False): price_gpu_s(incident),
        ("preempted", True): price_gpu_s(incident),
    }
    assert fleet([]).goodput_ratio is None


def test_a_budget_burns_with_what_was_not_productive() -> None:
    assert budget(100.0, 95.0, 0.9).burned_ratio == pytest.approx(0.5)
    assert budget(100.0, 80.0, 0.9).burned_ratio == pytest.approx(2.0)
    assert budget(0.0, 0.0, 0.9).burned_ratio is None
    with pytest.raises(ValueError, match="target"):
        budget(1.0, 1.0, 1.0)


def test_a_run_compares_with_itself_and_with_a_calm_one(told: tuple[duckdb.DuckDBPyConnection, Report]) -> None:
    _, one = told
    assert compare(one, one).verdict == "same"
    gpu_s = {**one.gpu_s, "rework": 0.0, "productive": one.gpu_s["productive"] + one.gpu_s["rework"]}
    held = one.allocated_gpu_s
    calm = replace(one, run="calm", gpu_s=gpu_s, goodput_ratio=gpu_s["productive"] / held, incidents=())
    better = compare(one, calm)
    assert better.verdict == "better" and compare(calm, one).verdict == "worse"
    assert better.changes[0].category == "rework"
    assert better.worth_gpu_s == pytest.approx(one.gpu_s["rework"])
    assert better.evidence[0].startswith("rework took") and "calm met no incident" in better.evidence[-1]
    assert compare(one, replace(one, goodput_ratio=None, allocated_gpu_s=0.0)).verdict == "unknown"


def test_the_curve_of_saving_has_its_least_at_the_best_interval(
    told: tuple[duckdb.DuckDBPyConnection, Report],
) -> None:
    con, one = told
    advice = advise(con, one.run)
    assert advice.interval is not None
    curve = saving(advice.interval)
    least = min(zip(curve.waste_ratio, curve.interval_s, strict=True))
    assert least[1] == pytest.approx(curve.advice.optimal_s, rel=0.06)
    assert curve.saved_gpu_s is not None and curve.saved_gpu_s >= 0
    at = curve.advice.at_actual
    assert at is not None and curve.saved_gpu_s == pytest.approx(
        (at.waste_ratio - min(curve.waste_ratio)) * one.allocated_gpu_s, abs=0.01 * one.allocated_gpu_s
    )
    assert saving(replace(curve.advice, at_actual=None, actual_s=None)).saved_gpu_s is None
