"""A rank's own work: what counts as waiting for others, on the thread that trains and on the stream of a GPU."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from recorder_made import MS, Made, make
from torch import nn

import goodput.torch
from goodput import _own_work
from goodput._stream_waits import StreamWaits
from goodput.recorder import LiveRecorder


def steps_of(made: Made) -> list[dict[str, Any]]:
    return [event for event in made.events() if event["kind"] == "step"]


def wait(made: Made, ms: float) -> None:
    """The thread waits in a collective."""
    since = made.rec.steps.block()
    made.time.advance(ms)
    made.rec.steps.unblock(since, counts=True)


def test_waits_in_a_step_are_no_work(spool: Path) -> None:
    made = make(spool)
    with made.rec.step(1):
        made.time.advance(10)
        wait(made, 30)
        made.time.advance(5)
        wait(made, 20)
        made.time.advance(25)
    with made.rec.step(2):
        made.time.advance(60)
    first, second = steps_of(made)
    assert first["busy_ns"] == 40 * MS
    assert "busy_ns" not in second


def test_after_the_last_gradient_others_are_waited_for_until_they_have_caught_up(spool: Path) -> None:
    made = make(spool)
    with made.rec.step(1):
        made.time.advance(10)
        made.rec.own_work_done()
        assert made.rec.phase()[0] == "waiting"
        wait(made, 15)  # inside it: not a wait of its own
        made.time.advance(15)
        made.rec.steps.own_work_goes_on()
        assert made.rec.phase()[0] == "step"
        made.time.advance(50)  # the optimizer
    assert steps_of(made)[0]["busy_ns"] == 60 * MS


def test_a_wait_between_two_steps_is_the_next_ones(spool: Path) -> None:
    made = make(spool)
    with made.rec.step(1):
        made.time.advance(70)
    made.time.advance(10)
    wait(made, 40)
    since = made.rec.steps.fetch()
    made.time.advance(5)
    made.rec.steps.fetched(since)
    with made.rec.step(2):
        made.time.advance(80)
    first, second = steps_of(made)
    assert second["start_ns"] - first["end_ns"] == 10 * MS
    assert second["end_ns"] - second["start_ns"] == 125 * MS
    assert second["data_ns"] == 5 * MS
    assert second["busy_ns"] == 85 * MS


def test_what_was_waited_for_before_a_span_belongs_to_no_step(spool: Path) -> None:
    made = make(spool)
    with made.rec.step(1):
        made.time.advance(70)
    wait(made, 40)
    with made.rec.checkpoint(1):
        made.time.advance(500)
    with made.rec.step(2):
        made.time.advance(80)
    first, second = steps_of(made)
    assert second["start_ns"] - first["end_ns"] == 540 * MS
    assert "busy_ns" not in second


def test_what_a_rank_did_between_joined_steps_was_its_own(spool: Path) -> None:
    made = make(spool)
    for number in range(1, 65):
        with made.rec.step(number):
            made.time.advance(2)
            wait(made, 1)
        made.time.advance(1)
    joined = [event for event in steps_of(made) if event.get("count", 1) > 1]
    assert joined
    for event in joined:
        assert event["busy_ns"] == (3 * event["count"] - 1) * MS


def test_a_rank_inside_a_collective_is_waiting_but_not_between_two_steps(spool: Path) -> None:
    made = make(spool)
    assert made.rec.phase()[0] == "between"
    since = made.rec.steps.block()
    assert made.rec.phase() == ("waiting", since)  # before the first step: somebody does not come to it
    made.rec.steps.unblock(since, counts=True)
    with made.rec.step(1):
        made.time.advance(70)
    since = made.rec.steps.block()
    assert made.rec.phase()[0] == "between"  # perhaps an undeclared save, for which all others wait
    made.rec.steps.unblock(since, counts=True)
    with made.rec.checkpoint(1):
        since = made.rec.steps.block()
        assert made.rec.phase() == ("waiting", since)
        made.rec.steps.unblock(since, counts=False)
        assert made.rec.phase()[0] == "checkpoint"


# -- on a GPU, of which there is none here: events that come up when the test says so --------------------------------


class FakeStream:
    """Work and waits in a row, done up to `done_ms`; events keep the time at which they come up."""

    def __init__(self) -> None:
        self.at_ms = 0.0
        self.done_ms = 0.0
        self.capturing = False
        self.made = 0


class FakeEvent:
    def __init__(self, stream: FakeStream) -> None:
        stream.made += 1
        self.stream, self.ms = stream, float("inf")

    def record(self) -> None:
        assert not self.stream.capturing, "recorded into a graph"
        self.ms = self.stream.at_ms

    def query(self) -> bool:
        return self.ms <= self.stream.done_ms

    def elapsed_time(self, end: FakeEvent) -> float:
        assert self.query() and end.query(), "this would raise on a GPU"
        return end.ms - self.ms

    def synchronize(self) -> None:
        raise AssertionError("waited for the GPU")


def streamed(made: Made) -> tuple[FakeStream, StreamWaits]:
    stream = FakeStream()
    waits = StreamWaits(
        event=lambda: FakeEvent(stream),
        ready=lambda: not stream.capturing,
        waited=made.rec.steps.waited,
        now_ns=made.rec.steps.now_ns,
    )
    made.rec.steps.before_end = waits.read
    made.rec.waits_since = waits.since
    return stream, waits


def launch(stream: FakeStream, waits: StreamWaits, own_ms: float, wait_ms: float) -> None:
    """Queue own work and then a wait."""
    stream.at_ms += own_ms
    begun = waits.begin()
    stream.at_ms += wait_ms
    waits.end(begun)


def test_waits_of_a_stream_are_told_when_they_are_over(spool: Path) -> None:
    made = make(spool)
    stream, waits = streamed(made)
    with made.rec.step(1):
        launch(stream, waits, 60, 40)
        made.time.advance(100)
        stream.done_ms = 100  # a loop that reads its loss: all is over
    with made.rec.step(2):
        launch(stream, waits, 60, 40)
        launch(stream, waits, 10, 30)
        made.time.advance(100)
        stream.done_ms = 200  # 40 ms of waiting seen, the rest is still to come
    with made.rec.step(3):
        launch(stream, waits, 60, 40)
        made.time.advance(140)
        stream.done_ms = 340
    with made.rec.step(4):
        made.time.advance(70)  # nothing came to be over, and that is known
    busy = [event["busy_ns"] // MS for event in steps_of(made)]
    assert busy == [60, 60, 70, 70]


def test_a_thread_that_runs_ahead_of_its_gpu_sums_up_right(spool: Path) -> None:
    """Nine steps are only queued, in 60 ms each; in the tenth the thread waits for the GPU."""
    made = make(spool)
    stream, waits = streamed(made)
    for number in range(1, 31):
        with made.rec.step(number):
            launch(stream, waits, 70, 30)
            made.time.advance(60 if number % 10 else 460)
            if number % 10 == 0:
                stream.done_ms = stream.at_ms
    told = steps_of(made)
    # The first nine steps knew of no wait yet; from then on nothing is lost.
    assert sum(event["busy_ns"] for event in told) == 30 * 70 * MS
    assert all(0 <= event["busy_ns"] <= event["end_ns"] - event["start_ns"] for event in told)


def test_events_are_used_again_and_a_gpu_that_stands_still_costs_no_memory(spool: Path) -> None:
    made = make(spool)
    stream, waits = streamed(made)
    for number in range(1, 101):
        with made.rec.step(number):
            launch(stream, waits, 50, 10)
            made.time.advance(60)
            stream.done_ms = stream.at_ms
    assert stream.made == 2
    for _ in range(10_000):
        launch(stream, waits, 50, 10)
    assert stream.made < 2 * 4096 + 10


def test_nothing_is_recorded_into_a_graph(spool: Path) -> None:
    made = make(spool)
    stream, waits = streamed(made)
    stream.capturing = True
    launch(stream, waits, 50, 10)
    stream.capturing = False
    begun = waits.begin()
    stream.capturing = True
    waits.end(begun)
    waits.read()
    assert made.rec.steps._others_ns == -1


def test_a_gpu_that_waits_for_others_tells_so_from_the_first_look(spool: Path) -> None:
    made = make(spool)
    stream, waits = streamed(made)
    with made.rec.step(1):
        launch(stream, waits, 50, 1e9)
        assert made.rec.phase()[0] == "step"  # it has own work to do
        stream.done_ms = 60
        made.time.advance(80)
        first = made.rec.phase()
        made.time.advance(5000)
        assert first[0] == "waiting" and made.rec.phase() == first
        stream.done_ms = 2e9
        assert made.rec.phase()[0] == "step"


# -- the calls that are wrapped ---------------------------------------------------------------------------------------


@pytest.fixture
def group(spool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveRecorder]:
    """A process group of one, taken for one of several, and a recorder."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    monkeypatch.setattr(_own_work, "_ranks", lambda: 2)
    rec = goodput.torch.watch(run="group")
    assert isinstance(rec, LiveRecorder)
    yield rec
    rec.finish()
    dist.destroy_process_group()


def test_collectives_by_any_name_are_waits(group: LiveRecorder) -> None:
    from torch.distributed import all_reduce

    with group.step(1):
        for call in (
            lambda: all_reduce(torch.ones(2)),
            lambda: dist.all_reduce(torch.ones(2), async_op=True).wait(),  # type: ignore[union-attr]
            dist.barrier,
            lambda: dist.all_gather_object([None], 7),
            lambda: dist.broadcast(torch.ones(2), 0),
        ):
            group.steps._others_ns = -1
            call()
            assert group.steps._others_ns > 0


def test_an_exception_of_a_collective_shows_no_line_of_ours(group: LiveRecorder) -> None:
    class Lost(dist.Work):
        """A collective that others never come to."""

    with pytest.raises(RuntimeError) as caught, group.step(1):
        Lost().wait()
    files = [frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert files and not any(name.endswith("goodput/_own_work.py") for name in files)
    # Whoever came out of it by an exception, as of a timeout, was waiting, and goes nowhere but out.
    assert group.steps.blocked_ns is not None


def test_what_is_compiled_stays_whole(group: LiveRecorder) -> None:
    """A graph with collectives in it has no room for ours: a break in it would be an error here."""
    import torch.distributed._functional_collectives as functional

    @torch.compile(backend="eager", fullgraph=True)
    def compute(given: torch.Tensor) -> torch.Tensor:
        dist.all_reduce(given)
        other: torch.Tensor = functional.wait_tensor(functional.all_reduce(given, "sum", dist.group.WORLD))
        return 2 * other

    goodput.torch.watch(run="group")
    with group.step(1):
        assert torch.equal(compute(torch.ones(2)), 2 * torch.ones(2))


def test_a_users_communication_hook_and_gradient_hooks_stay(group: LiveRecorder) -> None:
    model = nn.parallel.DistributedDataParallel(nn.Linear(4, 1))
    called: list[str] = []

    # Without annotations, which torch reads.
    def reduce(_state, bucket):  # type: ignore[no-untyped-def]
        called.append("communication")
        done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    model.register_comm_hook(None, reduce)
    model.module.weight.register_hook(lambda _gradient: called.append("gradient"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    goodput.torch.watch(model, optimizer, group)
    for _ in range(3):
        model(torch.ones(1, 4)).sum().backward()
        assert group.steps.own_done_ns is None, "the others have caught up when the backward pass is over"
        optimizer.step()
    assert called.count("communication") == 3 and called.count("gradient") == 3


def test_what_cannot_be_measured_is_given_up_once(group: LiveRecorder, swallowed: list[str]) -> None:
    def fails() -> Any:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    found = _own_work.own_work_of(group)
    found.stream = StreamWaits(event=fails, ready=lambda: True, waited=lambda _ns: None, now_ns=lambda: 0)
    for number in (1, 2):
        with group.step(number):
            dist.all_reduce(torch.ones(2))
    assert swallowed == ["a wait for other ranks could not be recorded"]
    swallowed.clear()
