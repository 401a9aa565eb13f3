"""/metrics: exact text under a frozen clock, figures that are the report's, and counters that never fall."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import made_streams
import pytest
from exposed import Watched, counters, key, read
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from landing_cases import line
from made_events import T0_NS, S, attempt, by_hand, write
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from service_running import Collector, eventually, goodput

from goodput_collector import metrics_export
from goodput_collector.exposition import Family, Kind, page
from goodput_collector.metrics import COLLECTOR_FAMILIES, FAMILIES, RUN_FAMILIES, MetricOptions
from goodput_collector.metrics_figures import WINDOWS
from goodput_collector.metrics_urgent import Waiting

NOW_NS = T0_NS + 80 * S
GOLDEN = Path(__file__).with_name("metrics_by_hand.prom")


class Clock:
    def __init__(self, now_ns: int = NOW_NS) -> None:
        self.now_ns = now_ns

    def __call__(self) -> int:
        return self.now_ns


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def watched(tmp_path: Path, clock: Clock) -> Iterator[Watched]:
    found = Watched(tmp_path, clock)
    yield found
    found.close()


def send_by_hand(watched: Watched, *skip: str) -> None:
    for name, data in made_streams.streams().items():
        if not name.startswith(skip or ("-",)):
            watched.send(name, data)


def bare(body: bytes) -> str:
    """The text without what depends on the machine: the size of the file and how long a round took."""
    return "".join(
        text for text in body.decode().splitlines(keepends=True)
        if not text.startswith(("goodput_collector_database_bytes ", "goodput_collector_refresh_seconds "))
    )  # fmt: skip


def test_the_exact_text_of_a_known_run(watched: Watched) -> None:
    send_by_hand(watched)
    watched.board.refresh()
    assert bare(watched.board.page(False)) == GOLDEN.read_text()


def test_openmetrics_says_the_same(watched: Watched) -> None:
    send_by_hand(watched)
    types, values = watched.scrape()
    open_types, open_values = read(watched.board.page(True), openmetrics=True)
    assert open_values == values
    assert set(types) == {one.sample_name for one in FAMILIES if one.sample_name in types}
    assert set(open_types) == {one.name for one in FAMILIES if one.sample_name in types}
    assert open_types["goodput_run"] == "info" and types["goodput_run_info"] == "gauge"
    assert open_types["goodput_steps"] == types["goodput_steps_total"] == "counter"


def test_names_are_read_back_whatever_they_hold() -> None:
    family = Family(name="goodput_x", kind=Kind.GAUGE, help='a \\ and "quotes"')
    odd = ['a"b', "a\\", "a\nb", "a\\nb", "ä}{,=", ""]
    body = page([(family, [family.sample(index, {"run": name}) for index, name in enumerate(odd)])], False)
    assert read(body)[1] == {key("goodput_x", run=name): index for index, name in enumerate(odd)}
    with pytest.raises(ValueError, match="no value"):
        family.sample(float("nan"))


def test_the_library_of_prometheus_reads_the_same_back(watched: Watched) -> None:
    """The same samples, by a reader that is not ours, from both formats."""
    send_by_hand(watched)
    watched.board.refresh()
    for openmetrics, parse in ((False, parse_text), (True, parse_openmetrics)):
        body = watched.board.page(openmetrics)
        found = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in parse(body.decode())
            for sample in family.samples
        }
        assert found == read(body, openmetrics=openmetrics)[1] and len(found) > 100


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is missing: apt-get install prometheus")
def test_promtool_reads_it_and_has_nothing_to_say(watched: Watched) -> None:
    send_by_hand(watched)
    watched.board.refresh()
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=watched.board.page(False), capture_output=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_names_and_labels_are_as_designed(watched: Watched) -> None:
    send_by_hand(watched)
    _, values = watched.scrape()
    for name, labels in values:
        assert not {label for label, _ in labels} & {"job", "instance", "step", "attempt"}
        assert ("run" in dict(labels)) is not name.startswith("goodput_collector_")
    assert all(one.help.endswith(".") for one in FAMILIES) and len({one.name for one in FAMILIES}) == len(FAMILIES)
    assert all(one.name.startswith("goodput_collector_") for one in COLLECTOR_FAMILIES)
    assert not any(one.name.startswith("goodput_collector_") for one in RUN_FAMILIES)
    assert sum(dict(labels).get("run") == "by-hand" for _, labels in values) <= 150


def check_against_report(watched: Watched, run: str) -> None:
    """Every figure is the report's, and the windows are cut from the ledger's intervals."""
    _, values = watched.scrape()
    told = watched.reports.told(run, 3600)
    for category, gpu_s in told.report.gpu_s.items():
        assert values[key("goodput_gpu_seconds", run=run, category=category)] == gpu_s
    assert values.get(key("goodput_ratio", run=run)) == told.report.goodput_ratio
    assert values.get(key("goodput_at_risk_gpu_seconds", run=run)) == told.report.at_risk_gpu_s
    from goodput_collector.relations import Window

    table, more = watched.reports.relation("ledger_intervals", run, Window())
    assert not more
    end_ns = max(watched.clock_ns(), told.report.as_of_ns)
    lengths_s = dict(zip(WINDOWS, (300, 3600, 21_600, 86_400, 259_200), strict=True))
    for window, length_s in lengths_s.items():
        wanted = dict.fromkeys(told.report.gpu_s, 0)
        for row in table.to_pylist():
            inside = min(row["end_ns"], end_ns) - max(row["start_ns"], end_ns - length_s * S)
            wanted[row["category"]] += max(inside, 0) * row["gpus"]
        for category, gpu_ns in wanted.items():
            found = values[key("goodput_window_gpu_seconds", run=run, category=category, window=window)]
            assert found == gpu_ns / S, (window, category)
        ratio = values.get(key("goodput_window_ratio", run=run, window=window))
        assert ratio == (wanted["productive"] / sum(wanted.values()) if any(wanted.values()) else None)


def test_the_figures_are_the_reports_also_while_a_rollback_arrives(watched: Watched, clock: Clock) -> None:
    clock.now_ns = T0_NS + 44 * S
    first = [name for name in made_streams.streams() if name.startswith("a0")]
    for name in first:
        watched.send(name, made_streams.streams()[name])
    check_against_report(watched, "by-hand")
    rework = key("goodput_gpu_seconds", run="by-hand", category="rework")
    before = watched.scrape()[1][rework]
    clock.now_ns = T0_NS + 54 * S
    for name, data in made_streams.streams().items():
        if name.startswith("a1"):
            lines = data.splitlines(keepends=True)
            watched.send(name, b"".join(lines[:3]))
    check_against_report(watched, "by-hand")
    clock.now_ns = T0_NS + 290 * S
    for name, data in made_streams.streams().items():
        if name.startswith("a1"):
            watched.send(name, b"".join(data.splitlines(keepends=True)[3:]))
    check_against_report(watched, "by-hand")
    assert watched.scrape()[1][rework] >= before > 0
    # The past is corrected where it lies: the five minutes now begin in the middle of the first attempt.
    clock.now_ns = T0_NS + 320 * S
    check_against_report(watched, "by-hand")
    window = key("goodput_window_gpu_seconds", run="by-hand", category="startup", window="5m")
    assert 0 < watched.scrape()[1][window] < 39.2


def test_a_run_that_ended_leaves_and_one_that_fell_silent_stays(watched: Watched, clock: Clock) -> None:
    send_by_hand(watched)
    watched.send("s0", made_streams.steps("s0", 3, run="silent"))
    start = {"kind": "start", "run": "silent", "source": "s0", "seq": 3, "ts_ns": T0_NS, "v": 1, "rank": 0,
             "world_size": 1, "process_start_ns": T0_NS, "job": "j"}  # fmt: skip
    watched.send("s0", line(start) + b"\n")
    age = key("goodput_last_event_timestamp_seconds", run="silent")
    assert watched.scrape()[1][age] == T0_NS / S + 3
    clock.now_ns = T0_NS + 73 * S + 6 * 3600 * S
    _, values = watched.scrape()
    assert key("goodput_ratio", run="by-hand") in values
    assert values[key("goodput_run_state", run="silent", state="lost")] == 1
    clock.now_ns += S
    _, values = watched.scrape()
    assert not [one for one in values if dict(one[1]).get("run") == "by-hand"]
    assert values[age] == T0_NS / S + 3
    assert values[key("goodput_collector_exported_runs")] == 1
    clock.now_ns = T0_NS + 3 * S + 3 * 86_400 * S + S
    assert age not in watched.scrape()[1]


def test_of_too_many_runs_the_latest_are_told_and_the_others_counted(tmp_path: Path, clock: Clock) -> None:
    watched = Watched(tmp_path, clock, MetricOptions(most_runs=2, labels=("team",)))
    for number in range(4):
        shifted = attempt(0, started_s=number, first_step_s=10 + number, steps=range(1, 6), resumed=None,
                          stop_s=20 + number, reason="finished")  # fmt: skip
        lines = b""
        for event in shifted:
            own = event | {"run": f"run-{number}", "source": f"{number}-{event['source']}"}
            if event["kind"] == "start":
                own |= {"labels": {"team": f"t{number}", "odd": {"a": 1}}, "attempt_token": f"t{number}"}
            lines += line(own) + b"\n"
        watched.send(f"n{number}", lines)
    _, values = watched.scrape()
    runs = {dict(labels)["run"] for name, labels in values if name == "goodput_run_info"}
    assert runs == {"run-2", "run-3"}
    assert values[key("goodput_run_info", run="run-3", team="t3")] == 1
    assert values[key("goodput_collector_left_out_runs")] == 2
    watched.close()


def test_a_save_is_the_first_of_its_kind_once(watched: Watched, clock: Clock) -> None:
    """A long one is judged by those before it; where there is none yet, /metrics says so."""
    first, state = key("goodput_first_span", run="r"), key("goodput_run_state", run="r", state="hung")
    seq = 0

    def tell(at_s: float, *events: dict[str, Any]) -> tuple[float, float]:
        """What is told at a moment, and whether the run is in a first span and counts as hung then."""
        nonlocal seq
        for event in events:
            watched.send("r0", line({"run": "r", "source": "r0", "seq": seq, "ts_ns": clock.now_ns, **event}) + b"\n")
            seq += 1
        clock.now_ns = T0_NS + round(at_s * S)
        _, values = watched.scrape()
        return values[first], values[state]

    def step(number: int, start_s: float) -> dict[str, Any]:
        start_ns = T0_NS + round(start_s * S)
        return {"kind": "step", "step": number, "start_ns": start_ns, "end_ns": start_ns + S, "ts_ns": start_ns + S}

    clock.now_ns = T0_NS
    start = {"kind": "start", "v": 1, "job": "j", "rank": 0, "world_size": 1, "process_start_ns": T0_NS}
    assert tell(3, start, {"kind": "resume", "step": None}, step(1, 1), step(2, 2)) == (0, 0)
    save = {"kind": "begin", "span": "checkpoint", "id": 1, "step": 2}
    assert tell(4, save) == (1, 0)
    assert tell(120, {"kind": "heartbeat", "step": 2, "phase": "checkpoint", "phase_since_ns": T0_NS}) == (1, 1)
    assert tell(122, save | {"kind": "end"}, step(3, 121)) == (0, 0)
    assert tell(200, save | {"id": 2, "step": 3}) == (0, 0)
    assert tell(600, {"kind": "heartbeat", "step": 3, "phase": "checkpoint", "phase_since_ns": T0_NS}) == (0, 1)
    evaluation = {"kind": "begin", "span": "evaluation", "id": 3, "step": 3}
    assert tell(602, save | {"kind": "end", "id": 2, "step": 3}, evaluation) == (1, 0)


@pytest.mark.soak
def test_a_run_that_stands_still_does_not_wait_for_its_turn(watched: Watched, clock: Clock, monkeypatch: Any) -> None:
    """With hundreds of runs a round takes minutes: a hang is seen after seconds all the same, and so is its end."""
    names = [f"r{number}" for number in range(3)]
    seqs = dict.fromkeys(names, 0)

    def tell(run: str, **event: Any) -> None:
        head = {"run": run, "source": f"{run}-0", "seq": seqs[run], "ts_ns": clock.now_ns}
        seqs[run] += 1
        watched.send(run, line(head | event) + b"\n")

    def step(run: str) -> None:
        tell(run, kind="step", step=seqs[run], start_ns=clock.now_ns - S, end_ns=clock.now_ns)

    for run in names:
        tell(run, kind="start", v=1, job="j", rank=0, world_size=1, process_start_ns=T0_NS, attempt_token=run)
        step(run)
    watched.scrape()
    bare, looked = watched.reports.told, []

    def told(run: str, windows_age_s: float) -> Any:
        looked.append(run)
        found = bare(run, windows_age_s)
        clock.now_ns += 16 * S
        for one in names:
            tell(one, kind="heartbeat", step=seqs["r1"], phase="step") if one == hung else step(one)
        return found

    hung = "r1"
    monkeypatch.setattr(watched.reports, "told", told)
    clock.now_ns += 30 * S
    for run in names:
        tell(run, kind="heartbeat", step=1, phase="step") if run == hung else step(run)
    watched.scrape()
    assert looked.count("r1") >= 3 and all(looked.count(run) == 1 for run in names if run != "r1"), looked
    assert looked.index("r1") <= 1
    hung = ""
    looked.clear()
    _, values = watched.scrape()
    assert looked[0] == "r1" and values[key("goodput_run_state", run="r1", state="running")] == 1
    # Who is urgent: who was heard just now, stands still, and was not looked at just now.
    told_of = watched.board._shown["r1"].told
    end_ns = told_of.figures.windows_end_ns
    for after_s, heard_s, still, urgent in ((16, 16, True, True), (15, 15, True, False), (16, 16, False, False),
                                            (136, 16, True, True), (137, 16, True, False)):  # fmt: skip
        one = Waiting(told=told_of, heard_ns=end_ns + heard_s * S, still=still)
        assert one.urgent(end_ns + after_s * S) is urgent, (after_s, heard_s, still)


def test_a_round_rests_for_what_it_computed_and_not_for_what_it_waited(watched: Watched, monkeypatch: Any) -> None:
    """On a busy machine a round would else last twice as long as it must."""
    send_by_hand(watched)
    bare, rested = watched.reports.told, []

    def told(run: str, windows_age_s: float) -> Any:
        time.sleep(1.5)
        begun_s = time.thread_time()
        while time.thread_time() - begun_s < 0.2:
            pass
        return bare(run, windows_age_s)

    def rest(cost_s: float) -> bool:
        rested.append(cost_s)
        return False

    monkeypatch.setattr(watched.reports, "told", told)
    watched.board.refresh(rest)
    (cost_s,) = rested
    assert 0.2 <= cost_s < 1.5


@pytest.mark.parametrize("label", ["run", "job", "instance", "", "a-b", "1a", "__x"])
def test_labels_that_cannot_be_are_refused(label: str) -> None:
    with pytest.raises(ValueError, match="cannot be a label"):
        MetricOptions(labels=(label,))


def test_counters_go_on_after_a_restart_and_when_the_past_shrinks(watched: Watched, clock: Clock) -> None:
    send_by_hand(watched)
    _, before = watched.scrape()
    allocated = key("goodput_allocated_gpu_seconds_total", run="by-hand")
    assert before[allocated] == 146
    # The scheduler says that the job held one GPU, and not for so long: the ledger shrinks, the counter does not.
    grant = {
        "kind": "allocation",
        "source": "slurm",
        "seq": 0,
        "ts_ns": T0_NS + 75 * S,
        "job": "local:host:1",
        "gpus": 1,
        "submit_ns": T0_NS - 30 * S,
        "start_ns": T0_NS,
        "end_ns": T0_NS + 73 * S,
        "end_reason": "completed",
    }
    watched.send("slurm", line(grant) + b"\nnonsense\n")
    _, after = watched.scrape()
    assert sum(value for one, value in after.items() if one[0] == "goodput_gpu_seconds") == 73
    assert after[allocated] == 146
    assert after[key("goodput_queue_wait_seconds", run="by-hand")] == 30
    watched.close()
    watched.open()
    types, again = watched.scrape()
    assert counters(types, again) == counters(types, after)
    assert again[key("goodput_collector_events_total")] == len(by_hand()) + 1
    assert sum(value for one, value in again.items() if one[0] == "goodput_collector_rejected_lines_total") == 1


def test_a_disk_that_refuses_stops_counters_and_not_gauges(watched: Watched, clock: Clock, monkeypatch: Any) -> None:
    import duckdb

    streams = made_streams.streams()
    for name in streams:
        watched.send(name, b"".join(streams[name].splitlines(keepends=True)[:5]))
    _, before = watched.scrape()
    for name in streams:
        watched.send(name, b"".join(streams[name].splitlines(keepends=True)[5:]))

    def refuse(_: object) -> None:
        raise duckdb.IOException("No space left on device")

    monkeypatch.setattr(watched.board._marks, "raised", refuse)
    _, after = watched.scrape()
    steps, ratio = key("goodput_steps_total", run="by-hand"), key("goodput_ratio", run="by-hand")
    assert after[steps] == before[steps] and after[ratio] != before[ratio]


def lives(data: st.DataObject) -> list[dict[str, Any]]:
    """A run of one to three attempts of two ranks, with any ends, and perhaps a grant."""
    events: list[dict[str, Any]] = []
    began, resumed = 0.0, None
    for number in range(data.draw(st.integers(1, 3))):
        first, length = (resumed or 0) + 1, data.draw(st.integers(1, 5))
        save = data.draw(st.sampled_from([None, first, first + length - 1]))
        reason = data.draw(st.sampled_from(["exception", "signal", "preempted", "finished"]))
        stop_s = began + 5 + length + (3 if save else 0) + data.draw(st.sampled_from([0.5, 40.0]))
        events += attempt(number, started_s=began, first_step_s=began + 4, steps=range(first, first + length),
                          resumed=resumed, save_after=save, stop_s=stop_s, reason=reason)  # fmt: skip
        resumed = data.draw(st.sampled_from([None, save, first + length - 1]))
        began = stop_s + data.draw(st.sampled_from([1.0, 90.0]))
    if data.draw(st.booleans()):
        gpus, held_s = data.draw(st.integers(0, 4)), data.draw(st.sampled_from([5, 60]))
        events.append(
            {
                "kind": "allocation",
                "run": "by-hand",
                "source": "slurm",
                "seq": 0,
                "ts_ns": T0_NS + 75 * S,
                "job": "local:host:1",
                "gpus": gpus,
                "start_ns": T0_NS,
                "end_ns": T0_NS + held_s * S,
            }
        )
    return events


@settings(max_examples=2, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_no_counter_ever_falls(data: st.DataObject) -> None:
    """The short form."""
    live_and_scrape(data)


@pytest.mark.soak
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_no_counter_ever_falls_in_a_hundred_lives(data: st.DataObject) -> None:
    """Five minutes. If it fails, Prometheus takes a fall for a restart, and counts everything a second time."""
    live_and_scrape(data)


def live_and_scrape(data: st.DataObject) -> None:
    """Any life of a run, in any order, with repeats, scrapes and restarts of the collector between."""
    events = data.draw(st.permutations(lives(data)))
    at = sorted(data.draw(st.sets(st.integers(1, len(events)), min_size=2, max_size=4)))
    restarts = data.draw(st.sets(st.sampled_from(at)))
    clock = Clock(T0_NS)
    with tempfile.TemporaryDirectory() as folder:
        watched = Watched(Path(folder), clock)
        told: dict[Any, float] = {}
        begun = 0
        for end in [*at, len(events)]:
            chosen = events[begun:end]
            for event in [*chosen, *(data.draw(st.lists(st.sampled_from(events[:end]), max_size=2)))]:
                watched.send(event["source"], line(event) + b"\n")
            clock.now_ns += data.draw(st.integers(1, 200)) * S
            begun = end
            if end in restarts:
                watched.close()
                watched.open()
            found = counters(*watched.scrape())
            fallen = {one: (value, found.get(one)) for one, value in told.items() if found.get(one, -1) < value}
            assert not fallen
            told = found
        watched.close()


def test_a_scrape_of_two_hundred_runs_costs_little(watched: Watched) -> None:
    send_by_hand(watched)
    watched.board.refresh()
    one = watched.board._shown["by-hand"]
    watched.board._shown = {f"run-{number}": one for number in range(200)}
    took = []
    for _ in range(5):
        begun = time.perf_counter()
        body = watched.board.page(True)
        took.append(time.perf_counter() - begun)
    assert body.count(b"\n") > 200 * 100
    assert min(took) < 0.05


def test_over_http_with_a_token_in_both_formats(tmp_path: Path) -> None:
    token, reader = tmp_path / "token", tmp_path / "reader"
    token.write_text("w" * 20)
    reader.write_text("r" * 20)
    options = ("--no-spool", "--token-file", token, "--read-token-file", reader, "--metric-hours", 1e6)
    with Collector(tmp_path, *options) as collector:
        assert collector.ask("/metrics")[0] == 401
        allowed = {"Authorization": f"Bearer {'r' * 20}"}
        for name, data in made_streams.streams().items():
            status, _, _ = collector.ask(
                f"/v1/streams/{name}?offset=0", "POST", data, {"Authorization": f"Bearer {'w' * 20}"}
            )
            assert status == 200

        def told() -> Any:
            status, body, headers = collector.ask("/metrics", headers=allowed)
            assert status == 200 and headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
            _, values = read(body)
            return values.get(key("goodput_steps_total", run="by-hand")) == 50

        eventually(told)
        accept = allowed | {"Accept": "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"}
        status, body, headers = collector.ask("/metrics", headers=accept)
        assert headers["content-type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
        types, values = read(body, openmetrics=True)
        assert values[key("goodput_collector_ready")] == 1
        report = json.loads(collector.ask("/v1/runs/by-hand/report", headers=allowed)[1])
        assert values[key("goodput_ratio", run="by-hand")] == report["goodput_ratio"]
        collector.kill()
        collector.start()
        eventually(lambda: collector.ask("/metrics", headers=allowed)[1].count(b'run="by-hand"') > 90)
        found = read(collector.ask("/metrics", headers=accept)[1], openmetrics=True)
        copied = tmp_path / "copied.prom"
        asked = ("--textfile", copied, "--to", collector.url)
        assert "wants a token" in goodput("export", *asked).stderr
        assert goodput("export", *asked, "--token-file", reader).returncode == 0
        assert read(copied.read_bytes())[1].keys() == found[1].keys()
        before, after = counters(types, values), counters(*found)
        assert all(after[one] >= value for one, value in before.items())
        assert collector.stop() < 5


def test_export_writes_the_same_to_a_file(tmp_path: Path) -> None:
    times = ("ts_ns", "start_ns", "end_ns", "process_start_ns")
    later_ns = time.time_ns() - NOW_NS
    events = [{k: v + later_ns if k in times else v for k, v in event.items()} for event in by_hand()]
    db, out = tmp_path / "c.duckdb", tmp_path / "goodput.prom"
    assert goodput("ingest", write(tmp_path / "e.jsonl", events), "--db", db).returncode == 0
    out.write_text("older")
    done = goodput("export", "--textfile", out, "--db", db)
    assert (done.returncode, done.stderr) == (0, "")
    _, values = read(out.read_bytes())
    assert values[key("goodput_steps_total", run="by-hand")] == 50
    assert values[key("goodput_restarts_total", run="by-hand", cause="crash")] == 1
    assert out.stat().st_mode & 0o777 == 0o644
    assert sorted(one.name for one in tmp_path.iterdir()) == ["c.duckdb", "e.jsonl", "goodput.prom"]
    for wrong, code, said in (
        (("--textfile", tmp_path / "x.txt"), 2, "end in .prom"),
        (("--textfile", out, "--to", "nowhere"), 2, "is not a collector's address"),
        (("--textfile", out, "--to", "http://127.0.0.1:9"), 1, "does not answer"),
    ):
        done = goodput("export", *wrong)
        assert done.returncode == code and said in " ".join(done.stderr.split()), done.stderr
        assert read(out.read_bytes())[1] == values


def test_a_run_that_cannot_be_computed_hides_no_other_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = by_hand()
    both = [*events, *({**event, "run": "broken"} for event in events)]
    db = tmp_path / "c.duckdb"
    assert goodput("ingest", write(tmp_path / "e.jsonl", both), "--db", db).returncode == 0
    compute = metrics_export.tell

    def tell(con: duckdb.DuckDBPyConnection, run: str, *rest: Any) -> Any:
        if run == "broken":
            raise duckdb.OutOfRangeException("Overflow in multiplication")
        return compute(con, run, *rest)

    monkeypatch.setattr(metrics_export, "tell", tell)
    body = metrics_export.text_of_database(db, NOW_NS, MetricOptions())
    assert b'run="by-hand"' in body and b'run="broken"' not in body
