"""Rows of single ranks go when they are old, and every figure of the run stays what it was."""

import json
import random
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pytest

import made_runs
from goodput_analytics import report, retention
from goodput_analytics.ledger import Ledger, build, run_names
from goodput_collector.chunks import Chunk
from goodput_collector.client import open_client
from goodput_collector.corrections import Act, Wish
from goodput_collector.database import open_database
from goodput_collector.errors import StorageError
from goodput_collector.keeping import Closed, Retention, apply, due, row_count
from goodput_collector.landing import Landing
from goodput_collector.metrics_marks import landed
from goodput_collector.rebuild import rebuild
from goodput_collector.relations import RELATIONS, Window, select
from goodput_collector.store import Store
from reference.wild import make_wild

S = made_runs.S
FOREVER_NS = 2**62
# What looks at single ranks looks at the rows that are left.
OF_RANKS = {"lateness", "view_lateness", "view_worst_ranks"}
BLOCKS = "SELECT source, sum(steps) FROM step_blocks JOIN sources USING (source_id) GROUP BY ALL ORDER BY ALL"
Event = dict[str, Any]


def told(con: duckdb.DuckDBPyConnection, run: str) -> dict[str, Any]:
    """All that is told of a run."""
    found: dict[str, Any] = {"report": report(con, run).as_json()}
    for name in sorted(set(RELATIONS) - OF_RANKS):
        found[name] = select(con, name, Window())[0].to_pylist()
    return found


def empty() -> duckdb.DuckDBPyConnection:
    """A database in memory; with one thread sums of floats come out the same every time."""
    con = open_database(":memory:")
    con.execute("SET threads = 1")
    return con


def load(con: duckdb.DuckDBPyConnection, folder: Path, events: list[Event]) -> dict[str, int]:
    file = folder / f"{random.getrandbits(64)}.jsonl"
    file.write_text("".join(json.dumps(event) + "\n" for event in events))
    return Landing(con).take([file]).rejected


def long_run(name: str = "long") -> made_runs.Made:
    """Four ranks, one of them slow, and one attempt of several blocks after one that died in a save."""
    made = (
        made_runs.Made(name, ranks=4).start(resume=None).steps(1, 60, step_s=1, slow=2).save(60).steps(61, 90, step_s=1)
    )
    for rank in range(4):
        made._tell(rank, "begin", made.now_ns + rank, span="checkpoint", id="torn", step=90)
    made.now_ns += 5 * S
    made.stop("exception", "boom")
    made.start(resume=60).steps(61, 1300, step_s=1, slow=1).save(1300).steps(1301, 2400, step_s=1, slow=3)
    return made


def without_losses(events: list[Event]) -> list[Event]:
    """Rank 0 tells a loss, as trainers do."""
    for event in events:
        if event["kind"] == "step" and event["source"].endswith("-0"):
            event["loss"] = 3 + 1000 / (event["step"] + 1)
    return events


@pytest.mark.parametrize("seed", [0, 5, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (2, 15))])
def test_a_wild_life_is_told_the_same_after_its_rows_have_gone(tmp_path: Path, seed: int) -> None:
    con = empty()
    con.execute("PRAGMA disable_optimizer")
    events = make_wild(Random(seed), disputed=False)
    load(con, tmp_path, events)
    for run in run_names(con):
        before = told(con, run)
        for before_ns in (Random(seed).choice(events)["ts_ns"], FOREVER_NS):
            apply(con, Retention(run=run, before_ns=before_ns))
            assert told(con, run) == before
    con.close()


def test_a_long_run_is_closed_block_by_block_while_it_goes_on(tmp_path: Path) -> None:
    made = long_run()
    events = without_losses(made.events)
    later = made_runs.Made("later")
    later.__dict__.update({**made.__dict__, "events": []})
    later.steps(2401, 2500, step_s=1, slow=3).save(2500).stop("exception", "again").start(resume=2500)
    later.steps(2501, 2520).stop("finished")
    kept, closed = empty(), empty()
    for con in (kept, closed):
        load(con, tmp_path, events)
    rows = row_count(closed)
    horizon_ns = max(event["ts_ns"] for event in events if event.get("step", 0) <= 2050)
    (old,) = due(closed, horizon_ns)
    one = Retention(run=old.run, before_ns=horizon_ns)
    gone = apply(closed, one)
    assert gone is not None
    # Of the block from 1000 on what ranks 0 (it tells the loss), 1 and 3 (they are slow) told is left.
    assert gone > 2000 and row_count(closed) == rows - gone
    assert told(closed, "long") == told(kept, "long")
    assert landed(closed) == landed(kept)
    # What if the worst were like the rest: told of the steps whose rows are left, not guessed for the others. In those
    # rank 3 was the only slow one; each of their seconds waited half for it, on four GPUs.
    worst = select(closed, "view_worst_ranks", Window())[0].to_pylist()
    assert [row["rank"] for row in worst] == [None, 3]
    assert worst[1]["saved_gpu_s"] == pytest.approx((2400 - 2000 + 1) * 0.5 * 4)
    assert len(select(kept, "view_worst_ranks", Window())[0]) > 2
    assert apply(closed, one) is None
    for con in (kept, closed):
        assert load(con, tmp_path, later.events) == {}
    assert told(closed, "long") == told(kept, "long")
    assert apply(closed, Retention(run="long", before_ns=FOREVER_NS)) > 0
    assert told(closed, "long") == told(kept, "long")
    kept.close()
    closed.close()


def test_a_restart_or_rollback_after_the_closing_counts_as_ever(tmp_path: Path) -> None:
    made = long_run()
    kept, closed = empty(), empty()
    for con in (kept, closed):
        load(con, tmp_path, made.events)
    horizon_ns = made.now_ns - 350 * S
    assert apply(closed, Retention(run="long", before_ns=horizon_ns)) > 0
    # The processes go on inside: a rollback to the save, then a new token without a new process.
    later = made_runs.Made("x")
    later.__dict__.update({**made.__dict__, "events": []})
    later.steps(2301, 2420, step_s=1)
    for rank in range(4):
        later._tell(rank, "joined", later.now_ns, attempt_token="inside", rank=rank, world_size=4)
        later._tell(rank, "resume", later.now_ns + S, step=2300)
    later.now_ns += 9 * S
    later.steps(2301, 2340).stop("finished")
    for con in (kept, closed):
        load(con, tmp_path, later.events)
    assert told(closed, "long") == told(kept, "long")
    kept.close()
    closed.close()


def test_what_comes_too_late_is_counted_and_changes_nothing(tmp_path: Path) -> None:
    made = long_run()
    con = empty()
    load(con, tmp_path, made.events)
    apply(con, Retention(run="long", before_ns=made.now_ns - 350 * S))
    before = told(con, "long")
    again = [event for event in made.events if event["kind"] == "step" and event["step"] in (70, 71)]
    other = {**again[0], "source": "another", "seq": 0}
    rejected = load(con, tmp_path, [*again, other])
    assert rejected == {"late": len(again) + 1}
    after = told(con, "long")
    # Nobody knows whose a rejected line was, but its file brought nothing else.
    assert after == before
    # What it tells now is taken, out of order too.
    new = {**made.events[-1], "seq": made.events[-1]["seq"] + 2, "ts_ns": made.now_ns + 2 * S}
    step = {"step": new["step"] + 2, "start_ns": made.now_ns + S, "end_ns": made.now_ns + 2 * S}
    assert load(con, tmp_path, [new | step]) == {}
    first = {**new, "seq": new["seq"] - 1, "ts_ns": made.now_ns + S}
    assert (
        load(con, tmp_path, [first | {"step": new["step"] + 1, "start_ns": made.now_ns, "end_ns": made.now_ns + S}])
        == {}
    )
    assert report(con, "long").quality.events == before["report"]["quality"]["events"] + 2
    blocks = con.execute(BLOCKS).fetchall()
    con.close()
    plain = open_database(":memory:")
    load(plain, tmp_path, [*made.events, new | step])
    load(plain, tmp_path, [first | {"step": new["step"] + 1, "start_ns": made.now_ns, "end_ns": made.now_ns + S}])
    assert plain.execute(BLOCKS).fetchall() == blocks
    plain.close()


def test_to_close_a_run_its_ledger_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []

    def count(con: duckdb.DuckDBPyConnection, run: str, **options: Any) -> Ledger:
        built.append(run)
        return build(con, run, **options)

    monkeypatch.setattr(retention, "build", count)
    store = Store(tmp_path / "c.duckdb", tmp_path / "c.archive")
    made = long_run()
    beside = made_runs.Made("long", ranks=2)
    beside._attempt = 7
    beside.start(resume=None).steps(1, 1500, step_s=1).stop("exception", "x")
    for number, events in enumerate((made.events, beside.events)):
        data = b"".join(json.dumps(event).encode() + b"\n" for event in events)
        assert store.take([Chunk(stream=f"s{number}", offset_bytes=0, data=data)])[0].fits
    con = store.cursor()
    before = [told(con, name) for name in ("long", "long~2")]
    con.close()
    closed = store.retain(made.now_ns)
    assert closed.runs == 1 and closed.rows > 2000
    assert built == ["long", "long~2"]
    con = store.cursor()
    assert [told(con, name) for name in ("long", "long~2")] == before
    closed_of = con.execute("SELECT count(*) FROM closed_steps").fetchall()
    con.close()
    store.close()
    built.clear()
    rebuild(tmp_path / "c.archive", tmp_path / "again.duckdb")
    assert built == ["long", "long~2"]
    again = open_database(tmp_path / "again.duckdb", read_only=True)
    assert again.execute("SELECT count(*) FROM closed_steps").fetchall() == closed_of
    again.close()


def test_a_run_of_which_nothing_can_be_closed_leaves_no_trace(tmp_path: Path) -> None:
    store = Store(tmp_path / "c.duckdb", tmp_path / "c.archive")
    made = made_runs.Made("alone", ranks=1).start().steps(1, 1200).stop("finished")
    data = b"".join(json.dumps(event).encode() + b"\n" for event in made.events)
    store.take([Chunk(stream="s", offset_bytes=0, data=data)])
    end = store.archive.end
    assert store.retain(FOREVER_NS - 1) == Closed(runs=0, rows=0)
    assert store.archive.end == end
    store.close()


def test_what_is_closed_is_in_the_archive_before_it_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path / "c.duckdb", tmp_path / "c.archive")
    data = b"".join(json.dumps(event).encode() + b"\n" for event in long_run().events)
    store.take([Chunk(stream="s", offset_bytes=0, data=data)])

    def full(_: Any) -> None:
        raise OSError(28, "No space left on device")

    con = store.cursor()
    rows = row_count(con)
    with monkeypatch.context() as patch, pytest.raises(StorageError, match="No space"):
        patch.setattr(store.archive, "append", full)
        store.retain(FOREVER_NS - 1)
    assert row_count(con) == rows and con.execute("SELECT count(*) FROM closed_steps").fetchall() == [(0,)]
    con.close()
    assert store.retain(FOREVER_NS - 1).rows > 2000
    store.close()


def test_merged_runs_are_closed_as_the_one_that_they_are(tmp_path: Path) -> None:
    first = made_runs.Made("first", ranks=3).start().steps(1, 50).save(50).steps(51, 60).stop("exception", "x")
    second = made_runs.Made("second", ranks=3)
    second.now_ns, second._attempt = first.now_ns, 5
    second.start(resume=50).steps(51, 90).stop("finished")
    store = Store(tmp_path / "c.duckdb", tmp_path / "c.archive")
    data = b"".join(json.dumps(event).encode() + b"\n" for event in (*first.events, *second.events))
    store.take([Chunk(stream="s", offset_bytes=0, data=data)])
    store.correct(Wish(act=Act.MERGE, run="second", to="first"), None, 5)
    con = store.cursor()
    before = told(con, "first")
    con.close()
    closed = store.retain(FOREVER_NS - 1)
    assert closed.runs == 1 and closed.rows > 200
    assert store.retain(FOREVER_NS - 1).rows == 0
    con = store.cursor()
    assert told(con, "first") == before
    con.close()
    store.compact()
    con = store.cursor()
    assert told(con, "first") == before
    con.close()
    con = store.cursor()
    # The writer's own tables are what they hold, not what a merged run shows.
    assert con.execute("SELECT count(DISTINCT run_id) FROM kept_steps").fetchall() == [(2,)]
    con.close()
    late = [{**event, "source": "b"} for event in first.events[:1]]
    more = b"".join(json.dumps(event).encode() + b"\n" for event in late)
    (answer,) = store.take([Chunk(stream="s", offset_bytes=len(data), data=more)])
    assert answer.fits and store.lander.counts.rejected == {"late": 1}
    store.close()
    rebuild(tmp_path / "c.archive", tmp_path / "again.duckdb")
    counts = []
    for name in ("c", "again"):
        client = open_client(tmp_path / f"{name}.duckdb")
        counts.append((client.report("first").as_json(), client.names()))
        client.close()
        con = open_database(tmp_path / f"{name}.duckdb", read_only=True)
        counts[-1] += (
            con.execute("SELECT count(*) FROM ev_step").fetchall(),
            con.execute("SELECT * EXCLUDE (run_id, source_id) FROM kept_steps ORDER BY ALL").fetchall(),
        )
        con.close()
    assert counts[0] == counts[1]
    assert counts[0][0]["quality"]["rejected"] == {"late": 1}
