"""The collector's HTTP face, on a real process."""

import contextlib
import gzip
import http.client
import json
import random
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import made_streams
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from service_running import Collector, goodput

import goodput_analytics
from goodput_collector.chunks import BODY_MAX_BYTES, Chunk, encode
from goodput_collector.database import open_database

STREAMS = made_streams.streams()
TOKEN, READ_TOKEN = "w" * 20, "r" * 20


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    with Collector(tmp_path_factory.mktemp("c"), "--no-spool") as running:
        yield running


def fill(collector: Collector) -> None:
    """Brings the run of docs/ACCOUNTING.md."""
    for name, data in STREAMS.items():
        status, answer = collector.post(f"/v1/streams/{name}?offset=0", data)
        assert (status in (200, 409), answer) == (True, {"offset": len(data)})


def test_a_stream_goes_on_where_it_stands(collector: Collector) -> None:
    data = made_streams.steps("one", 6, run="streams")
    half = data.index(b"\n") + 20
    assert collector.get("/v1/streams/one.000000") == {"offset": 0}
    whole = data[:half].rindex(b"\n") + 1
    assert collector.post("/v1/streams/one.000000?offset=0", data[:half]) == (200, {"offset": whole})
    assert collector.post("/v1/streams/one.000000?offset=0", data[:half]) == (409, {"offset": whole})
    assert collector.get("/v1/streams/one.000000") == {"offset": whole}
    packed = gzip.compress(data[whole:-1])
    last = data[:-1].rindex(b"\n") + 1
    assert collector.post(f"/v1/streams/one.000000?offset={whole}", packed, content_encoding="gzip") == (
        200,
        {"offset": last},
    )
    zstd = pa.compress(data[last:-1], codec="zstd", asbytes=True)
    assert collector.post(f"/v1/streams/one.000000?offset={last}&final=true", zstd, content_encoding="zstd") == (
        200,
        {"offset": len(data) - 1},
    )
    report = collector.get("/v1/runs/streams/report")
    assert report["quality"]["events"] == 6 and report["quality"]["duplicates"] == 0


def test_a_batch_answers_for_each_of_its_streams(collector: Collector) -> None:
    streams = {f"b{index}.000000": made_streams.steps(f"b{index}", 3, run="batch") for index in range(40)}
    chunks = [Chunk(stream=name, offset_bytes=0, data=data) for name, data in streams.items()]
    odd = Chunk(stream="b0.000000", offset_bytes=7, data=b"{}\n")
    again = Chunk(stream="b1.000000", offset_bytes=len(streams["b1.000000"]), data=made_streams.steps("b99", 1))
    status, answer = collector.post("/v1/batch", gzip.compress(encode([*chunks, odd, again])), content_encoding="gzip")
    assert status == 200
    told = [(one["stream"], one["status"], one["offset"]) for one in answer["streams"]]
    assert told[:40] == [(name, 200, len(data)) for name, data in streams.items()]
    assert told[40] == ("b0.000000", 409, len(streams["b0.000000"]))
    assert told[41] == ("b1.000000", 200, len(streams["b1.000000"]) + len(again.data))
    assert collector.post("/v1/batch", b"") == (200, {"streams": [], "checkpoint_requests": []})


def test_the_report_is_the_one_of_the_files(collector: Collector, tmp_path: Path) -> None:
    fill(collector)
    told = collector.get("/v1/runs/by-hand/report")
    for name, data in STREAMS.items():
        (tmp_path / f"{name}.jsonl").write_bytes(data)
    assert goodput("ingest", tmp_path, "--db", tmp_path / "f.duckdb").returncode == 0
    con = open_database(tmp_path / "f.duckdb", read_only=True)
    expected = goodput_analytics.report(con, "by-hand").as_json()
    con.close()
    assert told["as_of_ns"] >= expected["as_of_ns"]
    # The line that could not be taken in another test is told in all reports that it may concern.
    for one in (told, expected):
        del one["as_of_ns"], one["quality"]
    assert told == json.loads(json.dumps(expected))


def test_runs_are_listed_and_unknown_ones_are_told(collector: Collector) -> None:
    fill(collector)
    assert "by-hand" in [one["run"] for one in collector.get("/v1/runs")["runs"]]
    status, body, _ = collector.ask("/v1/runs/by-hnad/report")
    assert status == 404 and "by-hand" in json.loads(body)["error"]


def test_relations_come_as_arrow_and_as_json_within_a_window(collector: Collector) -> None:
    fill(collector)
    status, body, headers = collector.ask("/v1/relations/ledger_intervals?run=by-hand")
    assert (status, headers["content-type"]) == (200, "application/vnd.apache.arrow.stream")
    table = pa.ipc.open_stream(body).read_all()
    rows = table.to_pylist()
    held = sum((row["end_ns"] - row["start_ns"]) * row["gpus"] for row in rows)
    report = collector.get("/v1/runs/by-hand/report")
    assert held / 1e9 == pytest.approx(report["allocated_gpu_s"])
    middle = rows[len(rows) // 2]
    found = collector.get(
        f"/v1/relations/ledger_intervals?run=by-hand&from_ns={middle['start_ns']}&to_ns={middle['end_ns']}&limit=500",
        accept="application/json",
    )
    assert middle in found["rows"] and found["more"] is False
    assert found["rows"] == [r for r in rows if r["end_ns"] >= middle["start_ns"] and r["start_ns"] < middle["end_ns"]]
    limited = collector.get("/v1/relations/ledger_intervals?run=by-hand&limit=3", accept="application/json")
    assert limited["rows"] == rows[:3] and limited["more"] is True
    from goodput_collector.relations import RELATIONS

    for name in RELATIONS:
        status, _, _ = collector.ask(f"/v1/relations/{name}?run=by-hand&from_ns=0&to_ns={2**62}")
        assert status == 200, name


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status"),
    [
        ("GET", "/v1/relations/runs;drop?run=by-hand", b"", {}, 404),
        ("GET", "/v1/relations/steps", b"", {}, 400),
        ("GET", "/v1/relations/steps?run=by-hand&limit=0", b"", {}, 400),
        ("GET", "/v1/relations/steps?run=by-hand&limit=99999999999999999999", b"", {}, 400),
        ("GET", "/v1/relations/steps?run=by-hand&from_ns=1e9", b"", {}, 400),
        ("GET", "/v1/runs?limit=0", b"", {}, 400),
        ("GET", "/nothing", b"", {}, 404),
        ("DELETE", "/v1/runs", b"", {}, 405),
        ("POST", "/v1/streams/a", b"{}\n", {}, 400),
        ("POST", "/v1/streams/a?offset=-1", b"{}\n", {}, 400),
        ("POST", "/v1/streams/a?offset=0&final=maybe", b"{}\n", {}, 400),
        ("POST", "/v1/streams/..%2F..%2Fetc?offset=0", b"{}\n", {}, 404),
        ("POST", "/v1/streams/a%00b?offset=0", b"{}\n", {}, 400),
        ("POST", f"/v1/streams/{'a' * 201}?offset=0", b"{}\n", {}, 400),
        ("POST", "/v1/streams/a?offset=0", b"junk", {"Content-Encoding": "gzip"}, 400),
        ("POST", "/v1/streams/a?offset=0", gzip.compress(b"x" * 99, mtime=0)[:-9], {"Content-Encoding": "gzip"}, 400),
        ("POST", "/v1/streams/a?offset=0", b"junk", {"Content-Encoding": "zstd"}, 400),
        ("POST", "/v1/streams/a?offset=0", b"junk", {"Content-Encoding": "br"}, 415),
        ("POST", "/v1/batch", b"junk", {}, 400),
        ("POST", "/v1/batch", b'{"stream":"a","offset":0,"bytes":9}\nshort', {}, 400),
        ("POST", "/v1/batch", b'{"stream":"../a","offset":0,"bytes":0}\n', {}, 400),
        ("POST", "/v1/batch", b'{"stream":"a","offset":true,"bytes":0}\n', {}, 400),
        ("POST", "/v1/runs/nobody/request-checkpoint", b"", {}, 404),
        ("POST", "/v1/runs/by-hand/request-checkpoint", b'{"step":-1}', {}, 400),
        ("POST", "/v1/runs/by-hand/request-checkpoint", b'{"valid_s":1e99}', {}, 400),
        ("POST", "/v1/runs/by-hand/request-checkpoint", b"x" * 5000, {}, 413),
    ],
)
def test_nonsense_is_told_in_one_line(
    collector: Collector, method: str, path: str, body: bytes, headers: dict[str, str], status: int
) -> None:
    fill(collector)
    got, answer, _ = collector.ask(path, method, body, headers)
    assert got == status, answer
    error = json.loads(answer)["error"]
    assert error and "\n" not in error and "Traceback" not in error


def test_a_bomb_and_a_flood_are_refused_without_being_held(collector: Collector) -> None:
    assert collector.process is not None
    for encoding, bomb in (
        ("gzip", gzip.compress(bytes(BODY_MAX_BYTES * 8), 9)),
        ("zstd", pa.compress(bytes(BODY_MAX_BYTES * 8), codec="zstd", asbytes=True)),
    ):
        status, answer = collector.post("/v1/streams/a?offset=0", bomb, content_encoding=encoding)
        assert status == 413 and "more than" in answer["error"]
    status, _ = collector.post("/v1/streams/a?offset=0", b"x", content_length=str(BODY_MAX_BYTES + 1))
    assert status == 413
    peak_kib = int(Path(f"/proc/{collector.process.pid}/status").read_text().partition("VmHWM:")[2].split()[0])
    assert peak_kib < 900 * 1024


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(["/v1/batch", "/v1/streams/fuzz?offset=0", "/v1/runs/by-hand/request-checkpoint"]),
    st.one_of(
        st.binary(max_size=2000),
        st.builds(
            lambda name, offset, data, cut: encode([Chunk(stream=name, offset_bytes=offset, data=data)])[:cut],
            st.text("abc./\0é", max_size=6).map(lambda text: text.encode("ascii", "replace").decode()),
            st.integers(-1, 2**63),
            st.binary(max_size=200),
            st.integers(0, 400),
        ),
    ),
    st.sampled_from(["", "gzip", "zstd", "identity", "x"]),
)
def test_no_bytes_are_too_much_for_it(collector: Collector, path: str, body: bytes, encoding: str) -> None:
    headers = {"Content-Encoding": encoding} if encoding else {}
    status, answer, _ = collector.ask(path, "POST", body, headers)
    assert status < 500, answer
    json.loads(answer)


def test_broken_requests_do_not_end_it(collector: Collector) -> None:
    for raw in (
        b"\0\0\0\r\n\r\n",
        b"POST /v1/batch HTTP/1.1\r\nContent-Length: 100\r\n\r\nshort",
        b"GET /" + b"a" * 200_000,
    ):
        with socket.create_connection(("127.0.0.1", collector.port)) as sock:
            sock.sendall(raw)
    assert collector.get("/healthz") == {"status": "ok"}


def test_tokens_part_writers_from_readers(tmp_path: Path) -> None:
    (tmp_path / "w").write_text(f"{TOKEN}\n")
    (tmp_path / "r").write_text(READ_TOKEN)
    options = ("--no-spool", "--token-file", tmp_path / "w", "--read-token-file", tmp_path / "r")
    with Collector(tmp_path, *options) as collector:
        for path, token, expected in [
            ("/healthz", None, 200),
            ("/readyz", None, 200),
            ("/v1/runs", None, 401),
            ("/v1/runs", READ_TOKEN, 200),
            ("/v1/runs", TOKEN, 401),
            ("/v1/streams/a", READ_TOKEN, 401),
            ("/v1/streams/a", TOKEN, 200),
            ("/v1/streams/a", TOKEN[:-1], 401),
            ("/openapi.json", None, 401),
        ]:
            headers = {} if token is None else {"Authorization": f"Bearer {token}"}
            assert collector.ask(path, headers=headers)[0] == expected, (path, token)
        assert collector.ask("/v1/runs", headers={"Authorization": f"Basic {READ_TOKEN}"})[0] == 401


def test_it_ends_within_five_seconds_and_keeps_what_it_was_sent(tmp_path: Path) -> None:
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind(str(tmp_path / "notify"))
    manager.settimeout(10)
    environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "400000"}
    collector = Collector(tmp_path, "--no-spool", environment=environment)
    collector.start()
    assert manager.recv(100) == b"READY=1"
    assert manager.recv(100) == b"WATCHDOG=1"
    data = made_streams.steps("s", 2000)
    at = data.index(b"\n", 1000) + 1
    assert collector.post("/v1/streams/s?offset=0", data[:at]) == (200, {"offset": at})
    # A request that never ends, and a connection that says nothing.
    stuck = http.client.HTTPConnection("127.0.0.1", collector.port)
    stuck.putrequest("POST", "/v1/streams/s?offset=0")
    stuck.putheader("Content-Length", "1000")
    stuck.endheaders(b"{")
    idle = socket.create_connection(("127.0.0.1", collector.port))
    manager.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while manager.recv(100):
            pass
    assert collector.stop() < 5
    said = []
    with contextlib.suppress(BlockingIOError):
        while word := manager.recv(100):
            said.append(word)
    assert b"STOPPING=1" in said
    assert "Traceback" not in collector.said()
    stuck.close()
    idle.close()
    manager.close()
    assert sum(1 for _ in made_streams.state(collector.db)["step"]) == data[:at].count(b"\n")


def test_a_second_collector_says_who_holds_the_database(tmp_path: Path) -> None:
    with Collector(tmp_path, "--no-spool") as first:
        assert first.process is not None
        done = goodput("collect", "--db", first.db, "--no-spool", "--listen", "127.0.0.1:0")
        assert done.returncode == 1 and done.stderr.count("\n") == 1
        assert f"pid {first.process.pid}" in done.stderr
        done = goodput("report", "--db", first.db)
        assert done.returncode == 1 and f"pid {first.process.pid}" in done.stderr


def test_it_listens_to_other_machines_only_with_a_token_or_on_purpose(tmp_path: Path) -> None:
    done = goodput("collect", "--db", tmp_path / "c.duckdb", "--no-spool", "--listen", "0.0.0.0:0")
    assert done.returncode == 1 and "--token-file" in done.stderr and done.stderr.count("\n") == 1
    done = goodput("collect", "--db", tmp_path / "c.duckdb", "--no-spool", "--listen", "nowhere")
    assert done.returncode == 2 and "HOST:PORT" in done.stderr
    (tmp_path / "t").write_text("short")
    done = goodput("collect", "--db", tmp_path / "c.duckdb", "--no-spool", "--token-file", tmp_path / "t")
    assert done.returncode == 1 and "16 or more" in done.stderr


def test_a_request_for_a_checkpoint_stands_over_restarts_until_its_time_is_over(tmp_path: Path) -> None:
    with Collector(tmp_path, "--no-spool") as collector:
        for run in ("long", "short"):
            assert collector.post(f"/v1/streams/{run}?offset=0", made_streams.steps(run, 3, run=run))[0] == 200
        assert collector.post("/v1/runs/long/request-checkpoint", b'{"step":7}')[0] == 202
        # The second takes the place of the first.
        status, asked = collector.post("/v1/runs/long/request-checkpoint", b'{"step":9,"valid_s":600}')
        assert (status, asked["step"]) == (202, 9)
        status, lapses = collector.post("/v1/runs/short/request-checkpoint", b'{"valid_s":4}')
        assert status == 202
        collector.kill()
        collector.start()
        assert sorted(collector.post("/v1/batch", b"")[1]["checkpoint_requests"], key=lambda one: one["run"]) == [
            asked,
            lapses,
        ]
        time.sleep(max(0.0, lapses["until_ns"] / 1e9 - time.time()))
        assert collector.post("/v1/batch", b"")[1]["checkpoint_requests"] == [asked]
        collector.stop()
        collector.start()
        assert collector.post("/v1/batch", b"")[1]["checkpoint_requests"] == [asked]
        assert collector.post("/v1/runs/short/request-checkpoint", b"{}")[0] == 202
    con = open_database(collector.db, read_only=True)
    assert con.execute("SELECT run, step FROM checkpoint_requests ORDER BY run").fetchall() == [
        ("long", 9),
        ("short", None),
    ]
    con.close()


def test_readers_and_writers_at_once(collector: Collector) -> None:
    """Reports while the run grows: none fails, and the last one has everything."""
    data = made_streams.steps("grows", 300, run="grows")
    chance = random.Random(5)
    at, seen = 0, 0
    while at < len(data):
        status, answer = collector.post(f"/v1/streams/grows?offset={at}", data[at : at + chance.randint(500, 4000)])
        assert status == 200
        at = answer["offset"]
        events = collector.get("/v1/runs/grows/report")["quality"]["events"]
        assert events >= seen
        seen = events
    deadline = time.monotonic() + 10
    while collector.get("/v1/runs/grows/report")["quality"]["events"] < 300:
        assert time.monotonic() < deadline
