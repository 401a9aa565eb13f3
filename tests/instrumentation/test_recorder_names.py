"""Texts that are no UTF-8, and how little of a record a damaged line takes with it."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from recorder_made import die, make
from recorder_reading import done_steps, of_rank, read_events

import goodput
from goodput.names import EVERY_LINES
from goodput.spool import list_segments, recover_dead

LONE = "eval-\udcff"
READ = "eval-\ufffd"


def lines_of(spool: Path, source: str = "src") -> list[dict[str, Any]]:
    """The lines as they are written, without anything carried over."""
    return [
        json.loads(line)
        for segment in list_segments(spool)
        if segment.source == source
        for line in segment.path.read_bytes().splitlines()
    ]


def test_bytes_that_are_no_utf8_are_replaced_in_every_text(spool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOODPUT_LABELS", "team=\udc80")
    rec = goodput.start(
        run=LONE, job=LONE, group=LONE, labels={LONE: LONE, "\\ud800": "\U0001f642"}, meta={"note": LONE}
    )
    with rec.span(LONE, category=LONE):
        pass
    rec.finish()
    for segment in list_segments(spool):
        segment.path.read_bytes().decode("ascii")
    events = of_rank(read_events(spool))
    json.dumps(events, ensure_ascii=False).encode("utf-8")
    start, begin = events[:2]
    assert rec.run == READ and {event["run"] for event in events} == {READ}
    assert (start["job"], start["group"], start["meta"]["note"]) == (READ, READ, READ)
    assert start["labels"] == {"team": "\ufffd", READ: READ, "\\ud800": "\U0001f642"}
    assert (begin["span"], begin["category"]) == (READ, READ)


def test_names_come_back_after_some_lines(spool: Path) -> None:
    made = make(spool)
    for step in range(3 * EVERY_LINES):
        made.step(step, ms=100)
        made.rec.progress()
    made.worker.tick()
    naming = [number for number, line in enumerate(lines_of(spool)) if "run" in line]
    assert naming == list(range(0, 6 * EVERY_LINES + 1, EVERY_LINES))
    made.rec.finish()


def test_names_come_back_after_joined_steps(spool: Path) -> None:
    made = make(spool)
    for step in range(1, 20 * EVERY_LINES):
        made.step(step, ms=20)
        if step % 1000 == 0:
            made.worker.tick()
    made.rec.finish()
    lines = lines_of(spool)
    naming = [number for number, line in enumerate(lines) if "run" in line]
    assert len(lines) > 3 * EVERY_LINES
    assert {after - before for before, after in itertools.pairwise(naming)} == {EVERY_LINES}


def test_the_line_after_an_unusual_text_names_its_source(spool: Path) -> None:
    made = make(spool)
    made.step(1, ms=100)
    made.rec.begin_span("größe")
    made.step(2, ms=100)
    made.step(3, ms=100)
    made.worker.tick()
    assert [("run" in line, line["kind"]) for line in lines_of(spool)] == [
        (True, "start"),
        (False, "step"),
        (False, "begin"),
        (True, "step"),
        (False, "step"),
    ]
    made.rec.finish()


def test_no_line_names_its_source_twice_where_files_begin(spool: Path) -> None:
    made = make(spool)
    made.writer.file_max_bytes = 5000
    for step in range(1000):
        made.step(step, ms=100)
        if step % 3 == 0:
            made.rec.begin_span("größe")
        made.worker.tick()
    made.rec.finish()
    files = [segment.path.read_bytes().splitlines() for segment in list_segments(spool)]
    assert len(files) > 10
    assert all(b'{"run":' in lines[0] for lines in files)
    assert max(line.count(b'"run":') for lines in files for line in lines) == 1
    assert [event["seq"] for event in read_events(spool)] == list(range(1336))


def test_each_heartbeat_names_its_source(spool: Path) -> None:
    made = make(spool, heartbeat_s=5)
    for _ in range(3):
        made.time.advance(5000)
        made.worker.tick()
    beats = lines_of(spool, "src.hb")
    assert [(beat["run"], beat["source"], beat["seq"]) for beat in beats] == [("run", "src.hb", n) for n in range(3)]


@pytest.mark.parametrize("naming", [True, False])
def test_a_line_that_names_its_source_is_recovered_into_a_file_of_its_own(
    spool: Path, tmp_path: Path, naming: bool
) -> None:
    """The file that was open has been shipped and removed; what its process had yet to write begins with that line."""
    made = make(spool, shared=tmp_path / "memory")
    if naming:
        made.rec.begin_span("größe")
    assert made.events()
    for segment in list_segments(spool):
        segment.path.unlink()
    for step in (1, 2, 3):
        made.step(step, ms=100)
    die(made)
    (dead,) = recover_dead(spool)
    assert dead.events == 3
    lines = b"".join(segment.path.read_bytes() for segment in list_segments(spool)).splitlines()
    assert [line.count(b'"run":') for line in lines] == [1, 0, 0]
    assert done_steps(read_events(spool)) == [1, 2, 3]
