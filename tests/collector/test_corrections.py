"""Corrections change what is shown, never what was recorded; they can be undone, and outlive a rebuild."""

import json
import random
from pathlib import Path
from typing import Any

import made_streams
import pytest
from made_events import attempt, by_hand, write
from service_running import Collector, goodput

from goodput_analytics import UnknownRun, report
from goodput_collector.client import open_client
from goodput_collector.corrections import Act, Cause, Correction, Wish
from goodput_collector.database import open_database
from goodput_collector.errors import ArchiveError, BadRequestError
from goodput_collector.landing import ingest_files
from goodput_collector.offline import edited
from goodput_collector.rebuild import rebuild
from goodput_collector.shown import resolve
from goodput_collector.store import Store


def loaded(folder: Path) -> Path:
    """A file with two halves of a run under two names, and the whole of it under a third."""
    halves = by_hand()
    whole = [{**event, "run": "whole", "source": f"w{event['source']}"} for event in halves]
    cut = {event["source"] for event in halves if str(event["source"]).startswith("a0")}
    parts = [{**event, "run": "first" if event["source"] in cut else "second"} for event in halves]
    assert {event["run"] for event in parts} == {"first", "second"}
    db = folder / "g.duckdb"
    ingest_files(db, [write(folder / "e.jsonl", [*parts, *whole])])
    return db


def extra(run: str, number: int, at_s: float) -> list[dict[str, Any]]:
    """One attempt more of a run."""
    told = attempt(
        number,
        started_s=at_s,
        first_step_s=at_s + 5,
        steps=range(1, 6),
        resumed=None,
        stop_s=at_s + 20,
        reason="exception",
    )
    return [{**event, "run": run} for event in told]


def report_of(db: Path, run: str) -> dict[str, Any]:
    client = open_client(db)
    try:
        told = client.report(run).as_json()
        del told["run"]
        return told
    finally:
        client.close()


def names(db: Path) -> list[str]:
    client = open_client(db)
    try:
        assert sorted(client.names()) == sorted(one.run for one in client.runs())
        return sorted(client.names())
    finally:
        client.close()


def make(db: Path, *wishes: Wish) -> list[Correction]:
    with edited(db, db.with_suffix(".archive")) as editor:
        return [editor.correct(wish) for wish in wishes]


def undo(db: Path, *ids: str) -> None:
    with edited(db, db.with_suffix(".archive")) as editor:
        for one in ids:
            assert editor.undo(one, "me").undone_ns is not None


def test_merged_halves_are_the_run_they_were_and_come_apart_again(tmp_path: Path) -> None:
    db = loaded(tmp_path)
    before = {run: report_of(db, run) for run in ("first", "second", "whole")}
    (made,) = make(db, Wish(act=Act.MERGE, run="second", to="first", who="me"))
    assert names(db) == ["first", "whole"]
    merged, whole = report_of(db, "first"), before["whole"]
    assert len(whole["attempts"]) > 1  # type: ignore[arg-type]
    # One file brought all of it, so what was rejected in it is every run's; the sources have other names, and no more.
    assert merged == whole
    assert report_of(db, "whole") == whole
    with pytest.raises(UnknownRun):
        report_of(db, "second")
    client = open_client(db)
    # The one connection goes from a merged run to another and back.
    for run in ("first", "whole", "first"):
        assert client.report(run).allocated_gpu_s == whole["allocated_gpu_s"]
        assert client.relation("steps", run).table.num_rows > 0
    client.close()
    undo(db, made.id)
    assert {run: report_of(db, run) for run in ("first", "second", "whole")} == before


def test_a_new_name_holds_for_what_comes_later_and_a_deleted_run_comes_back(tmp_path: Path) -> None:
    db = loaded(tmp_path)
    told = report_of(db, "first")
    renamed, _, deleted = make(
        db,
        Wish(act=Act.RENAME, run="first", to="llama"),
        Wish(act=Act.RENAME, run="second", to="other"),
        Wish(act=Act.DELETE, run="whole"),
    )
    assert names(db) == ["llama", "other"]
    assert report_of(db, "llama") == told
    with pytest.raises(UnknownRun):
        report_of(db, "first")
    late = extra("first", 7, 9000)
    summary = ingest_files(db, [write(tmp_path / "late.jsonl", late)])
    assert summary.runs == ("llama",)
    assert len(report_of(db, "llama")["attempts"]) == len(told["attempts"]) + 1  # type: ignore[arg-type]
    undo(db, deleted.id, renamed.id)
    assert names(db) == ["first", "other", "whole"]


def test_the_same_wish_again_has_no_further_effect(tmp_path: Path) -> None:
    db = loaded(tmp_path)
    wish = Wish(act=Act.RENAME, run="first", to="x", id="one")
    assert make(db, wish)[0] == make(db, wish)[0]
    # Also without an id: the name that is asked for is gone, because it was done.
    for again in (Wish(act=Act.RENAME, run="first", to="x"), Wish(act=Act.RENAME, run="x", to="x")):
        assert make(db, again)[0].id == "one"
    (merged,) = make(db, Wish(act=Act.MERGE, run="second", to="x"))
    (deleted,) = make(db, Wish(act=Act.DELETE, run="whole"))
    assert make(db, Wish(act=Act.MERGE, run="second", to="x"))[0] == merged
    assert make(db, Wish(act=Act.DELETE, run="whole"))[0] == deleted
    undo(db, "one", "one")
    con = open_database(db, read_only=True)
    assert con.execute("SELECT count(*) FROM corrections").fetchall() == [(3,)]
    con.close()
    # Undone is no longer done.
    assert make(db, Wish(act=Act.RENAME, run="first", to="x"))[0].id != "one"


def test_what_makes_no_sense_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    db = loaded(tmp_path)
    for wish, words in (
        (Wish(act=Act.RENAME, run="first", to="second"), "already"),
        (Wish(act=Act.RENAME, run="first", to="first"), "called"),
        (Wish(act=Act.RENAME, run="first", to="x~2"), "launch"),
        (Wish(act=Act.RENAME, run="first", to="a\nb"), "printed"),
        (Wish(act=Act.RENAME, run="first"), '"to"'),
        (Wish(act=Act.MERGE, run="first", to="first"), "itself"),
        (Wish(act=Act.INCIDENT, run="first", attempt=0), "cause"),
        (Wish(act=Act.INCIDENT, run="first", attempt=7, note="x"), "no such incident"),
        (Wish(act=Act.INCIDENT, run="first", note="x"), "attempt"),
    ):
        with pytest.raises(BadRequestError, match=words):
            make(db, wish)
    for unknown in (Wish(act=Act.DELETE, run="nobody"), Wish(act=Act.MERGE, run="first", to="nobody")):
        with pytest.raises(UnknownRun):
            make(db, unknown)
    make(db, Wish(act=Act.MERGE, run="first", to="second"))
    with pytest.raises(UnknownRun, match="first"):
        make(db, Wish(act=Act.MERGE, run="second", to="first"))
    with pytest.raises(BadRequestError, match="id"):
        undo(db, "nobody")
    assert names(db) == ["second", "whole"]


def test_an_incident_keeps_its_cause_and_note_when_attempts_are_numbered_anew(tmp_path: Path) -> None:
    db = loaded(tmp_path)

    def notes(run: str) -> list[dict[str, Any]]:
        client = open_client(db)
        try:
            return client.relation("notes", run).table.to_pylist()
        finally:
            client.close()

    (incident,) = report_of(db, "whole")["incidents"][:1]  # type: ignore[index]
    told = Wish(act=Act.INCIDENT, run="whole", attempt=incident["attempt"], cause=Cause.USER, who="me")
    first, _ = make(db, told, Wish(**{**_fields(told), "cause": Cause.HARDWARE, "note": "ECC on node0"}))
    (note,) = notes("whole")
    assert (note["cause"], note["said_cause"], note["note"], note["who"]) == (
        incident["cause"], "hardware", "ECC on node0", "me",
    )  # fmt: skip
    assert note["abort_ns"] == incident["abort_ns"] and notes("first") == []
    earlier = extra("whole", 8, -5000)
    ingest_files(db, [write(tmp_path / "earlier.jsonl", earlier)])
    (moved,) = notes("whole")
    assert moved["attempt"] == int(incident["attempt"]) + 1 and moved["note"] == "ECC on node0"
    client = open_client(db)
    latest = client.corrections()[0]
    client.close()
    undo(db, latest.id)
    (back,) = notes("whole")
    assert (back["said_cause"], back["note"], back["id"]) == ("user", None, first.id)


def _fields(wish: Wish) -> dict[str, Any]:
    return {name: getattr(wish, name) for name in ("act", "run", "attempt", "who")}


def test_a_name_belongs_to_the_run_that_recorded_it() -> None:
    def shown(recorded: str, **more: object) -> dict[str, tuple[str, str]]:
        given = {"merged": {}, "renamed": {}, "deleted": []} | more
        found = resolve(recorded.split(), **given)  # type: ignore[arg-type]
        return {run: (one.root, one.name if not one.hidden else "") for run, one in sorted(found.items())}

    assert shown("a b") == {}
    assert shown("a", renamed={"a": "b"}) == {"a": ("a", "b")}
    # b has come since: a is shown as it was recorded, and c, which had been given the name a, as it was too.
    assert shown("a b c", renamed={"a": "b", "c": "a"}) == {}
    assert shown("a c", renamed={"a": "b", "c": "a"}) == {"a": ("a", "b"), "c": ("c", "a")}
    assert shown("a b", renamed={"a": "b"}, deleted=["b"]) == {"a": ("a", "b"), "b": ("b", "")}
    assert shown("a b c", merged={"a": "b", "b": "c"}, renamed={"b": "x", "c": "y"}) == {
        "a": ("c", "y"), "b": ("c", "y"), "c": ("c", "y"),
    }  # fmt: skip
    assert shown("a b", merged={"a": "gone"}, renamed={"gone": "x"}, deleted=["gone"]) == {}
    assert shown("a b", merged={"a": "b"}, deleted=["b"]) == {"a": ("b", ""), "b": ("b", "")}


def test_a_rebuild_has_the_corrections_and_the_file_alone_is_refused(tmp_path: Path) -> None:
    db, archive = tmp_path / "c.duckdb", tmp_path / "c.archive"
    store = Store(db, archive)
    streams = made_streams.streams()
    some = dict(sorted(streams.items())[:2])
    made_streams.send_all(store, some, random.Random(1))
    renamed = store.correct(Wish(act=Act.RENAME, run="by-hand", to="llama"), None, 5)
    gone = store.correct(Wish(act=Act.RENAME, run="llama", to="never mind"), None, 6)
    store.undo(gone.id, "me", 7)
    made_streams.send_all(store, streams, random.Random(2))
    store.close()
    assert names(db) == ["llama"]
    made = make(db, Wish(act=Act.INCIDENT, run="llama", attempt=0, note="by hand"))
    rebuild(archive, tmp_path / "again.duckdb")
    assert made_streams.state(tmp_path / "again.duckdb") == made_streams.state(db)
    for one in (db, tmp_path / "again.duckdb"):
        client = open_client(one)
        assert [known.id for known in client.corrections()] == [made[0].id, gone.id, renamed.id]
        assert client.corrections()[1].undone_by == "me"
        assert [row["note"] for row in client.relation("notes", "llama").table.to_pylist()] == ["by hand"]
        client.close()
    archive.rename(tmp_path / "elsewhere")
    with pytest.raises(ArchiveError, match="--archive"):
        make(db, Wish(act=Act.DELETE, run="llama"))


def test_a_collector_is_corrected_while_it_runs(tmp_path: Path) -> None:
    with Collector(tmp_path, "--no-spool") as collector:
        for name, data in made_streams.streams().items():
            collector.post(f"/v1/streams/{name}?offset=0", data)
        client = open_client(collector.url)
        assert client.names() == ["by-hand"]
        before = client.report("by-hand")
        made = client.correct(Wish(act=Act.RENAME, run="by-hand", to="llama", who="me"))
        assert client.names() == ["llama"] == [one.run for one in client.runs()]
        assert client.report("llama").gpu_s == before.gpu_s
        with pytest.raises(UnknownRun, match="llama"):
            client.report("by-hand")
        client.correct(Wish(act=Act.INCIDENT, run="llama", attempt=0, cause=Cause.PLANNED, note="drained"))
        assert client.relation("notes", "llama").table["said_cause"].to_pylist() == ["planned"]
        for body in (
            b"[]", b'{"act":"rename"}', b'{"act":"drop","run":"x"}', b'{"act":"delete","run":7}', b'{"act":"delete"}',
            b'{"act":"incident","run":"llama","attempt":1e400}', b'{"act":"incident","run":"llama","attempt":"0"}',
            b'{"act":"incident","run":"llama","attempt":0,"cause":"fate"}', b'{"act":"delete","run":"llama","sql":"x"}',
            b'{"act":"incident","run":"llama","attempt":99999999999999999999,"note":"x"}',
        ):  # fmt: skip
            status, said = collector.post("/v1/corrections", body)
            assert status == 400 and list(said) == ["error"], (body, said)
        status, _ = collector.post("/v1/corrections", b'{"act":"delete","run":"nobody"}')
        assert status == 404
        there = ("--url", collector.url, "--json")
        listed = json.loads(goodput("correct", "list", *there).stdout)["corrections"]
        assert [one["act"] for one in listed] == ["incident", "rename"]
        assert json.loads(goodput("correct", "undo", made.id, *there, "--who", "him").stdout)["undone_by"] == "him"
        assert client.names() == ["by-hand"]
    assert names(collector.db) == ["by-hand"]


def test_the_command_corrects_a_file(tmp_path: Path) -> None:
    db = loaded(tmp_path)
    where = ("--db", db)
    for words in (
        ("rename", "first", "llama", "--who", "me"),
        ("merge", "second", "llama"),
        ("delete", "whole"),
        ("incident", "llama", "0", "--cause", "hardware", "--note", "ECC"),
    ):
        done = goodput("correct", *words, *where)
        assert done.returncode == 0 and done.stderr == "", done
    assert names(db) == ["llama"]
    told = goodput("correct", "list", *where).stdout
    assert "first renamed to llama" in told and "by me" in told and "hardware (ECC)" in told
    for words, said in (
        (("delete", "lama"), "did you mean llama"),
        (("merge", "llama", "llama"), "itself"),
        (("undo", "nobody"), "no correction"),
    ):
        done = goodput("correct", *words, *where)
        assert done.returncode == 1 and said in done.stderr and done.stderr.count("\n") == 1, done
    assert goodput("correct", "delete", "x", "--db", tmp_path / "none.duckdb").returncode == 1
    con = open_database(db, read_only=True)
    assert report(con, "llama").allocated_gpu_s > 0
    con.close()
