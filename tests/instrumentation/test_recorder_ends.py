"""Spans, exceptions, and how a record ends."""

from __future__ import annotations

import gc
import threading
import traceback
from pathlib import Path
from typing import Any

import pytest
from recorder_made import EPOCH_NS, MS, make
from recorder_reading import kinds, of_rank, read_events


def stop_of(spool: Path) -> dict[str, Any]:
    (stop,) = [event for event in read_events(spool) if event["kind"] == "stop"]
    return stop


def test_spans_pair_by_id_and_nest(spool: Path) -> None:
    made = make(spool)
    with made.rec.span("init"):
        made.time.advance(1)
        with made.rec.span("compile", category="startup"):
            made.time.advance(2)
    with made.rec.checkpoint(50, async_=True):
        made.time.advance(3)
    made.rec.durable(50)
    made.step(51, ms=100)
    with made.rec.evaluation():
        pass
    keep = ("kind", "span", "id", "step", "category", "async", "ok", "ts_ns")
    told = [
        {name: event[name] - EPOCH_NS if name == "ts_ns" else event[name] for name in keep if name in event}
        for event in of_rank(made.events())
        if event["kind"] in ("begin", "end", "durable")
    ]
    assert told == [
        {"kind": "begin", "span": "init", "id": "0", "ts_ns": 0},
        {"kind": "begin", "span": "compile", "id": "1", "category": "startup", "ts_ns": 1 * MS},
        {"kind": "end", "span": "compile", "id": "1", "ts_ns": 3 * MS},
        {"kind": "end", "span": "init", "id": "0", "ts_ns": 3 * MS},
        {"kind": "begin", "span": "checkpoint", "id": "2", "step": 50, "async": True, "ts_ns": 3 * MS},
        {"kind": "end", "span": "checkpoint", "id": "2", "step": 50, "ts_ns": 6 * MS},
        {"kind": "durable", "step": 50, "ok": True, "ts_ns": 6 * MS},
        {"kind": "begin", "span": "evaluation", "id": "3", "step": 51, "ts_ns": 106 * MS},
        {"kind": "end", "span": "evaluation", "id": "3", "step": 51, "ts_ns": 106 * MS},
    ]


def test_an_exception_passes_through_unchanged(spool: Path) -> None:
    made = make(spool)
    error = RuntimeError("out of cheese")

    def train() -> None:
        with made.rec.span("outer"), made.rec.step(1), made.rec.checkpoint(1):
            raise error

    with pytest.raises(RuntimeError) as caught:
        train()
    assert caught.value is error
    assert error.__context__ is None and error.__cause__ is None
    assert [frame.name for frame in traceback.extract_tb(error.__traceback__)] == [
        "test_an_exception_passes_through_unchanged",
        "train",
    ]


def test_an_exception_fails_the_spans_it_leaves_and_then_the_rank(spool: Path) -> None:
    made = make(spool)
    left_open = made.rec.begin_span("data_skip")
    with pytest.raises(KeyError), made.rec.step(1), made.rec.checkpoint(1):
        made.time.advance(5)
        raise KeyError("weights")
    made.time.advance(60_000)
    made.rec.stop("exited")  # type: ignore[arg-type]
    events = of_rank(read_events(spool))
    assert [event["kind"] for event in events] == ["start", "begin", "begin", "end", "end", "stop"]
    assert [(event["id"], event["ok"]) for event in events if event["kind"] == "end"] == [
        ("1", False),
        (str(left_open), False),
    ]
    stop = events[-1]
    assert (stop["reason"], stop["detail"]) == ("exception", "KeyError")
    assert stop["ts_ns"] == EPOCH_NS + 5 * MS, "the stop is when the exception left the loop, not when the process went"


def test_an_exception_that_the_loop_survives_is_no_stop(spool: Path) -> None:
    made = make(spool)
    with pytest.raises(MemoryError), made.rec.step(1):
        raise MemoryError
    made.step(2, ms=100)
    made.rec.finish()
    assert kinds(read_events(spool)) == ["start", "step", "stop"]
    assert stop_of(spool)["reason"] == "finished"


@pytest.mark.parametrize(
    ("error", "reason", "detail"),
    [
        (ValueError("secret"), "exception", "ValueError"),
        (KeyboardInterrupt(), "signal", "SIGINT"),
        (SystemExit(3), "exception", "SystemExit: 3"),
        (SystemExit("bad config"), "exception", "SystemExit: 1"),
        (SystemExit(0), "finished", None),
        (SystemExit(), "finished", None),
    ],
)
def test_finish_on_an_exceptions_way_out(spool: Path, error: BaseException, reason: str, detail: str | None) -> None:
    made = make(spool)
    with pytest.raises(type(error)):
        try:
            made.step(1, ms=100)
            raise error
        finally:
            made.rec.finish()
    stop = stop_of(spool)
    assert (stop["reason"], stop.get("detail")) == (reason, detail)
    assert "secret" not in str(read_events(spool)) and "bad config" not in str(read_events(spool))


def test_an_exception_that_was_dealt_with_before_does_not_spoil_the_finish(spool: Path) -> None:
    made = make(spool)
    try:
        raise FileNotFoundError("no checkpoint yet")
    except FileNotFoundError:
        # The whole training runs inside a handler.
        made.rec.resumed(None)
        made.step(1, ms=100)
        made.rec.finish()
    assert stop_of(spool)["reason"] == "finished"


def test_a_loop_that_ends_by_an_exception_of_its_own_is_finished_by_finish(spool: Path) -> None:
    class EarlyStopError(Exception):
        pass

    made = make(spool)
    try:
        with made.rec.step(1):
            raise EarlyStopError
    except EarlyStopError:
        pass
    made.rec.finish()
    assert stop_of(spool)["reason"] == "finished"


def test_preempted_names_whatever_end_comes(spool: Path) -> None:
    made = make(spool)
    made.rec.preempted()
    made.step(1, ms=100)
    with made.rec.checkpoint(1):
        made.time.advance(50)
    made.rec.finish()
    assert kinds(read_events(spool)) == ["start", "step", "begin", "end", "stop"]
    assert (stop_of(spool)["reason"], stop_of(spool)["ts_ns"]) == ("preempted", EPOCH_NS + 150 * MS)


def test_after_the_end_nothing_is_recorded(spool: Path, swallowed: list[str]) -> None:
    made = make(spool)
    for step in range(1, 200):
        made.step(step, ms=1)
    made.rec.finish()
    before = read_events(spool)
    assert before[-1]["kind"] == "stop"
    assert made.worker.closed and not made.rec.active
    made.rec.finish()
    made.rec.preempted()
    made.rec.resumed(3)
    made.rec.progress()
    made.rec.durable(3)
    for step in range(200, 400):
        made.step(step, ms=1)
    with made.rec.checkpoint(3), made.rec.span("x", category="y"), made.rec.evaluation():
        pass
    assert list(made.rec.data([1, 2])) == [1, 2]
    with pytest.raises(ZeroDivisionError), made.rec.step(7):
        raise ZeroDivisionError
    assert read_events(spool) == before
    assert list(spool.glob("*.lock")) == []
    assert swallowed == []


def test_data_behaves_as_what_it_wraps(spool: Path) -> None:
    made = make(spool)

    class Loader(list[int]):
        sampler = "shuffled"

    loader = made.rec.data(Loader([1, 2, 3]))
    assert len(loader) == 3  # type: ignore[arg-type]
    assert loader.sampler == "shuffled"  # type: ignore[attr-defined]
    assert [list(loader), list(loader)] == [[1, 2, 3], [1, 2, 3]], "it can be iterated once an epoch"
    assert not hasattr(made.rec.data(iter([1])), "__len__")
    assert next(made.rec.data(iter([5]))) == 5  # type: ignore[call-overload]


def test_closing_data_early_lets_the_loader_go(spool: Path) -> None:
    made = make(spool)
    closed = []

    def loader() -> Any:
        try:
            yield from range(10)
        finally:
            closed.append(True)

    for item in made.rec.data(loader()):
        if item == 3:
            break
    gc.collect()
    assert closed == [True]


def test_an_error_of_the_loader_passes_through(spool: Path) -> None:
    made = make(spool)
    error = OSError("worker died")

    def loader() -> Any:
        yield 1
        raise error

    with pytest.raises(OSError) as caught:
        list(made.rec.data(loader()))
    assert caught.value is error


def test_nonsense_is_counted_and_never_raised(spool: Path, swallowed: list[str]) -> None:
    made = make(spool)
    rec: Any = made.rec
    with rec.step("seven"):
        pass
    with rec.step(None), rec.step(1, count="x"):
        pass
    rec.resumed("x")
    rec.durable(None)
    with rec.span(object(), category=object(), step="x"):
        pass
    rec.end_span("never begun")
    with rec.step(2) as step:
        step.note(loss="x")
        made.time.advance(1100)
    made.worker.tick()
    told = {event["reason"]: event["count"] for event in made.events() if event["kind"] == "dropped"}
    assert told == {
        "step could not be begun": 3,
        "resume could not be recorded": 1,
        "durable checkpoint could not be recorded": 1,
        "span could not be begun": 1,
    }
    assert len(swallowed) == 7
    swallowed.clear()


def test_a_heartbeat_tells_step_and_phase(spool: Path) -> None:
    made = make(spool, heartbeat_s=5)

    def beat() -> dict[str, Any]:
        made.time.advance(5000)
        return [event for event in made.events() if event["kind"] == "heartbeat"][-1]

    def told() -> tuple[int, str, int]:
        last = beat()
        return last["step"], last["phase"], last["phase_since_ns"]

    first = beat()
    assert first["source"] == "src.hb" and first["of"] == "src" and "step" not in first
    assert (first["phase"], first["phase_since_ns"]) == ("between", EPOCH_NS)
    made.step(1, ms=100)
    made.rec.begin_step(2)
    begun = made.time.ns + EPOCH_NS
    assert told() == (1, "step", begun)
    made.rec.own_work_done()
    done = made.time.ns + EPOCH_NS
    assert told() == (1, "waiting", done)
    span = made.rec.begin_span("warm cache")
    assert told() == (1, "warm cache", done + 5000 * MS)
    made.rec.end_span(span)
    made.rec.end_step()

    def loader() -> Any:
        yield beat()

    beaten = next(iter(made.rec.data(loader())))
    assert beaten["phase"] == "step", "waiting for input is the beginning of the next step"
    beats = [event["seq"] for event in made.events() if event["kind"] == "heartbeat"]
    assert beats == list(range(len(beats)))


def test_any_thread_may_speak(spool: Path) -> None:
    made = make(spool)

    def speak() -> None:
        for _ in range(300):
            made.rec.progress()
            with made.rec.span("upload"):
                pass

    threads = [threading.Thread(target=speak) for _ in range(4)]
    for thread in threads:
        thread.start()
    for step in range(1, 301):
        made.step(step, ms=100)
    for thread in threads:
        thread.join()
    made.rec.finish()
    events = of_rank(read_events(spool))
    assert [event["seq"] for event in events] == list(range(len(events)))
    assert kinds(events).count("progress") == 1200
    assert kinds(events).count("begin") == kinds(events).count("end") == 1200
