"""Steps as events: times, data wait, own work, and joining fast steps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from recorder_made import EPOCH_NS, MS, Made, make
from recorder_reading import done_steps, kinds, read_events


def steps_of(made: Made) -> list[dict[str, Any]]:
    return [event for event in made.events() if event["kind"] == "step"]


def slowly(made: Made, *, ms: float) -> Iterator[int]:
    """Batches that take a while to come."""
    for batch in range(1000):
        made.time.advance(ms)
        yield batch


def test_a_slow_step_is_one_event_with_its_times(spool: Path) -> None:
    made = make(spool)
    made.time.advance(10)
    made.step(7, ms=100)
    (step,) = steps_of(made)
    assert step == {
        "run": "run",
        "source": "src",
        "kind": "step",
        "seq": 1,
        "ts_ns": EPOCH_NS + 110 * MS,
        "step": 7,
        "start_ns": EPOCH_NS + 10 * MS,
        "end_ns": EPOCH_NS + 110 * MS,
    }


def test_own_work_is_the_time_until_the_rank_only_waits(spool: Path) -> None:
    made = make(spool)
    with made.rec.step(1):
        made.time.advance(30)
        made.rec.own_work_done()
        made.time.advance(70)
    made.step(2, ms=100)
    first, second = steps_of(made)
    assert first["busy_ns"] == 30 * MS
    assert "busy_ns" not in second, "a step in which nothing was measured must not say 0"


def test_a_wait_for_input_before_the_step_belongs_to_it(spool: Path) -> None:
    made = make(spool)
    for step, _ in zip((1, 2), made.rec.data(slowly(made, ms=40)), strict=False):
        with made.rec.step(step):
            made.time.advance(100)
            made.rec.own_work_done()
        made.time.advance(5)
    first, second = steps_of(made)
    assert (first["start_ns"] - EPOCH_NS, first["end_ns"] - EPOCH_NS) == (0, 140 * MS)
    assert first["data_ns"] == second["data_ns"] == 40 * MS
    assert first["busy_ns"] == 140 * MS, "own work includes the wait for input"
    assert second["start_ns"] == first["end_ns"] + 5 * MS, "what is not input stays a gap between the steps"


def test_a_wait_for_input_inside_the_step_adds_to_it(spool: Path) -> None:
    made = make(spool)
    micro = made.rec.data(iter(range(10)))
    slow = slowly(made, ms=20)
    batches = iter(made.rec.data(slow))
    with made.rec.step(1):
        next(iter(micro))
        for _ in range(2):
            next(batches)
            made.time.advance(50)
    (step,) = steps_of(made)
    assert step["data_ns"] == 40 * MS
    assert step["end_ns"] - step["start_ns"] == 140 * MS


def test_input_fetched_before_a_span_is_not_drawn_over_it(spool: Path) -> None:
    made = make(spool)
    batches = iter(made.rec.data(slowly(made, ms=40)))
    next(batches)
    with made.rec.evaluation(step=0):
        made.time.advance(1000)
    made.step(1, ms=100)
    (step,) = steps_of(made)
    assert step["start_ns"] == EPOCH_NS + 1040 * MS
    assert step["data_ns"] == 0


def test_figures_and_skipped_updates_are_told(spool: Path) -> None:
    made = make(spool)
    with made.rec.step(1) as step:
        made.time.advance(100)
        step.note(loss=2.5, lr=1e-4)
    with made.rec.step(2, applied=False):
        made.time.advance(100)
    with made.rec.step(3) as step:
        made.time.advance(100)
        step.note(loss=float("nan"), applied=False)
    made.rec.begin_step(4)
    made.time.advance(100)
    made.rec.end_step(loss=3.0)
    one, two, three, four = steps_of(made)
    assert (one["loss"], one["lr"], "applied" in one) == (2.5, 1e-4, False)
    assert two["applied"] is False
    assert three["applied"] is False and "loss" not in three
    assert four["loss"] == 3.0 and "lr" not in four


def test_fast_steps_are_joined_at_aligned_step_numbers(spool: Path) -> None:
    """Two ranks of a synchronous job, one of which began elsewhere, cut at the same step numbers."""
    cuts = []
    for name, first in (("a", 1), ("b", 37)):
        made = make(spool / name, shared=spool.with_name(name))
        for step in range(first, 2001):
            made.step(step, ms=2)
            if step % 50 == 0:
                made.worker.tick()
        joined = {event["step"]: event.get("count", 1) for event in steps_of(made) if event["step"] > 100}
        assert set(joined.values()) == {32}
        cuts.append(set(joined))
        made.rec.finish()
        assert done_steps(read_events(spool / name)) == list(range(first, 2001))
    assert cuts[0] == cuts[1]
    assert all(step % 32 == 0 for step in cuts[0])


def warmed_up(spool: Path, *, ms: float = 2) -> Made:
    """A recorder that joins steps by now, with an event boundary just behind it, at step 128."""
    made = make(spool, shared=spool.with_name("memory"))
    for step in range(1, 129):
        made.step(step, ms=ms)
    assert steps_of(made)[-1]["step"] == 128
    assert steps_of(made)[-1]["count"] > 1
    return made


def test_sums_of_joined_steps(spool: Path) -> None:
    made = make(spool)
    batches = iter(made.rec.data(slowly(made, ms=0.5)))
    for step in range(1, 161):
        next(batches)
        with made.rec.step(step):
            made.time.advance(1)
            if step != 140:
                made.rec.own_work_done()
            made.time.advance(1)
    by_end = {event["step"]: event for event in steps_of(made)}
    event = by_end[128]
    assert event["count"] == 32
    assert event["data_ns"] == 32 * MS // 2
    assert event["busy_ns"] == 32 * (MS + MS // 2)
    assert event["end_ns"] - event["start_ns"] == 32 * 2.5 * MS
    assert by_end[160]["data_ns"] == 16 * MS
    assert "busy_ns" not in by_end[160], "one of its steps did not measure its own work"


def test_no_event_reaches_across_a_span(spool: Path) -> None:
    made = warmed_up(spool)
    made.step(129, ms=2)
    with made.rec.checkpoint(129):
        made.time.advance(10)
    for step in range(130, 133):
        made.step(step, ms=2)
    with made.rec.step(133), made.rec.evaluation():
        made.time.advance(3)
    made.step(134, ms=2)
    made.rec.finish()
    after = [event for event in read_events(spool) if event["kind"] == "step" and event["step"] > 128]
    assert [(event["step"], event.get("count", 1)) for event in after] == [(129, 1), (132, 3), (133, 1), (134, 1)]


def test_no_event_reaches_across_a_resume_a_fall_back_or_a_skipped_step(spool: Path) -> None:
    made = warmed_up(spool)
    made.step(129, ms=2)
    made.rec.resumed(99)
    made.step(100, ms=2)
    made.step(90, ms=2)
    made.step(91, ms=2)
    made.step(92, ms=2, applied=False)
    made.step(93, ms=2)
    made.rec.finish()
    events = [event for event in read_events(spool) if event["kind"] in ("step", "resume")]
    after = sorted((event for event in events if event["seq"] > 1), key=lambda event: event["ts_ns"])
    after = after[[event["kind"] for event in after].index("resume") - 1 :]
    assert [(e["kind"], e["step"], e.get("count", 1), e.get("applied", True)) for e in after] == [
        ("step", 129, 1, True),
        ("resume", 99, 1, True),
        ("step", 100, 1, True),
        ("step", 91, 2, True),
        ("step", 92, 1, False),
        ("step", 93, 1, True),
    ]


def test_a_pending_step_is_written_after_a_second_though_the_loop_stands(spool: Path) -> None:
    made = warmed_up(spool)
    made.step(129, ms=2)
    made.step(130, ms=2)
    assert steps_of(made)[-1]["step"] == 128
    made.time.advance(999)
    assert steps_of(made)[-1]["step"] == 130
    assert steps_of(made)[-1]["count"] == 2


def test_memory_that_dies_with_the_process_keeps_no_step_back(spool: Path) -> None:
    made = make(spool)
    for step in range(1, 131):
        made.step(step, ms=2)
    assert done_steps(made.events()) == list(range(1, 131))
    assert steps_of(made)[-1]["count"] == 2


def test_steps_that_become_slow_are_told_one_by_one_again(spool: Path) -> None:
    made = warmed_up(spool)
    for step in range(129, 200):
        made.step(step, ms=300)
    assert all("count" not in event for event in steps_of(made) if event["step"] > 160)
    assert done_steps(made.events()) == list(range(1, 200))
    assert all(event["end_ns"] - event["start_ns"] <= 1300 * MS for event in steps_of(made))


def test_a_step_that_stands_for_several(spool: Path) -> None:
    made = make(spool)
    made.step(20, ms=2000, count=20)
    made.step(40, ms=2000, count=20)
    assert [(event["step"], event["count"]) for event in steps_of(made)] == [(20, 20), (40, 20)]
    assert done_steps(made.events()) == list(range(1, 41))


def test_an_end_without_a_step_says_nothing(spool: Path) -> None:
    made = make(spool)
    made.rec.end_step()
    made.rec.begin_step(1)
    made.rec.begin_step(2)
    made.time.advance(100)
    made.rec.end_step()
    made.rec.end_step()
    assert [event["step"] for event in steps_of(made)] == [2]
    assert kinds(made.events()) == ["start", "step"]
