"""However events are delivered, the same ones land; and the fast way tells the same as the careful one."""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from landing_cases import land, line, state, step

from goodput_collector.contract import KINDS
from goodput_collector.database import open_database
from goodput_collector.landing import Landing

PROPERTY = settings(
    phases=(Phase.explicit, Phase.generate),
    max_examples=10,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)

_names = st.sampled_from(["a", "b", 'é"\\', "1e5", "x:nan"])
_odd_values = st.sampled_from(
    [None, True, 0, 1, -1, 12.0, 12.5, "12", "é", 2**53, 2**62, 2**63, 2**70, 1e3, 1e300, [], {"kind": "step"}]
)
_spacings = st.sampled_from([(",", ":"), (", ", ": "), (" , ", " :  ")])


@st.composite
def _events(draw: st.DrawFn, whole: bool = False) -> dict[str, Any]:
    """An event, mostly a step; unless `whole`, it may lack its run and source and hold odd values."""
    run, source = draw(_names), draw(_names)
    event = step(draw(st.integers(0, 5)), source, run, count=draw(st.integers(1, 2)))
    kind = draw(st.sampled_from(["step"] * 4 + list(KINDS)))
    if kind == "allocation":
        event |= {"job": "j", "gpus": 8}
    event |= {"kind": kind, "rank": 0, "world_size": 1, "span": "x", "reason": "y", "of": "a", "attempt_token": "t"}
    if kind == "step":
        for name in ("rank", "world_size", "span", "reason", "of", "attempt_token"):
            del event[name]
    if not whole:
        for name in draw(st.sets(st.sampled_from(["run", "source"]))):
            del event[name]
        if draw(st.integers(0, 3)) == 0:
            names = ["kind", "run", "source", "seq", "ts_ns", "step", "data_ns", "applied", "loss", "new"]
            event[draw(st.sampled_from(names))] = draw(_odd_values)
    if draw(st.booleans()):
        event["lr"] = draw(st.sampled_from([1e-05, 3, 0.1, -2.5e-10, 1e22]))
    return event


@st.composite
def _dirty(draw: st.DrawFn) -> bytes:
    """A file of events and everything that goes wrong with files."""
    out = b""
    for event in draw(st.lists(_events(), max_size=12)):
        separators = draw(_spacings)
        text = json.dumps(event, separators=separators, ensure_ascii=draw(st.booleans())).encode()
        fate = draw(st.integers(0, 12))
        if fate == 0:
            text = text[: draw(st.integers(0, len(text)))]
        elif fate == 1:
            at = draw(st.integers(0, len(text) - 1))
            text = (
                text[:at] + draw(st.sampled_from([b"\xff", b"\0\0", b"{", b"}", b'"', b",", b"NaN", b"\\"])) + text[at:]
            )
        elif fate == 2:
            text = draw(st.sampled_from([b"null", b"[1]", b"5", b"junk", b"\0\0", b" ", b"{}", b'{"kind":"step",}']))
        out += text + draw(st.sampled_from([b"\n"] * 6 + [b"\r\n", b"", b" ", b"\n\n"]))
    return out


@PROPERTY
@given(st.lists(_dirty(), min_size=1, max_size=3), st.sampled_from([40, 400, 64 * 2**20]))
def test_the_fast_way_tells_the_same_as_the_careful_one_in_slices_of_any_size(files: list[bytes], size: int) -> None:
    summaries, found = land(files, slice_bytes=size)
    careful_summaries, careful = land(files, fast=False)
    assert found == careful
    for one, other in zip(summaries, careful_summaries, strict=True):
        assert (one.events, one.new, one.rejected) == (other.events, other.new, other.rejected)


@PROPERTY
@given(st.lists(_events(whole=True), min_size=1, max_size=15), st.randoms(use_true_random=False), st.data())
def test_order_repetition_and_division_change_nothing(
    events: list[dict[str, Any]], chance: random.Random, data: st.DataObject
) -> None:
    lines = [line(event) for event in events]
    lines += chance.choices(lines, k=len(lines) // 2)
    _, expected = land([b"\n".join(lines) + b"\n"])
    chance.shuffle(lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(lines)), max_size=4)))
    parts = [lines[low:high] for low, high in zip([0, *cuts], [*cuts, len(lines)], strict=True)]
    contents = [b"\n".join(part) + b"\n" for part in parts]
    summaries, found = land(*[[content] for content in contents])
    assert found == expected
    assert sum(s.events for s in summaries) == len(lines)
    assert sum(s.new for s in summaries) == sum(len(expected[kind]) for kind in KINDS)
    together, found = land(contents)
    assert found == expected
    assert together[0].new == sum(s.new for s in summaries)


@PROPERTY
@given(_dirty(), st.data())
def test_a_file_that_grows_ends_as_if_it_had_been_whole(content: bytes, data: st.DataObject) -> None:
    _, expected = land([content])
    lengths = sorted(data.draw(st.lists(st.integers(0, len(content)), max_size=5)))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "e.jsonl")
        con = open_database(":memory:")
        for length in [*lengths, len(content)]:
            file.write_bytes(content[:length] + b"\0" * data.draw(st.sampled_from([0, 0, 5])))
            Landing(con).take([file])
        found = state(con.execute)
        con.close()
    assert found == expected


# Each step beside the one before it, worked out over the whole table.
_WRONG_LINKS = """
SELECT * FROM (
    SELECT *, lag(step) OVER own AS right_step, lag(greatest(start_ns, end_ns)) OVER own AS right_end_ns
    FROM ev_step WINDOW own AS (PARTITION BY run_id, source_id ORDER BY seq)
) WHERE before_step IS DISTINCT FROM right_step OR before_end_ns IS DISTINCT FROM right_end_ns
"""

# Where the blocks that were kept differ from those of the whole table.
_BLOCKS = """
    SELECT run_id, source_id, step // 1000, count(*), min(seq), max(seq), max(step), min(start_ns),
        min(greatest(start_ns, end_ns)), max(greatest(start_ns, end_ns)), max(ts_ns), count_if(end_ns < start_ns),
        bool_or(coalesce(step < before_step, false)), bool_or(coalesce(step = before_step, false))
    FROM ev_step GROUP BY run_id, source_id, step // 1000
"""
_WRONG_BLOCKS = f"({_BLOCKS} EXCEPT ALL FROM step_blocks) UNION ALL (FROM step_blocks EXCEPT ALL {_BLOCKS})"


@PROPERTY
@given(st.lists(st.tuples(st.integers(0, 25), st.integers(0, 9), _names), max_size=40), st.data())
def test_each_step_is_linked_to_the_one_before_it_however_it_comes(
    told: list[tuple[int, int, str]], data: st.DataObject
) -> None:
    lines = [
        line(step(seq, source, "r", step=300 * number, start_ns=1000 * (number ^ 2), end_ns=1000 * number))
        for seq, number, source in told
    ]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(lines)), max_size=6)))
    con = open_database(":memory:")
    with tempfile.TemporaryDirectory() as folder:
        for index, (low, high) in enumerate(zip([0, *cuts], [*cuts, len(lines)], strict=True)):
            file = Path(folder, f"{index}.jsonl")
            file.write_bytes(b"".join(part + b"\n" for part in lines[low:high]))
            Landing(con).take([file])
            assert con.execute(_WRONG_LINKS).fetchall() == []
            assert con.execute(_WRONG_BLOCKS).fetchall() == []
    newest = "SELECT run_id, source_id, arg_max(step, seq), max(seq) FROM ev_step GROUP BY ALL ORDER BY ALL"
    tips = "SELECT run_id, source_id, step, seq FROM step_tips ORDER BY ALL"
    assert con.execute(tips).fetchall() == con.execute(newest).fetchall()
    con.close()
