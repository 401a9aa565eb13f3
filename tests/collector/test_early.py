"""Complete blocks of steps are kept reduced: every figure stays what it was, and less is read."""

import json
import random
import shutil
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pytest

import made_runs
from goodput_analytics import Early, report
from goodput_analytics.early import all_read
from goodput_analytics.report import report_and_summary
from goodput_collector import early
from goodput_collector.database import open_database
from goodput_collector.keeping import Retention, apply
from goodput_collector.landing import Landing
from goodput_collector.relations import OF_RANKS, RELATIONS, Window, select

S = made_runs.S
Event = dict[str, Any]


def empty() -> duckdb.DuckDBPyConnection:
    """A database in memory; with one thread sums of floats come out the same every time."""
    con = open_database(":memory:")
    con.execute("SET threads = 1")
    return con


def load(con: duckdb.DuckDBPyConnection, folder: Path, events: list[Event]) -> None:
    file = folder / f"{random.getrandbits(64)}.jsonl"
    file.write_text("".join(json.dumps(event) + "\n" for event in events))
    Landing(con).take([file])


def told(con: duckdb.DuckDBPyConnection, run: str, how: Early = Early.READ) -> dict[str, Any]:
    """All that is told of a run, but what looks at single ranks."""
    made, summary, launches = report_and_summary(con, run, early=how)
    found: dict[str, Any] = {"report": made.as_json(), "summary": summary, "launches": launches}
    for name in sorted(set(RELATIONS) - OF_RANKS):
        found[name] = select(con, name, Window())[0].to_pylist()
    return found


def refresh(con: duckdb.DuckDBPyConnection, run: str) -> dict[str, Any]:
    """A report as a collector makes it: it keeps what it found to be complete."""
    found = told(con, run, Early.FIND)
    complete = early.found(con)
    if complete is not None:
        early.keep(con, complete)
    return found


def same(con: duckdb.DuckDBPyConnection, run: str) -> bool:
    """Whether what is kept changes nothing; and whether anything is kept."""
    assert told(con, run) == told(con, run, Early.NONE)
    report(con, run)
    return not all_read(con)


def long_run(ranks: int = 4) -> made_runs.Made:
    """An attempt that dies in a save, and one of several blocks; one rank is slow, another for a time."""
    made = made_runs.Made("long", ranks=ranks).start(resume=None).steps(1, 1060, step_s=1, slow=2)
    made.save(1060).steps(1061, 1090, step_s=1)
    for rank in range(ranks):
        made._tell(rank, "begin", made.now_ns + rank, span="checkpoint", id="torn", step=1090)
    made.now_ns += 5 * S
    made.stop("exception", "boom")
    made.start(resume=1060).steps(1061, 2300, step_s=1, slow=1).save(2300)
    return made.steps(2301, 3400, step_s=1, slow=3)


@pytest.fixture(autouse=True)
def every_row_is_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("goodput_analytics.early.WORTH_ROWS", 1)


def test_a_long_run_is_kept_block_by_block_while_it_goes_on(tmp_path: Path) -> None:
    made = long_run()
    parts = [made.events[at : at + 4500] for at in range(0, len(made.events), 4500)]
    kept, plain = empty(), empty()
    for part in parts:
        for con in (kept, plain):
            load(con, tmp_path, part)
        assert refresh(kept, "long") == told(plain, "long", Early.NONE)
    assert same(kept, "long")
    below = kept.execute("SELECT source, below FROM closed_early JOIN sources USING (source_id) ORDER BY 1").fetchall()
    assert {row[1] for row in below} == {1000, 3000} and len(below) == 8
    # The step at which the first attempt hangs in its save is not complete.
    assert kept.execute("SELECT count(*) FROM kept_steps").fetchone() == (999 + 3000 - 1061,)


def _late_events(made: made_runs.Made) -> dict[str, list[Event]]:
    """What may come after the steps that it says something about were kept, by what it is."""
    own = [event for event in made.events if event["source"] == made.events[-1]["source"]]
    source, rank = own[-1]["source"], int(own[-1]["source"].rpartition("-")[2])
    steps = [event for event in own if event["kind"] == "step"]
    old, new = steps[300], steps[-1]
    base = {"v": 1, "run": "long", "source": source}
    at_ns = old["start_ns"] + (old["end_ns"] - old["start_ns"]) // 4
    start = next(event for event in made.events if event["kind"] == "start" and event["source"] == source)
    begin = {**base, "seq": 90_001, "ts_ns": at_ns, "kind": "begin", "span": "evaluation"}
    end = {**base, "seq": 90_002, "ts_ns": at_ns + S // 4, "kind": "end", "span": "evaluation"}
    return {
        "a span": [begin, end],
        "a span that never ends": [begin],
        "another content of a step": [{**old, "end_ns": old["end_ns"] - S // 5, "data_ns": S // 10}],
        "a resume": [{**base, "seq": 90_004, "ts_ns": new["ts_ns"] + S, "kind": "resume", "step": 2300}],
        "a rank that was silent": [
            {**start, "source": "long-x", "rank": rank, "seq": 0},
            *({**event, "source": "long-x", "seq": at + 1} for at, event in enumerate(steps[200:260])),
        ],
        "its end, before most of its steps": [
            {"v": 1, "run": "long", "source": "agent", "seq": 0, "ts_ns": at_ns, "kind": "exit_observed", "of": source,
             "signal": 9},
        ],
        "a stop, before most of its steps": [
            {**base, "seq": 90_003, "ts_ns": at_ns, "kind": "stop", "reason": "exception"}
        ],
        "an end of all": [
            {"v": 1, "run": "long", "source": "agent", "seq": at, "ts_ns": at_ns, "kind": "exit_observed", "of": one,
             "signal": 9}
            for at, one in enumerate(sorted({event["source"] for event in made.events if event["ts_ns"] > at_ns}))
        ],
        "nothing": [],
    }  # fmt: skip


LATE = _late_events(long_run())


@pytest.fixture(scope="module")
def refreshed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the long run, of which all that is complete is kept."""
    file = tmp_path_factory.mktemp("refreshed") / "long.duckdb"
    con = open_database(file)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("goodput_analytics.early.WORTH_ROWS", 1)
        load(con, file.parent, long_run().events)
        refresh(con, "long")
        assert same(con, "long")
    con.close()
    return file


SHORT = {
    "a span",
    "another content of a step",
    "a stop, before most of its steps",
}
"""Of those the ones that the short form tries."""


@pytest.mark.parametrize("what", [pytest.param(what, marks=() if what in SHORT else pytest.mark.soak) for what in LATE])
def test_what_comes_late_counts_as_if_nothing_were_kept(tmp_path: Path, refreshed: Path, what: str) -> None:
    kept = open_database(Path(shutil.copy(refreshed, tmp_path)))
    kept.execute("SET threads = 1")
    before = report(kept, "long").as_json()
    assert not all_read(kept)
    load(kept, tmp_path, LATE[what])
    after = told(kept, "long")
    assert after == told(kept, "long", Early.NONE)
    assert (after["report"] != before) == (what != "nothing")
    # It is kept anew, as it is now.
    assert refresh(kept, "long") == after
    assert told(kept, "long") == after


@pytest.mark.parametrize(
    "missing", ["start", *(pytest.param(one, marks=pytest.mark.soak) for one in ("step", "begin", "end"))]
)
def test_what_was_left_out_and_comes_at_last_counts(tmp_path: Path, missing: str) -> None:
    events = long_run().events
    at = [
        index for index, event in enumerate(events) if event["kind"] == missing and not event["source"].endswith("-0")
    ]
    out = at[len(at) // 2 :][:1]
    kept, plain = empty(), empty()
    load(kept, tmp_path, [event for index, event in enumerate(events) if index not in out])
    refresh(kept, "long")
    load(plain, tmp_path, events)
    load(kept, tmp_path, [events[index] for index in out])
    assert told(kept, "long") == told(plain, "long", Early.NONE)
    refresh(kept, "long")
    assert told(kept, "long") == told(plain, "long", Early.NONE)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 20))])
@pytest.mark.soak
def test_events_in_any_order_with_a_report_after_each_part(tmp_path: Path, seed: int) -> None:
    """The short form is one of twenty orders."""
    chance = Random(seed)
    events = list(long_run().events)
    for _ in range(40):  # runs of events that swap places: much comes in order, some late
        a, b = sorted(chance.sample(range(len(events)), 2))
        size = chance.randint(1, 200)
        events[a : a + size], events[b : b + size] = events[b : b + size], events[a : a + size]
    kept, plain = empty(), empty()
    at = 0
    while at < len(events):
        size = chance.randint(2500, 8000)
        for con in (kept, plain):
            load(con, tmp_path, events[at : at + size])
        at += size
        assert refresh(kept, "long") == told(plain, "long", Early.NONE)
    assert told(kept, "long") == told(plain, "long", Early.NONE)


def test_rows_of_ranks_that_go_leave_what_is_kept(tmp_path: Path) -> None:
    made = long_run()
    kept, plain = empty(), empty()
    for con in (kept, plain):
        load(con, tmp_path, made.events)
    refresh(kept, "long")
    wanted = told(plain, "long", Early.NONE)
    middle_ns = made.now_ns - 1200 * S
    for before_ns in (middle_ns, 2**62):
        assert apply(kept, Retention(run="long", before_ns=before_ns)) > 0
        assert told(kept, "long") == wanted
        refresh(kept, "long")
        assert told(kept, "long") == wanted
    # Found before the rows had gone, and kept only then.
    again = empty()
    load(again, tmp_path, made.events)
    told(again, "long", Early.FIND)
    late = early.found(again)
    assert late is not None
    assert apply(again, Retention(run="long", before_ns=middle_ns)) > 0
    early.keep(again, late)
    assert told(again, "long") == wanted


@pytest.mark.soak
def test_groups_and_ranks_that_are_named_are_told_the_same(tmp_path: Path) -> None:
    """Uneven stages, one slow rank in one of them, and saves: what is measured apart."""
    made = long_run(8)
    stages = {
        event["source"]: f"stage-{int(event['source'][-1]) // 4}"
        for event in made.events
        if event["source"][-1] in "01234567"
    }
    for event in made.events:
        if event["kind"] == "start":
            event["group"] = stages[event["source"]]
    kept, plain = empty(), empty()
    for con in (kept, plain):
        load(con, tmp_path, made.events)
    refresh(kept, "long")
    assert same(kept, "long")
    assert told(kept, "long") == told(plain, "long", Early.NONE)
    assert report(kept, "long").stragglers


def test_less_is_read_and_no_more_than_what_is_new(tmp_path: Path) -> None:
    """Ten steps after a short and after a long history: as many rows of ranks."""
    read = {}
    for length in (2200, 9200):
        made = made_runs.Made("long", ranks=8).start(resume=None).steps(1, length, step_s=1)
        con = empty()
        load(con, tmp_path, made.events)
        refresh(con, "long")
        later = made_runs.Made("long", ranks=8)
        later.__dict__.update({**made.__dict__, "events": []})
        later.steps(length + 1, length + 10, step_s=1)
        load(con, tmp_path, later.events)
        report(con, "long")
        read[length] = con.execute("SELECT count(*) FROM gp_open_steps").fetchall()[0][0]
        assert con.execute("SELECT count(*) FROM gp_window_parts").fetchall()[0][0] == length + 10
    assert read == {2200: 8 * 211, 9200: 8 * 211}


def _went_on(made: made_runs.Made, ranks: int, first: int, last: int, slow: int | None) -> list[Event]:
    """Events of more steps of the same run."""
    later = made_runs.Made("long", ranks=ranks)
    later.__dict__.update({**made.__dict__, "events": []})
    later.steps(first, last, step_s=1, slow=slow)
    made.now_ns = later.now_ns
    made.__dict__.update({**later.__dict__, "events": made.events})
    return later.events


def test_of_a_rank_that_is_named_no_more_is_read_than_what_is_new(tmp_path: Path) -> None:
    read = {}
    for length in (2200, 6200):
        made = made_runs.Made("long", ranks=4).start(resume=None).steps(1, length, step_s=1, slow=2)
        kept, plain = empty(), empty()
        for con in (kept, plain):
            load(con, tmp_path, made.events)
        refresh(kept, "long")
        assert kept.execute("SELECT count(*), max(step) FROM kept_measures").fetchone() == (
            length // 1000 * 1000 - 1,
            length // 1000 * 1000 - 1,
        )
        more = _went_on(made, 4, length + 1, length + 10, 2)
        for con in (kept, plain):
            load(con, tmp_path, more)
        assert told(kept, "long") == told(plain, "long", Early.NONE)
        read[length] = kept.execute("SELECT count(*) FROM gp_slow_steps").fetchall()[0][0]
        assert kept.execute("SELECT count(*) FROM gp_named_measures").fetchall()[0][0] == length + 10
    assert read == {2200: 211, 6200: 211}


def test_a_rank_that_is_named_late_is_read_once(tmp_path: Path) -> None:
    """It is slow after its older steps were kept: these are read, and then kept too, at once."""
    made = made_runs.Made("long", ranks=4).start(resume=None).steps(1, 2200, step_s=1)
    kept, plain = empty(), empty()
    for con in (kept, plain):
        load(con, tmp_path, made.events)
    refresh(kept, "long")
    assert kept.execute("SELECT count(*) FROM measured_early").fetchone() == (0,)
    more = _went_on(made, 4, 2201, 2240, 1)
    for con in (kept, plain):
        load(con, tmp_path, more)
    for read in (2239, 240):
        assert refresh(kept, "long") == told(plain, "long", Early.NONE)
        assert kept.execute("SELECT count(*) FROM gp_slow_steps").fetchone() == (read + 1,)
    assert kept.execute("SELECT count(*), max(step) FROM kept_measures").fetchone() == (1999, 1999)


def test_measures_that_are_kept_too_late_are_not_kept(tmp_path: Path) -> None:
    """They were taken before something else came, and the steps were kept anew meanwhile."""
    made = made_runs.Made("long", ranks=4).start(resume=None).steps(1, 2200, step_s=1)
    con, plain = empty(), empty()
    for one in (con, plain):
        load(one, tmp_path, made.events)
    refresh(con, "long")
    more = _went_on(made, 4, 2201, 2240, 1)
    slow = [event for event in made.events if event["kind"] == "step" and event["source"] == more[1]["source"]][700:760]
    late = [{**event, "end_ns": event["end_ns"] - S // 5, "data_ns": S // 10} for event in slow]
    for one in (con, plain):
        load(one, tmp_path, more)
    told(con, "long", Early.FIND)
    measures = early.found(con)
    assert measures is not None and "early_closing" not in measures.tables
    for one in (con, plain):
        load(one, tmp_path, late)
    told(con, "long", Early.FIND)
    steps = early.found(con)
    assert steps is not None
    early.keep(con, steps)
    early.keep(con, measures)
    assert told(con, "long") == told(plain, "long", Early.NONE)


@pytest.mark.soak
def test_a_rollback_inside_and_a_new_token_count_as_ever(tmp_path: Path) -> None:
    """The processes go on: back to the save, then as another attempt without a new process."""
    made = long_run()
    kept, plain = empty(), empty()
    for con in (kept, plain):
        load(con, tmp_path, made.events)
    refresh(kept, "long")
    for part in ("rollback", "token"):
        later = made_runs.Made("x")
        later.__dict__.update({**made.__dict__, "events": []})
        for rank in range(4):
            if part == "token":
                later._tell(rank, "joined", later.now_ns, attempt_token="inside", rank=rank, world_size=4)
            later._tell(rank, "resume", later.now_ns + S, step=2300)
        later.now_ns += 2 * S
        later.steps(2301, 3120, step_s=1)
        for con in (kept, plain):
            load(con, tmp_path, later.events)
        assert refresh(kept, "long") == told(plain, "long", Early.NONE)
        assert told(kept, "long") == told(plain, "long", Early.NONE)
        made = later
