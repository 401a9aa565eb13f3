"""A database is copied into a smaller file while the collector goes on; whatever happens, there is a whole one."""

import contextlib
import json
import random
import threading
import time
from pathlib import Path

import duckdb
import made_streams
import pytest
from service_running import Collector, goodput

import made_runs
from goodput_collector import compacting
from goodput_collector import store as storing
from goodput_collector.chunks import Chunk
from goodput_collector.client import open_client
from goodput_collector.database import open_database
from goodput_collector.errors import StorageError
from goodput_collector.store import Store


def filled(folder: Path) -> Store:
    """A store whose file has much room that nobody uses."""
    store = Store(folder / "c.duckdb", folder / "c.archive")
    for name, data in made_streams.streams().items():
        store.take([Chunk(stream=name, offset_bytes=0, data=data)])
    con = store.cursor()
    con.execute("CREATE TABLE waste AS SELECT range AS x, hash(range) AS y FROM range(3000000); CHECKPOINT")
    con.execute("DROP TABLE waste; CHECKPOINT")
    con.close()
    return store


def test_it_is_smaller_and_the_same_and_goes_on(tmp_path: Path) -> None:
    store = filled(tmp_path)
    done = store.compact()
    assert done.after_bytes < done.before_bytes / 2
    assert (tmp_path / "c.duckdb").stat().st_size == done.after_bytes
    more = made_streams.steps("s9", 30)
    (answer,) = store.take([Chunk(stream="more", offset_bytes=0, data=more)])
    assert answer.offset_bytes == len(more)
    store.close()
    names = sorted(one.name for one in tmp_path.iterdir())
    assert names == ["c.archive", "c.duckdb"]
    again = Store(tmp_path / "clean.duckdb", tmp_path / "clean.archive")
    for name, data in made_streams.streams().items():
        again.take([Chunk(stream=name, offset_bytes=0, data=data)])
    again.take([Chunk(stream="more", offset_bytes=0, data=more)])
    again.close()
    found = [made_streams.state(tmp_path / f"{name}.duckdb") for name in ("c", "clean")]
    for one in found:
        del one["position"]
    assert found[0] == found[1]
    con = open_database(tmp_path / "c.duckdb", read_only=True)
    with pytest.raises(duckdb.Error):
        con.execute("FROM waste")
    con.close()


@pytest.mark.parametrize("step", ["copied", "put_in_place"])
def test_where_it_fails_all_is_as_it_was(step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = filled(tmp_path)
    before = store.cursor().execute("SELECT count(*) FROM ev_step").fetchall()

    def fail(*_: object) -> None:
        raise OSError("no room")

    monkeypatch.setattr(storing, step, fail)
    with pytest.raises(StorageError, match="no room"):
        store.compact()
    monkeypatch.undo()
    more = made_streams.steps("s9", 30)
    store.take([Chunk(stream="more", offset_bytes=0, data=more)])
    con = store.cursor()
    assert con.execute("SELECT count(*) FROM ev_step").fetchall() == [(before[0][0] + 30,)]
    con.close()
    assert store.compact().after_bytes > 0
    store.close()


def test_who_reads_meanwhile_hears_of_it_or_has_the_answer(tmp_path: Path) -> None:
    store = filled(tmp_path)
    outcomes: list[object] = []

    def read() -> None:
        reader = store.cursor()
        for _ in range(200):
            try:
                rows = reader.execute("SELECT count(*), max(hash(range)) FROM range(3000000)").fetchall()
                outcomes.append(rows[0][0])
                time.sleep(0.05)
            except duckdb.Error as error:
                outcomes.append(error)
                return

    reading = threading.Thread(target=read)
    reading.start()
    time.sleep(0.1)
    store.compact()
    reading.join()
    assert isinstance(outcomes[-1], duckdb.Error)
    assert all(one == 3_000_000 for one in outcomes[:-1])
    more = made_streams.steps("s9", 30)
    store.take([Chunk(stream="more", offset_bytes=0, data=more)])
    store.close()
    con = open_database(tmp_path / "c.duckdb", read_only=True)
    assert con.execute("SELECT count(*) FROM streams WHERE name = 'more'").fetchall() == [(1,)]
    con.close()


def test_a_file_that_is_open_somewhere_is_not_changed(tmp_path: Path) -> None:
    store = filled(tmp_path)
    store.close()
    con = open_database(tmp_path / "c.duckdb")
    with pytest.raises(OSError, match="still reads"):
        compacting.wait_until_closed(tmp_path / "c.duckdb", 0.1)
    con.close()
    compacting.wait_until_closed(tmp_path / "c.duckdb", 0.1)


def test_a_collector_is_compacted_while_it_takes_and_answers(tmp_path: Path) -> None:
    with Collector(tmp_path, "--no-spool", "--keep-raw-days", "30") as collector:
        for name, data in made_streams.streams().items():
            collector.post(f"/v1/streams/{name}?offset=0", data)
        client = open_client(collector.url)
        before = client.report("by-hand").as_json()
        data = made_streams.steps("s9", 400)
        lines = data.splitlines(keepends=True)
        taken = 0
        done = threading.Event()

        def send() -> None:
            nonlocal taken
            for number, line in enumerate(lines):
                status, told = collector.post(f"/v1/streams/s9?offset={taken}", line)
                assert status == 200, told
                taken = told["offset"]
                if number > 20 and done.is_set():
                    return

        sender = threading.Thread(target=send)
        sender.start()
        try:
            for days in ("30",):
                said = goodput("compact", "--url", collector.url, "--keep-raw-days", days)
                assert said.returncode == 0 and "MiB now" in said.stdout and "of ranks closed in" in said.stdout, said
                assert client.report("by-hand").gpu_s == before["gpu_s"]
        finally:
            done.set()
            sender.join()
        assert collector.get("/v1/streams/s9") == {"offset": taken} and taken > 0
        for body in (b'{"before_ns":"x"}', b'{"before_ns":99999999999999999999}', b"[]"):
            status, _ = collector.post("/v1/compact", body)
            assert status == 400
    client = open_client(collector.db)
    told = client.report("by-hand").as_json()
    del told["as_of_ns"], before["as_of_ns"]
    assert told == before
    con = open_database(collector.db, read_only=True)
    # Months have passed since those steps.
    assert con.execute("SELECT count(*) FROM kept_steps").fetchall()[0][0] > 0
    con.close()


def test_killed_while_it_compacts_it_has_a_whole_database(tmp_path: Path) -> None:
    filled(tmp_path).close()
    before = made_streams.state(tmp_path / "c.duckdb")
    chance = random.Random(7)
    collector = Collector(tmp_path, "--no-spool")
    for _ in range(5):
        collector.start()

        def ask() -> None:
            with contextlib.suppress(Exception):
                collector.post("/v1/compact", b'{"before_ns":1}')

        asking = [threading.Thread(target=ask) for _ in range(3)]
        for one in asking:
            one.start()
        time.sleep(chance.uniform(0.0, 0.25))
        collector.kill()
        for one in asking:
            one.join()
        # Whatever it left, the next one begins with it.
        assert (tmp_path / "c.duckdb").exists()
    collector.start()
    assert collector.post("/v1/compact", b"")[0] == 200
    collector.stop()
    assert made_streams.state(tmp_path / "c.duckdb") == before
    assert sorted(one.name for one in tmp_path.iterdir()) == ["c.archive", "c.duckdb", "collector.log"]


def test_the_command_compacts_a_file(tmp_path: Path) -> None:
    made = made_runs.Made("old", ranks=3).start().steps(1, 80).stop("finished")
    file, db = tmp_path / "e.jsonl", tmp_path / "g.duckdb"
    shift_ns = time.time_ns() - made.now_ns - 3 * 86_400 * 10**9
    events = [
        {key: value + shift_ns if key.endswith("_ns") and key != "busy_ns" else value for key, value in event.items()}
        for event in made.events
    ]
    file.write_text("".join(json.dumps(event) + "\n" for event in events))
    assert goodput("ingest", file, "--db", db).returncode == 0
    before = goodput("report", "old", "--db", db, "--json").stdout
    done = goodput("compact", "--db", db, "--keep-raw-days", "4")
    assert done.stdout.startswith("0 rows of ranks closed in 0 runs."), done
    done = goodput("compact", "--db", db, "--keep-raw-days", "2")
    assert done.returncode == 0 and "in 1 run." in done.stdout and not done.stdout.startswith("0"), done
    assert goodput("report", "old", "--db", db, "--json").stdout == before
    assert goodput("compact", "--db", tmp_path / "none.duckdb").returncode == 1
