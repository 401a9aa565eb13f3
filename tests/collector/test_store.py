"""Chunks of streams are kept once, in archive and database alike, and the database can be made again."""

import json
import random
import threading
from collections.abc import Sequence
from pathlib import Path

import duckdb
import made_streams
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from landing_cases import line, step

import goodput_analytics
from goodput_collector.archive import Position, Record
from goodput_collector.chunks import Answer, Chunk
from goodput_collector.database import open_database
from goodput_collector.errors import ArchiveError, DatabaseError, StorageError
from goodput_collector.landing import ingest_files
from goodput_collector.lines import MAX_LINE_BYTES
from goodput_collector.rebuild import rebuild
from goodput_collector.store import Store, admit


def opened(folder: Path) -> Store:
    return Store(folder / "c.duckdb", folder / "c.archive")


def report(db: Path, run: str = "by-hand") -> str:
    con = open_database(db, read_only=True)
    try:
        return json.dumps(goodput_analytics.report(con, run).as_json(), sort_keys=True)
    finally:
        con.close()


def of_one_ingest(folder: Path, streams: dict[str, bytes]) -> dict[str, object]:
    """What the database holds when the streams are loaded as files."""
    for name, data in streams.items():
        (folder / f"{name}.jsonl").write_bytes(data)
    ingest_files(folder / "whole.duckdb", sorted(folder.glob("*.jsonl")))
    store = Store(folder / "whole.duckdb", folder / "none.archive")
    store.close()
    return made_streams.state(folder / "whole.duckdb")


EVENT_TABLES = ("step", "start", "resume", "begin", "end", "stop", "delivery", "displaced", "ranges", "names")


@pytest.mark.parametrize("seed", range(3))
def test_streams_sent_badly_are_kept_once_and_rebuilt_the_same(seed: int, tmp_path: Path) -> None:
    streams = made_streams.streams()
    chance = random.Random(seed)
    store = opened(tmp_path)
    made_streams.send_all(store, {name: data[: len(data) // 2] for name, data in streams.items()}, chance)
    store.close()
    store = opened(tmp_path)
    made_streams.send_all(store, streams, chance)
    store.close()
    kept, whole = made_streams.state(tmp_path / "c.duckdb"), of_one_ingest(tmp_path, streams)
    assert {name: kept[name] for name in EVENT_TABLES} == {name: whole[name] for name in EVENT_TABLES}
    assert report(tmp_path / "c.duckdb") == report(tmp_path / "whole.duckdb")
    done = rebuild(tmp_path / "c.archive", tmp_path / "again.duckdb")
    assert made_streams.state(tmp_path / "again.duckdb") == kept
    assert report(tmp_path / "again.duckdb") == report(tmp_path / "c.duckdb")
    lines = sum(data.count(b"\n") for data in streams.values())
    assert (done.events, done.streams, done.damaged_bytes) == (lines, len(streams), 0)


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=300), st.integers(0, 2**32))
def test_any_bytes_are_rebuilt_the_same(tmp_path_factory: pytest.TempPathFactory, noise: bytes, seed: int) -> None:
    folder = tmp_path_factory.mktemp("bytes")
    good = made_streams.steps("s0", 4)
    streams = {"a": good + noise + b"\n" + made_streams.steps("s1", 2), "b": b"\xef\xbb\xbf" + good, "c": noise}
    store = opened(folder)
    chance = random.Random(seed)
    for _ in range(6):
        names = list(streams)
        chunks = [
            Chunk(stream=name, offset_bytes=at, data=streams[name][at : at + chance.randint(0, 400)])
            for name, at in zip(names, store.offsets(names), strict=True)
        ]
        store.take(chunks)
    rest = zip(streams, store.offsets(list(streams)), strict=True)
    store.take([Chunk(stream=name, offset_bytes=at, data=streams[name][at:], final=True) for name, at in rest])
    store.close()
    rebuild(folder / "c.archive", folder / "again.duckdb")
    kept = made_streams.state(folder / "c.duckdb")
    assert made_streams.state(folder / "again.duckdb") == kept
    assert [offset for _, offset, *_ in kept["streams"]] == [len(streams[n]) for n in sorted(streams) if streams[n]]


def test_a_chunk_is_taken_up_to_its_last_whole_line() -> None:
    assert admit(5, Chunk(stream="s", offset_bytes=4, data=b"x\n")) is None
    assert admit(5, Chunk(stream="s", offset_bytes=5, data=b"no end")) is None
    found = admit(5, Chunk(stream="s", offset_bytes=5, data=b"a\nb"))
    assert found is not None and (found.data, found.end_bytes) == (b"a\n", 7)
    found = admit(5, Chunk(stream="s", offset_bytes=5, data=b"a\nb", final=True))
    assert found is not None and (found.data, found.end_bytes) == (b"a\nb", 8)
    long = admit(0, Chunk(stream="s", offset_bytes=0, data=b"x" * (MAX_LINE_BYTES + 1)))
    assert long is not None and long.skipped and len(long.data) == 256 and long.end_bytes == MAX_LINE_BYTES + 1


def test_a_line_too_long_is_left_out_and_what_follows_is_kept(tmp_path: Path) -> None:
    store = opened(tmp_path)
    begin = made_streams.steps("s0", 2)
    long = b"x" * (MAX_LINE_BYTES + 1)
    rest = b"xx\n" + line(step(7)) + b"\n"
    at = 0
    for data in (begin, long, rest):
        (answer,) = store.take([Chunk(stream="s", offset_bytes=at, data=data)])
        at = answer.offset_bytes
    store.close()
    assert at == len(begin) + len(long) + len(rest)
    found = made_streams.state(tmp_path / "c.duckdb")
    assert [reason for reason, *_ in found["rejected"]] == ["not_json", "too_long"]
    assert len(found["step"]) == 3
    rebuild(tmp_path / "c.archive", tmp_path / "again.duckdb")
    assert made_streams.state(tmp_path / "again.duckdb") == found


def test_what_was_archived_and_not_landed_lands_when_the_store_is_opened(tmp_path: Path) -> None:
    store = opened(tmp_path)
    data = made_streams.steps("s0", 10)
    cut = data.index(b"\n") + 1
    store.take([Chunk(stream="s", offset_bytes=0, data=data[:cut])])
    record = admit(cut, Chunk(stream="s", offset_bytes=cut, data=data[cut:]))
    assert record is not None
    store.archive.append([record])  # and then it was killed
    store.close()
    store = opened(tmp_path)
    assert store.offsets(["s"]) == [len(data)]
    assert store.take([Chunk(stream="s", offset_bytes=cut, data=data[cut:])]) == [
        Answer(offset_bytes=len(data), fits=False)
    ]
    store.close()
    found = made_streams.state(tmp_path / "c.duckdb")
    assert len(found["step"]) == 10 and found["delivery"] == []


@pytest.mark.parametrize("also_close", [False, True])
def test_a_database_that_fails_catches_up(also_close: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(tmp_path)
    data = made_streams.steps("s0", 10)

    def fail(*_: object) -> None:
        if also_close:
            store._base.close()
            store.lander._con.close()
        raise duckdb.IOException("no room")

    with monkeypatch.context() as patch:
        patch.setattr(store.lander, "land", fail)
        with pytest.raises(StorageError, match="no room"):
            store.take([Chunk(stream="s", offset_bytes=0, data=data)])
    assert not store.healthy
    assert store.take([Chunk(stream="s", offset_bytes=0, data=data)]) == [Answer(offset_bytes=len(data), fits=False)]
    assert store.healthy
    store.close()
    assert len(made_streams.state(tmp_path / "c.duckdb")["step"]) == 10


def test_a_lost_database_is_made_again_by_opening(tmp_path: Path) -> None:
    store = opened(tmp_path)
    made_streams.send_all(store, made_streams.streams(), random.Random(1))
    store.close()
    before = made_streams.state(tmp_path / "c.duckdb")
    (tmp_path / "c.duckdb").unlink()
    opened(tmp_path).close()
    assert made_streams.state(tmp_path / "c.duckdb") == before


def test_archive_and_database_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.take([Chunk(stream="s", offset_bytes=0, data=made_streams.steps("s0", 1))])
    store.close()
    with pytest.raises(ArchiveError, match="another archive"):
        Store(tmp_path / "c.duckdb", tmp_path / "other.archive")
    (tmp_path / "c.archive" / "000000.archive").write_bytes(
        (tmp_path / "c.archive" / "000000.archive").read_bytes()[:-10]
    )
    with pytest.raises(ArchiveError, match="ends before"):
        opened(tmp_path)


def test_a_rebuild_overwrites_nothing_and_wants_an_archive(tmp_path: Path) -> None:
    opened(tmp_path).close()
    with pytest.raises(DatabaseError, match="exists"):
        rebuild(tmp_path / "c.archive", tmp_path / "c.duckdb")
    with pytest.raises(ArchiveError, match="There is no archive"):
        rebuild(tmp_path / "x", tmp_path / "new.duckdb")
    with pytest.raises(ArchiveError, match="holds no archive"):
        rebuild(tmp_path, tmp_path / "new.duckdb")
    assert not (tmp_path / "new.duckdb").exists()


def test_the_database_takes_nothing_before_the_archive_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path / "c.duckdb", tmp_path / "c.archive")
    data = made_streams.steps("s", 12_000)
    assert len(data) > 2**20
    append, let = store.archive.append, threading.Event()
    wrong: list[str] = []
    refuses = True

    def slow(records: Sequence[Record]) -> Position:
        # Long enough for all rows to be ready.
        let.wait(5)
        cursor = store.cursor()
        if cursor.execute("SELECT count(*) FROM ev_step").fetchall() != [(0,)]:
            wrong.append("rows before the archive has them")
        cursor.close()
        if refuses:
            raise OSError(28, "No space left on device")
        return append(records)

    monkeypatch.setattr(store.archive, "append", slow)
    timer = threading.Timer(1.5, let.set)
    timer.start()
    with pytest.raises(StorageError, match=r"archive could not be written \(No space"):
        store.take([Chunk(stream="s", offset_bytes=0, data=data)])
    assert store.healthy and store.read_offset("s") == 0 and store.offsets(["s"]) == [0]
    refuses = False
    assert store.take([Chunk(stream="s", offset_bytes=0, data=data)]) == [Answer(len(data), True)]
    assert not wrong and store.lander.position() == store.archive.end
    cursor = store.cursor()
    assert cursor.execute("SELECT count(*) FROM ev_step").fetchall() == [(12_000,)]
    cursor.close()
    store.close()


def test_where_the_database_refuses_what_the_archive_has_lands_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "c.duckdb", tmp_path / "c.archive")
    data = made_streams.steps("s", 12_000)
    with monkeypatch.context() as patch:

        def refuse(*_: object) -> None:
            raise duckdb.IOException("No space left on device")

        patch.setattr(store.lander, "land", refuse)
        with pytest.raises(StorageError, match="database could not be written"):
            store.take([Chunk(stream="s", offset_bytes=0, data=data)])
    assert not store.healthy
    # The sender comes again, and hears that it is there.
    assert store.take([Chunk(stream="s", offset_bytes=0, data=data)]) == [Answer(len(data), False)]
    assert store.lander.position() == store.archive.end
    store.close()
