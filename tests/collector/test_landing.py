"""What lands, what is rejected and what counts as having come before."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from landing_cases import T0_NS, land, line, state, step

from goodput_collector.contract import KINDS
from goodput_collector.database import open_database
from goodput_collector.landing import Landing, ingest_files

FULL: dict[str, dict[str, Any]] = {
    "start": {
        "v": 1, "job": "slurm:1.0", "restart_count": 0, "rank": 3, "local_rank": 3, "world_size": 8, "node": "n0",
        "pid": 77, "devices": 1, "device_kind": "cuda", "process_start_ns": T0_NS, "group": "p0",
        "labels": {"team": "x"}, "meta": {"a": [1, 2.5, None]}, "attempt_token": "t",
    },
    "joined": {"attempt_token": "t", "rank": 3, "world_size": 8},
    "resume": {"step": None},
    "step": {
        "step": 5, "start_ns": T0_NS, "end_ns": T0_NS + 9, "data_ns": 1, "busy_ns": 2, "count": 3, "applied": False,
        "loss": 1.5, "lr": 1e-05,
    },
    "begin": {"span": "checkpoint", "id": 4, "step": 5, "category": "x", "async": True},
    "end": {"span": "checkpoint", "id": "4", "step": 5, "ok": False},
    "durable": {"step": 5, "ok": True},
    "progress": {},
    "heartbeat": {"of": "s", "step": 5, "phase": "between", "phase_since_ns": T0_NS},
    "stop": {"reason": "anything", "detail": "d"},
    "exit_observed": {"of": "s", "exit_code": -9, "signal": 9, "oom": False},
    "allocation": {
        "job": "slurm:1.0", "gpus": 8, "submit_ns": 1, "start_ns": 2, "end_ns": 3, "end_reason": "timeout",
    },
    "dropped": {"reason": "full", "count": 7},
}  # fmt: skip


def rejected(found: dict[str, Any]) -> list[str]:
    return [reason for reason, _, _ in found["rejected"]]


@pytest.mark.parametrize("kind", list(KINDS))
def test_every_field_of_every_kind_lands(kind: str) -> None:
    event = {"kind": kind, "run": "r", "source": "s", "seq": 0, "ts_ns": T0_NS, **FULL[kind]}
    _, found = land([line(event) + b"\n"])
    (row,) = found[kind]
    expected = []
    for field in KINDS[kind].fields:
        value = FULL[kind][field.name]
        if isinstance(value, dict):
            value = json.dumps(value, separators=(",", ":"))
        expected.append(str(value) if field.name == "id" else value)
    links = (None, None) if kind == "step" else ()
    assert row == ("r", "s", 0, T0_NS, *expected, *links)
    assert not found["rejected"]


@pytest.mark.parametrize("kind", list(KINDS))
def test_optional_fields_may_be_left_out_and_required_ones_may_not(kind: str) -> None:
    needs = {field.name for field in KINDS[kind].fields if field.required}
    base = {"kind": kind, "run": "r", "source": "s", "seq": 0, "ts_ns": T0_NS}
    least = {**base, **{name: FULL[kind][name] for name in needs}}
    _, found = land([line(least) + b"\n"])
    assert len(found[kind]) == 1
    for name in [*needs, "seq", "ts_ns"]:
        _, found = land([line({key: value for key, value in least.items() if key != name}) + b"\n"])
        assert (len(found[kind]), rejected(found)) == (0, ["missing_field"]), name


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("seq", 12.0, None),
        ("seq", 1.2e1, None),
        ("seq", -0.0, None),
        ("seq", 12.5, "wrong_type"),
        ("seq", "12", "wrong_type"),
        ("seq", True, "wrong_type"),
        ("seq", [1], "wrong_type"),
        ("seq", {}, "wrong_type"),
        ("seq", -1, "out_of_range"),
        ("seq", 2**53 - 1, None),
        ("seq", 2**53, "out_of_range"),
        ("seq", 10**40, "out_of_range"),
        ("seq", 1e300, "out_of_range"),
        ("ts_ns", 2**62 - 1, None),
        ("ts_ns", 2**62, "out_of_range"),
        ("ts_ns", 2**63, "out_of_range"),
        ("ts_ns", 2**64, "out_of_range"),
        ("end_ns", -5, "out_of_range"),
        ("data_ns", 10**19, "out_of_range"),
        ("data_ns", None, None),
        ("count", 0, "out_of_range"),
        ("count", 1, None),
        ("count", 10**9, None),
        ("count", 10**9 + 1, "out_of_range"),
        ("count", 2**53 - 1, "out_of_range"),
        ("applied", 1, "wrong_type"),
        ("applied", "true", "wrong_type"),
        ("loss", 3, None),
        ("loss", "3", "wrong_type"),
        ("loss", True, "wrong_type"),
        ("loss", 12345678901234567890123, None),
        ("kind", 5, "wrong_type"),
        ("kind", None, "missing_field"),
        ("kind", "from_the_future", "unknown_kind"),
        ("kind", "Step", "unknown_kind"),
        ("run", 5, "wrong_type"),
        ("source", ["s"], "wrong_type"),
        ("source", None, "no_source"),
        ("run", None, "no_run"),
        ("run", "", "no_run"),
        ("something_new", {"a": 1}, None),
    ],
)
def test_values_are_taken_for_what_they_are(field: str, value: Any, reason: str | None) -> None:
    event = {**step(3), field: value}
    summaries, found = land([line(event) + b"\n"])
    assert rejected(found) == ([reason] if reason else [])
    assert summaries[0].rejected == ({reason: 1} if reason else {})
    assert (summaries[0].events, len(found["step"])) == ((0, 0) if reason else (1, 1))
    if reason is None and field in KINDS["step"].fields:
        names = ["run", "source", "seq", "ts_ns", *(f.column for f in KINDS["step"].fields)]
        assert found["step"][0][names.index(field)] == value


@pytest.mark.parametrize(
    ("kind", "field", "most"),
    [
        ("start", "world_size", 10**7),
        ("start", "devices", 10**6),
        ("joined", "world_size", 10**7),
        ("step", "count", 10**9),
        ("allocation", "gpus", 10**9),
        ("durable", "step", 2**53 - 1),
    ],
)
def test_numbers_have_a_most(kind: str, field: str, most: int) -> None:
    event = {"kind": kind, "run": "r", "source": "s", "seq": 0, "ts_ns": T0_NS, **FULL[kind]}
    _, found = land([line({**event, field: most}) + b"\n"])
    assert (len(found[kind]), rejected(found)) == (1, [])
    _, found = land([line({**event, field: most + 1}) + b"\n"])
    assert (len(found[kind]), rejected(found)) == (0, ["out_of_range"])


def test_a_run_without_a_name_is_no_run() -> None:
    held = {"kind": "allocation", "run": "", "source": "slurm", "seq": 0, "ts_ns": 1, "job": "j", "gpus": 8}
    unnamed = [step(0, run=""), step(1, None, None), {"kind": "progress", "seq": 2, "ts_ns": T0_NS}]
    lines = [*unnamed, {**held, "start_ns": 1}, step(3, run="r")]
    _, found = land([b"\n".join(map(line, lines)) + b"\n"])
    assert rejected(found) == ["no_run"] * 4
    assert found["names"] == [("r",), ("s0",)]
    assert [row[:3] for row in found["step"]] == [("r", "s0", 3)]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b'"loss":NaN', "not_finite"),
        (b'"loss":1e400', "out_of_range"),
        (b'"x":Infinity', "not_finite"),
        (b'"x":nan', "torn"),
        (b'"x":[1,2,]', "torn"),
        (b'"x":1,', "torn"),
        (b'"x":"\\ud800"', "not_json"),
        (b'"x":"\xff"', "not_utf8"),
        (b'"x":01', "torn"),
        (b'"x":"a\tb"', "torn"),
    ],
)
def test_what_is_no_json_is_rejected_alone_and_glued(text: bytes, reason: str) -> None:
    bad = line(step(1))[:-1] + b"," + text + b"}"
    good = line(step(2))
    for content in (bad + b"\n", bad + b"\n" + good + b"\n", good + bad + b"\n", bad + good + b"\n"):
        _, found = land([content])
        assert rejected(found) == [reason], content
        assert len(found["step"]) == content.count(good)


def test_a_text_that_looks_like_nan_or_a_stray_comma_is_a_text() -> None:
    _, found = land([line(step(0, source="a:nan,b,]")) + b"\n" + line(step(1, run="[inf],}")) + b"\n"])
    assert (len(found["step"]), found["rejected"]) == (2, [])


def test_rejected_lines_are_kept_with_where_they_were(tmp_path: Path) -> None:
    file, db = tmp_path / "e.jsonl", tmp_path / "g.duckdb"
    good = line(step(0)) + b"\n"
    glued = line(step(1)) + line({**step(2), "kind": "new"}) + b"\n"
    file.write_bytes(good + b"x" * 1000 + b"\n" + glued + b"\n\0\0\n" + b'{"kind":"st')
    summary = ingest_files(db, [file])
    assert summary.rejected == {"not_json": 1, "nul": 1, "torn": 1, "unknown_kind": 1}
    con = open_database(db, read_only=True)
    kept = con.execute(
        "SELECT name, r.offset_bytes, reason, head, pending FROM rejected r JOIN streams USING (stream_id) ORDER BY 2"
    ).fetchall()
    con.close()
    content, name = file.read_bytes(), str(file)
    assert kept == [
        (name, len(good), "not_json", b"x" * 256, False),
        (name, content.index(b'{"kind":"new"'), "unknown_kind", line({**step(2), "kind": "new"}), False),
        (name, content.index(b"\0"), "nul", b"\0\0", False),
        (name, content.index(b'{"kind":"st', len(content) - 20), "torn", b'{"kind":"st', True),
    ]


def test_run_and_source_carry_over_within_a_file() -> None:
    lines = [
        step(0, "a", "r"),
        step(1, None, None),
        step(0, "b", None),
        step(1, None, None),
        {"kind": "progress", "seq": 2, "ts_ns": T0_NS},
        step(0, "c", "q"),
        step(1, None, None),
    ]
    _, found = land([b"\n".join(line(event) for event in lines) + b"\n", line(step(9, None, None)) + b"\n"])
    assert [row[:3] for row in found["step"]] == [
        ("q", "c", 0), ("q", "c", 1), ("r", "a", 0), ("r", "a", 1), ("r", "b", 0), ("r", "b", 1),
    ]  # fmt: skip
    assert [row[:3] for row in found["progress"]] == [("r", "b", 2)]
    assert rejected(found) == ["no_source"]  # another file: nothing carries over into it


@pytest.mark.parametrize("bad", [b"garbage", b'{"kind":"step","so', b'{"x":"\xff"}', b'{"source":5}', b'{"x":NaN}'])
def test_nothing_carries_over_what_cannot_be_read(bad: bytes) -> None:
    head, short, named = line(step(0, "a", "r")), line(step(1, None, None)), line(step(0, "b", None))
    _, found = land([b"\n".join([head, bad, short, line(step(2, "b", "r")), line(step(3, None, None))]) + b"\n"])
    assert [row[1:3] for row in found["step"]] == [("a", 0), ("b", 2), ("b", 3)]
    assert "no_source" in rejected(found)
    _, found = land([b"\n".join([head, bad, named]) + b"\n"])  # a source alone does not bring the run back
    assert (len(found["step"]), "no_run" in rejected(found)) == (1, True)


def test_blank_lines_nuls_and_unknown_kinds_do_not_stop_the_carrying_over() -> None:
    unknown = b'{"kind":"new","source":"b","seq":0,"ts_ns":1}'
    lines = [line(step(0, "a", "r")), b"", b"\0\0", line(step(1, None, None)), unknown, line(step(2, None, None))]
    _, found = land([b"\n".join(lines) + b"\n"])
    assert [row[:3] for row in found["step"]] == [("r", "a", 0), ("r", "a", 1), ("r", "b", 2)]


def test_nothing_carries_over_to_an_allocation() -> None:
    held = {"kind": "allocation", "seq": 0, "ts_ns": 1, "job": "j", "gpus": 8, "start_ns": 1}
    _, found = land([line(step(0)) + b"\n" + line({**held, "source": "slurm"}) + b"\n" + line(held) + b"\n"])
    assert [row[:2] for row in found["allocation"]] == [(None, "slurm")]
    assert rejected(found) == ["no_source"]


def test_what_carries_over_is_kept_with_the_offset(tmp_path: Path) -> None:
    file, db = tmp_path / "e.jsonl", tmp_path / "g.duckdb"
    file.write_bytes(line(step(0, "a", "r")) + b"\n")
    ingest_files(db, [file])
    with file.open("ab") as end:
        end.write(line(step(1, None, None)) + b"\n")
    assert ingest_files(db, [file]).new == 1
    with file.open("ab") as end:
        end.write(b"junk\n")
    ingest_files(db, [file])
    with file.open("ab") as end:
        end.write(line(step(2, None, None)) + b"\n")
    assert ingest_files(db, [file]).rejected == {"no_source": 1}


def test_a_file_again_or_grown_adds_what_is_new(tmp_path: Path) -> None:
    file, db = tmp_path / "e.jsonl", tmp_path / "g.duckdb"
    whole = b"".join(line(step(seq)) + b"\n" for seq in range(30)) + b"junk\n" + line(step(30)) + b"\n"
    length = 0
    while length < len(whole):
        length = min(len(whole), length + 97)
        file.write_bytes(whole[:length] + b"\0" * 50)
        summary = ingest_files(db, [file, file])
        assert (summary.duplicates, summary.conflicts) == (0, 0)
    con = open_database(db, read_only=True)
    found = state(con.execute)
    con.close()
    assert [row[2] for row in sorted(found["step"], key=lambda row: row[2])] == list(range(31))
    assert found["rejected"] == [("not_json", b"junk", False)]


def test_a_torn_last_line_counts_until_the_file_goes_on(tmp_path: Path) -> None:
    file, db = tmp_path / "e.jsonl", tmp_path / "g.duckdb"
    last = line(step(1))
    file.write_bytes(line(step(0)) + b"\n" + last[:40])
    for _ in range(2):
        summary = ingest_files(db, [file])
        assert summary.rejected == {"torn": 1}
        con = open_database(db, read_only=True)
        assert state(con.execute)["rejected"] == [("torn", last[:40], True)]
        con.close()
    file.write_bytes(line(step(0)) + b"\n" + last)  # no newline, but whole
    assert (ingest_files(db, [file]).new, ingest_files(db, [file]).new) == (1, 0)
    con = open_database(db, read_only=True)
    assert state(con.execute)["rejected"] == []
    con.close()


def test_good_events_before_a_torn_end_are_taken_at_once(tmp_path: Path) -> None:
    file, db = tmp_path / "e.jsonl", tmp_path / "g.duckdb"
    glued = line(step(0)) + line(step(1, None, None))
    file.write_bytes(glued[:-5])
    assert ingest_files(db, [file]).new == 1
    file.write_bytes(glued + b"\n")
    summary = ingest_files(db, [file])
    assert (summary.new, summary.duplicates, summary.rejected) == (1, 0, {})


def test_another_file_under_the_same_name_is_read_from_its_beginning(tmp_path: Path) -> None:
    file, db = tmp_path / "e.jsonl", tmp_path / "g.duckdb"
    file.write_bytes(line(step(0)) + b"\n" + b'{"kind":"s')
    ingest_files(db, [file])
    file.write_bytes(b"".join(line(step(seq, "other")) + b"\n" for seq in range(5)))
    assert ingest_files(db, [file]).new == 5
    con = open_database(db, read_only=True)
    assert state(con.execute)["rejected"] == [("torn", b'{"kind":"s', False)]
    con.close()
    file.write_bytes(line(step(0, "other")) + b"\n")  # shorter than what was read
    assert ingest_files(db, [file]).duplicates == 1


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path: Path, suffix: str) -> None:
    file, db = tmp_path / f"e.jsonl{suffix}", tmp_path / "g.duckdb"
    write = (lambda data: file.write_bytes(gzip.compress(data))) if suffix else file.write_bytes
    content = b"\xef\xbb\xbf" + line(step(0)) + b"\n"
    for whole, new in ((content[:3], 0), (content, 1), (content, 0), (content + line(step(1)) + b"\nx\n", 1)):
        write(whole)
        summary = ingest_files(db, [file])
        assert (summary.new, summary.duplicates) == (new, 0)
    con = open_database(db, read_only=True)
    kept = con.execute("SELECT offset_bytes, head FROM rejected").fetchall()
    con.close()
    assert kept == [(len(whole) - 2, b"x")]


def test_a_copy_under_another_name_counts_duplicates() -> None:
    content = b"".join(line(step(seq)) + b"\n" for seq in range(4))
    summaries, found = land([content], [content], [content])
    assert [(s.new, s.duplicates) for s in summaries] == [(4, 0), (0, 4), (0, 4)]
    assert found["delivery"] == [("r", 8, 0)]


def test_with_another_content_the_smaller_line_stays_whatever_comes_first() -> None:
    one, two, three = (line(step(0, count=count)) for count in (1, 2, 3))
    moved = line({"kind": "progress", "run": "q", "source": "s0", "seq": 0, "ts_ns": 1})  # "progress" < "step"
    for order in ([one, two, three, one, two], [three, two, two, one, one], [two, one, three, two, one]):
        for deliveries in ([[b"\n".join(order) + b"\n"]], [[copy + b"\n"] for copy in order]):
            summaries, found = land(*deliveries)
            assert [row[9] for row in found["step"]] == [1]
            assert found["delivery"] == [("r", 2, 2)]
            assert sum(s.conflicts for s in summaries) == 2
            assert sum(s.duplicates for s in summaries) == 2
            assert sum(s.new for s in summaries) == 1
    for order in ([one, moved], [moved, one]):
        _, found = land(*[[copy + b"\n"] for copy in order])
        assert (len(found["step"]), len(found["progress"])) == (0, 1)
        assert found["delivery"] == [("r", 0, 1)]  # counted where the line that gave way belongs


def test_the_same_event_written_otherwise_is_the_same() -> None:
    event = step(0, loss=2.0, source="é")
    other = {key: event[key] for key in reversed(event)} | {"loss": 2, "seq": 0.0, "new_field": 1}
    spaced = json.dumps(other, ensure_ascii=False).encode() + b"\r\n"
    _, found = land([line(event) + b"\n" + spaced])
    assert found["delivery"] == [("r", 1, 0)]


def test_a_zipped_file_lands_like_the_plain_one(tmp_path: Path) -> None:
    db, file = tmp_path / "g.duckdb", tmp_path / "e.jsonl.gz"
    content = b"".join(line(step(seq)) + b"\n" for seq in range(50))
    file.write_bytes(gzip.compress(content[:2000]))
    con = open_database(db)
    first = Landing(con, slice_bytes=300).take([file])
    file.write_bytes(gzip.compress(content))
    second = Landing(con, slice_bytes=300).take([file])
    assert (first.new + second.new, second.duplicates) == (50, 0)
    assert len(state(con.execute)["step"]) == 50
    con.close()


def test_a_line_too_long_is_rejected_and_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "e.jsonl"
    long = b'{"kind":"step","x":"' + b"y" * (17 * 2**20) + b'"}\n'
    file.write_bytes(
        line(step(0)) + b"\n" + long + line(step(1)) + b"\n" + b"\0" * (18 * 2**20) + line(step(2)) + b"\n"
    )
    for slice_bytes in (2**20, 64 * 2**20):
        con = open_database(":memory:")
        summary = Landing(con, slice_bytes=slice_bytes).take([file])
        assert (summary.new, summary.rejected["too_long"]) == (3, 1)
        assert set(summary.rejected) == {"too_long", "nul"}
        assert max(len(head) for _, head, _ in state(con.execute)["rejected"]) <= 256
        con.close()


def test_progress_reaches_the_end(tmp_path: Path) -> None:
    file = tmp_path / "e.jsonl"
    file.write_bytes(b"".join(line(step(seq)) + b"\n" for seq in range(50)))
    told: list[tuple[int, int]] = []
    ingest_files(tmp_path / "g.duckdb", [file], lambda done, total: told.append((done, total)))
    assert told[-1] == (file.stat().st_size, file.stat().st_size)
    assert told == sorted(told)


def test_many_small_files_are_told_apart(tmp_path: Path) -> None:
    files = []
    for index in range(250):
        file = tmp_path / f"{index:03}.jsonl"
        content = [line(step(0, f"s{index}", "r")), line(step(1, None, None))] + [b"junk"] * (index % 3)
        file.write_bytes(b"\n".join(content) + b"\n")
        files.append(file)
    files.append(files[0])
    summary = ingest_files(tmp_path / "g.duckdb", files)
    assert [(f.new, f.duplicates, f.rejected.get("not_json", 0)) for f in summary.files] == [
        *((2, 0, index % 3) for index in range(250)),
        (0, 0, 0),
    ]
