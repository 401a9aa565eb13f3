"""Few events in many orders: what is kept beside them is what a plain reading of the landed rows says.

Two runs, sources of several, steps on both sides of a block of a thousand, in order, out of order, told again and told
otherwise: however they come, it ends the same.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from pathlib import Path
from random import Random
from typing import Any

import pytest
from landing_cases import T0_NS, line, state, step

from goodput_collector.database import open_database
from goodput_collector.landing import Landing

Rows = list[tuple[Any, ...]]


def lines() -> list[bytes]:
    """Each names its run and source: any order of them is the same."""
    told = [step(seq, source, run) for run, source in (("r", "s0"), ("r", "s1"), ("q", "s2")) for seq in range(6)]
    # Over the border of a block, back again, told in two pieces, and an end before its start.
    for place, number in enumerate((998, 999, 1000, 1001, 997, 997, 1002), start=6):
        told.append(step(place, "s0", step=number))
        told.append(step(place, "s2", "q", step=number))
    told.append(step(13, "s1", step=20, end_ns=T0_NS))
    # Told again, and with other contents: a smaller line and a larger one than what is told elsewhere.
    told += [step(3, "s0"), step(4, "s0", step=4), step(4, "s0", step=6), step(2, "s2", "q", step=9)]
    told.append({"kind": "progress", "run": "r", "source": "s1", "seq": 14, "ts_ns": T0_NS})
    told.append({"kind": "progress", "run": "r", "source": "s1", "seq": 14, "ts_ns": T0_NS})
    grant = {"kind": "allocation", "source": "scheduler", "ts_ns": T0_NS, "job": "a", "gpus": 1, "start_ns": 0}
    told += [{**grant, "seq": 0}, {**grant, "seq": 0}, {**grant, "seq": 1, "run": "r"}, {**grant, "seq": 1, "gpus": 2}]
    return [line(event) for event in told]


def landed(deliveries: list[list[bytes]]) -> dict[str, Any]:
    con = open_database(":memory:")
    try:
        with tempfile.TemporaryDirectory() as folder:
            for number, content in enumerate(deliveries):
                path = Path(folder, f"{number}.jsonl")
                path.write_bytes(b"".join(text + b"\n" for text in content))
                Landing(con).take([path])
        found = state(con.execute)
        for name in ("step_blocks", "step_tips"):
            found[name] = sorted(
                con.execute(
                    f"SELECT r.run, s.source, t.* EXCLUDE (run_id, source_id) FROM {name} t "
                    "JOIN runs r USING (run_id) JOIN sources s USING (source_id)"
                ).fetchall()
            )
        found["steps"] = con.execute(
            "SELECT r.run, s.source, e.seq, e.step, e.start_ns, e.end_ns, e.ts_ns, e.before_step, e.before_end_ns "
            "FROM ev_step e JOIN runs r USING (run_id) JOIN sources s USING (source_id) ORDER BY ALL"
        ).fetchall()
        return found
    finally:
        con.close()


def reread(steps: Rows) -> tuple[Rows, Rows, Rows]:
    """Each step's predecessor, the blocks and the tips, from the rows of steps alone."""
    links: Rows = []
    tips: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    blocks: dict[tuple[Any, ...], Rows] = defaultdict(list)
    for run, source, seq, number, start, end, told, *_ in steps:
        before = tips.get((run, source))
        links.append((None, None) if before is None else before[1:])
        tips[run, source] = (seq, number, max(start, end))
        fell = before is not None and number < before[1]
        again = before is not None and number == before[1]
        blocks[run, source, number // 1000].append(
            (seq, number, start, max(start, end), told, end < start, fell, again)
        )
    reduced = []
    for place, rows in blocks.items():
        seqs, numbers, starts, ends, tolds, backwards, fell, again = zip(*rows, strict=True)
        reduced.append(
            (
                *place,
                len(rows),
                min(seqs),
                max(seqs),
                max(numbers),
                min(starts),
                min(ends),
                max(ends),
                max(tolds),
                sum(backwards),
                any(fell),
                any(again),
            )
        )
    return links, sorted(reduced), sorted((*place, *tip) for place, tip in tips.items())


def orders() -> list[list[list[bytes]]]:
    told = lines()
    shuffled = Random(3).sample(told, len(told))
    return [
        [told],
        [[text] for text in told],
        [told[::-1]],
        [told[::2], told[1::2]],
        [told[7:], told[:9]],
        [shuffled[:20], shuffled[15:]],
        [told[:18], told[18:24], told[24:]],
    ]


@pytest.mark.parametrize("number", range(len(orders())))
def test_what_is_kept_beside_the_steps_is_what_they_say(number: int) -> None:
    found = landed(orders()[number])
    links, blocks, tips = reread(found["steps"])
    assert [row[7:] for row in found["steps"]] == links
    assert found["step_blocks"] == blocks
    assert found["step_tips"] == tips
    assert found["ranges"] == [("s0", 0, 12), ("s1", 0, 14), ("s2", 0, 12), ("scheduler", 0, 1)]
    assert sorted(found["names"]) == [("q",), ("r",), ("s0",), ("s1",), ("s2",), ("scheduler",)]


def test_of_the_contents_of_an_event_the_smallest_line_stays_and_each_other_is_a_conflict() -> None:
    found = landed([lines()])
    assert [row[3] for row in found["steps"] if row[1:3] == ("s0", 4)] == [4]
    assert [row[3] for row in found["steps"] if row[1:3] == ("s2", 2)] == [3]
    assert found["delivery"] == [("q", 0, 1), ("r", 2, 2), (None, 1, 1)]


@pytest.mark.parametrize("number", range(1, len(orders())))
def test_in_whatever_order_it_ends_the_same(number: int) -> None:
    whole, other = landed(orders()[0]), landed(orders()[number])
    doubled = [text for delivery in orders()[number] for text in delivery]
    if len(doubled) == len(lines()):
        assert other == whole
    else:
        del whole["delivery"], other["delivery"]
        assert other == whole


def test_run_and_source_carry_over_from_the_last_line_that_names_them() -> None:
    """Also past lines of other kinds, and not past a line that cannot be read, or whose source is none."""
    progress = {"kind": "progress", "ts_ns": T0_NS}
    content = [
        line(step(0, "s0")),
        line(step(1, None, None)),
        line({**progress, "seq": 2}),
        line(step(3, "s1", None)),
        line(step(4, None, "q")),
        line({**progress, "seq": 5}),
        line({**progress, "source": 7, "seq": 6}),
        line({**progress, "seq": 7}),
        line(step(8, None, None)),
        line(step(9, "s3", None)),
        line(step(10, "s4", "r")),
        b"nonsense",
        line(step(11, None, None)),
        line({**progress, "seq": 12}),
        line(step(13, "s4", "r")),
        line({**progress, "run": 7, "seq": 14}),
        line(step(15, None, None)),
    ]
    found = landed([content])
    assert [row[:3] for row in found["steps"]] == [
        ("q", "s1", 4),
        ("r", "s0", 0),
        ("r", "s0", 1),
        ("r", "s1", 3),
        ("r", "s4", 10),
        ("r", "s4", 13),
    ]
    assert [row[:3] for row in found["progress"]] == [("q", "s1", 5), ("r", "s0", 2)]
    assert len(found["rejected"]) == 9


@pytest.mark.parametrize(
    "told",
    [
        [[step(seq) for seq in (5, 4, 3, 0, 1, 2)], [step(seq, "s1") for seq in (1, 0)]],
        [[step(1), step(0), step(2, "s1")]],
        [[step(1), step(0), step(2, "s0", "q")]],
    ],
)
def test_steps_in_falling_order_are_linked_in_rising_order(told: list[list[dict[str, Any]]]) -> None:
    """Of one source, and where a source or a run follows that has but one."""
    found = landed([[line(event) for event in content] for content in told])
    links, blocks, tips = reread(found["steps"])
    assert [row[7:] for row in found["steps"]] == links
    assert (found["step_blocks"], found["step_tips"]) == (blocks, tips)


def test_only_the_run_whose_content_lost_has_a_conflict() -> None:
    """One event is told in two runs; the smaller line is that of run q."""
    assert landed([[line(step(0, "s0", "r")), line(step(0, "s0", "q"))]])["delivery"] == [("r", 0, 1)]


def test_a_content_that_lost_before_is_a_duplicate_when_it_comes_again() -> None:
    """And so says each delivery by itself: the first content, a conflict, and twice the same as one before."""
    first, other = line(step(4, step=4)), line(step(4, step=6))
    con = open_database(":memory:")
    counts = []
    with tempfile.TemporaryDirectory() as folder:
        for number, content in enumerate((first, other, other, first, line(step(5)) + b"\n" + other)):
            path = Path(folder, f"{number}.jsonl")
            path.write_bytes(content + b"\n")
            told = Landing(con).take([path])
            counts.append((told.events, told.duplicates, told.conflicts))
    assert state(con.execute)["delivery"] == [("r", 3, 1)]
    con.close()
    assert [row[1:] for row in counts] == [(0, 0), (0, 1), (1, 0), (1, 0), (1, 0)]


def test_a_file_that_grows_goes_on_where_it_was_left_and_another_stays_as_it_was() -> None:
    """Both end in a torn line; one of them goes on."""
    con = open_database(":memory:")
    with tempfile.TemporaryDirectory() as folder:
        grows, stays = Path(folder, "grows.jsonl"), Path(folder, "stays.jsonl")
        whole = line(step(0)) + b"\n" + line(step(1)) + b"\n"
        grows.write_bytes(whole[:-9])
        stays.write_bytes(line(step(0, "s1")) + b"\n" + b'{"kind"')
        Landing(con).take([grows, stays])
        assert [row[2] for row in state(con.execute)["rejected"]] == [True, True]
        grows.write_bytes(whole)
        Landing(con).take([grows])
        found = state(con.execute)
        offsets = con.execute("SELECT offset_bytes FROM streams ORDER BY name").fetchall()
    con.close()
    assert [row[:3] for row in found["step"]] == [("r", "s0", 0), ("r", "s0", 1), ("r", "s1", 0)]
    assert [row[1:3] for row in found["rejected"]] == [(b'{"kind"', True)]
    assert offsets == [(len(whole),), (len(line(step(0, "s1"))) + 1,)]
