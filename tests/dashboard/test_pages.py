"""Every page, with no data, a live run, a run that met something, a partial one, and fifty: the report's figures."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

import made_runs
from goodput_analytics import Report, report
from goodput_analytics.advice_run import advise
from goodput_analytics.fleet import lost_gpu_s, price_gpu_s
from goodput_collector.advice_view import run_json
from goodput_collector.corrections import Act, Cause, Wish
from goodput_collector.database import open_database
from goodput_collector.figures import GpuTime, duration, percent
from goodput_collector.offline import edited
from goodput_dashboard import context
from goodput_dashboard.launching import APP, VARIABLE

PAGES = ("fleet", "run", "incidents", "stragglers", "checkpoints", "compare", "quality")
Open = Callable[..., AppTest]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Open:
    """Opens a page on a database of some runs, all of them read."""

    def open_page(page: str, *runs: made_runs.Made, **query: str | list[str]) -> AppTest:
        db = made_runs.database(tmp_path, *runs)
        monkeypatch.setenv(VARIABLE, json.dumps({"where": str(db), "token_file": None}))
        assert context.shelf().look(wait_s=60).missing == 0
        at = AppTest.from_file(str(APP), default_timeout=60)
        if page != "fleet":
            at.run()
            at.switch_page(f"screens/{page}.py")
        for key, value in query.items():
            at.query_params[key] = value
        at.run()
        assert not at.exception, [one.message for one in at.exception]
        return at

    yield open_page  # type: ignore[misc]
    context.shelf().stop()
    context.source().close()
    context._opened.clear()


def told(db: Path, run: str) -> Report:
    con = open_database(db, read_only=True)
    try:
        return report(con, run)
    finally:
        con.close()


def metrics(at: AppTest) -> dict[str, str]:
    """The figures on the page by their labels, units left out."""
    return {metric.label.partition(",")[0]: metric.value for metric in at.metric}


def text(at: AppTest) -> str:
    return "\n".join(
        str(one.value) for one in [*at.markdown, *at.info, *at.success, *at.warning, *at.caption, *at.error]
    )


@pytest.mark.parametrize("page", PAGES)
def test_without_data_each_page_says_what_to_do(opened: Open, page: str) -> None:
    at = opened(page)
    assert "goodput ingest FILE" in text(at)
    assert not at.metric and not at.dataframe


@pytest.mark.parametrize("page", PAGES[1:])
def test_a_run_that_is_not_there_is_said_to_be_missing(opened: Open, page: str) -> None:
    if page == "compare":
        at = opened(page, made_runs.partial(), runs=["partial", "nobody"])
    else:
        at = opened(page, made_runs.partial(), run="nobody")
    assert any("no run named **nobody**" in one.value for one in at.warning)


@pytest.mark.parametrize("made", [made_runs.live(), made_runs.stormy(), made_runs.partial()], ids=lambda m: m.name)
def test_the_run_page_tells_what_the_report_tells(opened: Open, tmp_path: Path, made: made_runs.Made) -> None:
    at = opened("run", made, run=made.name)
    one = told(tmp_path / "made.duckdb", made.name)
    unit = GpuTime.for_total(one.allocated_gpu_s)
    assert metrics(at) == {
        "Goodput": percent(one.goodput_ratio),
        "Held": unit.number(one.allocated_gpu_s),
        "Lost": unit.number(lost_gpu_s(one)),
        "At risk now": unit.number(one.at_risk_gpu_s),
        "Waited in the queue": duration(one.queue_wait_s),
    }
    attempts = at.dataframe[0].value
    assert list(attempts["attempt"]) == [attempt.attempt for attempt in one.attempts]
    assert list(attempts["ended"]) == [attempt.end_cause for attempt in one.attempts]
    assert [finding.code for finding in one.findings]
    for finding in one.findings[:3]:
        assert finding.next.split(";")[0].split(":")[0] in text(at).replace("\\", "")


def test_a_state_stands_beside_the_name(opened: Open) -> None:
    assert ":gray-badge[finished]" in text(opened("run", made_runs.stormy(), run="stormy"))


def test_incidents_have_their_price_and_their_last_words(opened: Open, tmp_path: Path) -> None:
    at = opened("incidents", made_runs.stormy(), run="stormy")
    (incident,) = told(tmp_path / "made.duckdb", "stormy").incidents
    seen = metrics(at)
    unit = GpuTime.for_total(told(tmp_path / "made.duckdb", "stormy").allocated_gpu_s)
    assert incident.rework_gpu_s > 0 and incident.restart_gpu_s > 0
    assert seen["Price"] == unit.number(price_gpu_s(incident))
    assert (seen["Rework"], seen["Restart"], seen["Hang"]) == tuple(
        map(unit.number, (incident.rework_gpu_s, incident.restart_gpu_s, incident.hang_gpu_s))
    )
    assert seen["Lost steps"] == f"{incident.lost_steps:,}" == "30"
    assert at.code[0].value == "ValueError: loss is *not* finite"
    assert "a closer checkpoint" in text(at) and "First to go was rank 0" in text(at)
    endings = at.dataframe[1].value
    assert list(endings["rank"]) == [0, 1, 2, 3] and set(endings["reason"]) == {"exception"}


def test_what_people_say_of_an_incident_stands_beside_it(opened: Open, tmp_path: Path) -> None:
    made_runs.database(tmp_path, made_runs.stormy())
    with edited(tmp_path / "made.duckdb", tmp_path / "none") as editor:
        editor.correct(
            Wish(act=Act.INCIDENT, run="stormy", attempt=0, cause=Cause.HARDWARE, note="ECC *errors*", who="me")
        )
    at = opened("incidents", run="stormy")
    assert list(at.dataframe[0].value["said cause"]) == ["hardware"]
    assert "**hardware**: ECC \\*errors\\*" in text(at) and "Said by me" in "".join(one.value for one in at.caption)
    assert not at.button  # a file is only read here


def test_without_incidents_the_page_says_so(opened: Open) -> None:
    assert "No incident" in text(opened("incidents", made_runs.partial(), run="partial"))


def test_the_slow_rank_is_named_with_its_loss(opened: Open, tmp_path: Path) -> None:
    at = opened("stragglers", made_runs.stormy(), run="stormy")
    one = told(tmp_path / "made.duckdb", "stormy")
    unit = GpuTime.for_total(one.allocated_gpu_s)
    assert [slow.rank for slow in one.stragglers] == [2]
    assert metrics(at)["Waited for slow ranks"] == unit.number(one.gpu_s["straggler"])
    named, lasting, what_if = (frame.value for frame in at.dataframe)
    assert list(named["rank"]) == [2]
    assert named["GPU-s"][0] == pytest.approx(one.stragglers[0].loss_gpu_s)
    assert list(what_if["the last of them"]) == [2]
    assert what_if["of the waiting would go"][0] == pytest.approx(1.0)
    assert set(lasting["rank"].dropna()) == {2} and set(lasting["it"]) == {"persists"}
    assert [box.value for box in at.selectbox if box.label.startswith("One rank")] == ["2"]


def test_the_page_tells_from_which_step_on_a_rank_was_slow(opened: Open) -> None:
    made = made_runs.Made("late", ranks=4).start().steps(1, 60, step_s=1.0).steps(61, 120, step_s=1.25, slow=3)
    at = opened("stragglers", made, run="late")
    said = text(at).replace("\\", "")
    assert "From step 61 on steps take 25.0 % longer: 1.00 s before, 1.25 s since; straggler changed most." in said
    assert "From then on rank 3 on node node1 is the slowest in 100.0 % of steps." in said
    lasting = at.dataframe[1].value
    assert {"rank", "node"} == set(lasting["what"]) and set(lasting["from step"]) == {61}


def test_without_own_work_nobody_is_named(opened: Open) -> None:
    made = made_runs.stormy()
    for event in made.events:
        event.pop("busy_ns", None)
    at = opened("stragglers", made, run="stormy")
    assert "No step waited" in text(at) and not at.dataframe


def test_checkpoints_tell_young_daly_and_how_sure_that_is(opened: Open, tmp_path: Path) -> None:
    at = opened("checkpoints", made_runs.stormy(), run="stormy")
    con = open_database(tmp_path / "made.duckdb", read_only=True)
    advice = advise(con, "stormy")
    con.close()
    best, timeout = advice.interval, advice.timeout
    assert best is not None and timeout is not None
    seen = metrics(at)
    assert (seen["Saves"], seen["Each blocks"]) == ("2", "2.00 s")
    assert (seen["Young advises"], seen["Daly advises"]) == (duration(best.young_s), duration(best.daly_s))
    assert (seen["The best by the model"], seen["In use"]) == (duration(best.optimal_s), duration(best.actual_s))
    assert seen["Collective timeout advised"] == duration(timeout.timeout_s)
    assert "95% sure" in text(at) and duration(advice.interruptions.mean_s) in text(at)
    tables = [one.value for one in at.dataframe]
    simulated, changes, silences, saves = (
        next(one for one in tables if name in one) for name in ("interval", "change", "silence", "blocked, s")
    )
    assert list(simulated["interval"]) == ["in use", "Young", "Daly", "best"]
    # A simulated job fares as the model says, but for its first and last chunk.
    assert list(simulated["simulated, %"]) == pytest.approx(list(simulated["goodput by the model, %"]), abs=2)
    assert list(changes["points of goodput"]) == [100 * one.gained_ratio for one in best.what_ifs]
    assert list(silences["asks for, s"]) == [one.timeout_s for one in timeout.kinds]
    assert list(saves["step"]) == [30, 60]


def test_the_checkpoints_page_tells_what_the_command_tells(opened: Open, tmp_path: Path) -> None:
    at = opened("checkpoints", made_runs.stormy(), run="stormy")
    con = open_database(tmp_path / "made.duckdb", read_only=True)
    told_ = run_json(advise(con, "stormy"), 36.0)
    con.close()
    saves, noise, actual = told_["saves"], told_["noise"], told_["actual"]
    for part in (
        *(duration(saves[key]) for key in ("mean_s", "p50_s", "p90_s", "p99_s", "max_s")),
        f"A restart takes {duration(told_['restart_s'])}. 0 hangs: ",
        "0 planned stops, 0 rollbacks, 0 failures before a first step",
    ):
        assert part in text(at), part
    assert "In a simulated job" not in text(at)  # what explains a constant is no part of the page
    assert f"a rank is slow in {percent(noise['slow_ratio'])}" in "".join(one.value for one in at.caption)
    at.number_input(key="save_price").set_value(36.0).run()
    tables = [one.value for one in at.dataframe]
    intervals, changes = (next(one for one in tables if name in one) for name in ("interval", "change"))
    lost = dict(zip(intervals["interval"], intervals["lost in money"], strict=True))
    assert (lost["in use"], lost["best"]) == pytest.approx((actual["waste_cost"], told_["waste_cost"]))
    wasted = dict(zip(intervals["interval"], intervals["lost by the model, GPU-s"], strict=True))
    assert (wasted["in use"], wasted["best"]) == pytest.approx((actual["waste_gpu_s"], told_["waste_gpu_s"]))
    assert list(changes["in money"]) == pytest.approx([one["gained_cost"] for one in told_["what_ifs"]])


def test_without_a_save_the_page_says_how_to_report_one(opened: Open) -> None:
    at = opened("checkpoints", made_runs.partial(), run="partial")
    assert "rec.checkpoint(step)" in text(at)
    assert metrics(at)["At risk now"] == "unknown" and metrics(at)["One every"] == "unknown"


def test_quality_says_what_is_missing(opened: Open) -> None:
    at = opened("quality", made_runs.partial(), run="partial")
    told_ = at.dataframe[0].value.set_index("what")["figure"]
    assert told_["ranks that never reported"] == "2"
    assert "silent ranks" in text(at) and "2, 3" in text(at)


def test_quality_of_whole_data_tells_only_what_was_assumed(opened: Open, tmp_path: Path) -> None:
    at = opened("quality", made_runs.stormy(), run="stormy")
    one = told(tmp_path / "made.duckdb", "stormy")
    assert not at.warning and one.quality.assumed_gpu_s > 0
    assert f"{GpuTime.for_total(one.allocated_gpu_s).number(one.quality.assumed_gpu_s)} GPU-s of" in text(at)


@pytest.mark.soak
def test_fifty_runs_add_up_to_their_reports(opened: Open, tmp_path: Path) -> None:
    at = opened("fleet", *made_runs.fifty())
    reports = [told(tmp_path / "made.duckdb", f"run-{i:02}") for i in range(50)]
    held = sum(one.allocated_gpu_s for one in reports)
    unit = GpuTime.for_total(held)
    seen = metrics(at)
    assert seen["Held"] == unit.number(held)
    assert seen["Lost"] == unit.number(sum(map(lost_gpu_s, reports)))
    assert seen["Goodput"] == percent(sum(one.gpu_s["productive"] for one in reports) / held)
    listed = at.dataframe[0].value
    assert set(listed["run"]) == {one.run for one in reports}
    by_run = listed.set_index("run")["goodput"]
    assert all(by_run[one.run] == pytest.approx(one.goodput_ratio) for one in reports)


def test_the_fleet_is_filtered_by_the_address(opened: Open) -> None:
    at = opened("fleet", made_runs.stormy(), made_runs.partial(), label="team=nl")
    assert list(at.dataframe[0].value["run"]) == ["stormy"]
    at.text_input(key="label").set_value("team=vision").run()
    assert "None of the 2 runs passes" in text(at)
    at.text_input(key="label").set_value("").run()
    at.text_input(key="name").set_value("part").run()
    assert list(at.dataframe[0].value["run"]) == ["partial"]
    at.text_input(key="name").set_value("").run()
    at.text_input(key="node").set_value("node1").run()
    assert list(at.dataframe[0].value["run"]) == ["stormy"]


def test_a_price_tells_the_loss_in_money(opened: Open, tmp_path: Path) -> None:
    at = opened("fleet", made_runs.stormy())
    at.number_input(key="price").set_value(36.0).run()
    lost = lost_gpu_s(told(tmp_path / "made.duckdb", "stormy"))
    assert metrics(at)["Cost of the loss"] == f"{lost / 100:,.2f}"


def test_two_runs_are_compared(opened: Open) -> None:
    at = opened("compare", made_runs.stormy(), made_runs.partial(), runs=["stormy", "partial"])
    assert "partial is better than stormy" in at.success[0].value
    assert list(at.dataframe[0].value.columns) == ["figure", "stormy", "partial"]


def test_times_are_told_in_the_browser_s_zone_if_wanted(opened: Open) -> None:
    at = opened("run", made_runs.stormy(), run="stormy")
    assert "As of 2027-01-15 08:" in text(at) and at.segmented_control(key="tz").value == "UTC"


def test_tables_can_be_taken_away(opened: Open) -> None:
    at = opened("run", made_runs.stormy(), run="stormy")
    assert {one.label for one in at.get("download_button")} >= {"CSV", "Parquet", "Report to mail (HTML)"}


def test_long_meanings_wrap(opened: Open) -> None:
    at = opened("quality", made_runs.partial(), run="partial")
    assert at.dataframe[0].proto.row_height > 35


def test_what_does_not_apply_is_not_called_unknown(opened: Open) -> None:
    at = opened("stragglers", made_runs.stormy(), run="stormy")
    suspects = next(one for one in at.dataframe if "by chance" in one.value)
    assert suspects.proto.placeholder == "–"
