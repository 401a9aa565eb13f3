"""Bad lines are cut into the objects that they hold and what is left over."""

from __future__ import annotations

import time

import pytest

from goodput_collector.contract import Reason
from goodput_collector.lines import MAX_LINE_BYTES, Fragment, Piece, split_line


def told(line: bytes, unfinished: bool = False) -> list[tuple[str, bytes]]:
    return [
        ("event" if isinstance(piece, Piece) else str(piece.reason), line[piece.start : piece.end])
        for piece in split_line(line, unfinished)
    ]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"", []),
        (b" \t\r", []),
        (b'{"kind":"a"}', [("event", b'{"kind":"a"}')]),
        (b'{"kind":"a"}{"kind":"b"}', [("event", b'{"kind":"a"}'), ("event", b'{"kind":"b"}')]),
        (b'{"kind":"a"} {"x":1}', [("event", b'{"kind":"a"}'), ("event", b'{"x":1}')]),
        (b'{"kind":"a","ru', [("torn", b'{"kind":"a","ru')]),
        (b'{"kind":"a","ru{"kind":"b"}', [("torn", b'{"kind":"a","ru'), ("event", b'{"kind":"b"}')]),
        (b'"step":4}', [("not_json", b'"step":4}')]),
        (b'"step":4}{"kind":"b"}', [("not_json", b'"step":4}'), ("event", b'{"kind":"b"}')]),
        (b'{"kind":"a","labels":{"team":"x"},"no', [("torn", b'{"kind":"a","labels":{"team":"x"},"no')]),
        (b"Traceback (most recent call last):", [("not_json", b"Traceback (most recent call last):")]),
        (b"[1,2]", [("not_object", b"[1,2]")]),
        (b"null", [("not_object", b"null")]),
        (b'{"kind":"a","loss":NaN}', [("not_finite", b'{"kind":"a","loss":NaN}')]),
        (b'{"x":-Infinity}{"kind":"b"}', [("not_finite", b'{"x":-Infinity}'), ("event", b'{"kind":"b"}')]),
        (b'{"kind":"\xff"}{"kind":"b"}', [("not_utf8", b'{"kind":"\xff"}'), ("event", b'{"kind":"b"}')]),
        (b"\0\0\0", [("nul", b"\0\0\0")]),
        (b'\0{"kind":"a"}\0', [("nul", b"\0"), ("event", b'{"kind":"a"}'), ("nul", b"\0")]),
        (b'{"seq":1\0\0}', [("torn", b'{"seq":1'), ("nul", b"\0\0"), ("not_json", b"}")]),
        ('{"kind":"é"}x'.encode(), [("event", '{"kind":"é"}'.encode()), ("not_json", b"x")]),
    ],
)
def test_a_line_is_cut_into_events_and_the_rest(line: bytes, expected: list[tuple[str, bytes]]) -> None:
    assert told(line) == expected


def test_what_an_unfinished_line_may_become_is_left_open_and_the_rest_is_settled() -> None:
    whole = b'{"kind":"a"}junk{"kind":"start","meta":{"kind":"x"},"n":-1.5e3,"t":true,"u":"\\u00e9"}'
    settled = told(whole)
    for length in range(len(whole)):
        pieces = split_line(whole[:length], unfinished=True)
        closed = [p for p in pieces if isinstance(p, Piece) or not p.open]
        names = ["event" if isinstance(p, Piece) else str(p.reason) for p in closed]
        texts = [whole[p.start : p.end] for p in closed]
        assert list(zip(names, texts, strict=True)) == settled[: len(closed)]
        open_ones = [p for p in pieces if isinstance(p, Fragment) and p.open]
        assert [p.end for p in open_ones] == ([length] if open_ones else [])


def test_a_line_that_is_too_long_is_not_looked_into() -> None:
    line = b'{"kind":"a","x":"' + b"y" * MAX_LINE_BYTES + b'"}'
    assert [piece.reason for piece in split_line(line) if isinstance(piece, Fragment)] == [Reason.TOO_LONG]


@pytest.mark.parametrize("unit", [b'{"a":', b'{"a"', b'{"a":[', b"[", b'{"kind":{', b'{"a":1}'])
def test_hostile_lines_take_no_more_than_a_moment(unit: bytes) -> None:
    began = time.process_time()
    split_line((unit * 200_000)[:400_000] + b"\x01")
    assert time.process_time() - began < 5
