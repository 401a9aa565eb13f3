"""The recorder of one rank: what the loop says becomes lines in memory, and nothing else happens on its thread."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from itertools import count as counter
from operator import index
from typing import TypeVar

from goodput.clock import Clock
from goodput.events import COUNT_LIMIT, TEXT_MAX_CHARS, Field, Kind, StopReason, format_event
from goodput.feed import Feed, feed
from goodput.firsttime import FirstTimes
from goodput.guard import Guard
from goodput.memory import Memory
from goodput.names import Names
from goodput.outcome import Outcome, outcome_of
from goodput.outlet import Outlet
from goodput.request import RequestWatch
from goodput.spans import OpenSpan, SpanContext
from goodput.steps import Steps
from goodput.tally import SpanTimes, Summary, span_category, summarize
from goodput.worker import Worker

T = TypeVar("T")


class LiveRecorder:
    """Records (see `goodput.Recorder` for what each method means).

    Attributes:
        run, source: names in the event contract.
        guard: what went wrong so far.
        steps: the rank's steps.
        left: the phase in which an announced exception left the loop, None while there is none.
        outcome: the `stop` that an exception or `preempted` has announced, None while nothing has.
        ended_ns: when the `stop` was written, None while there is none.
        resumes: how often `resumed` has told where the training goes on.
        resumed_step: what it told last; None for a beginning from nothing, and while it has told nothing.
        told: the fields of its `start`, which is told again where something is learnt later; empty for none.
        started_ns: since when the rank's time counts: the start of its process, or of this record.
        rank, world_size: the rank's place.
        on_end: called once with the summary and the reason, by the recorder's own thread after the last event: so it
            may write to a disk.
        waits_since: tells since when this rank's GPU waits for others, None while it does not; None where nobody looks.
        first_times, requests: what `first_time` and `checkpoint_requested` ask; None where there is nothing to ask.
    """

    __slots__ = (
        "_clock",
        "_handled",
        "_memory",
        "_names",
        "_outlet",
        "_seq",
        "_span_ids",
        "_span_times",
        "_spans",
        "_worker",
        "ended_ns",
        "first_times",
        "guard",
        "left",
        "on_end",
        "outcome",
        "rank",
        "requests",
        "resumed_step",
        "resumes",
        "run",
        "source",
        "started_ns",
        "steps",
        "told",
        "waits_since",
        "world_size",
    )

    def __init__(self, *, run: str, source: str, clock: Clock, memory: Memory, guard: Guard) -> None:
        self.run = run
        self.source = source
        self.guard = guard
        self.left: tuple[str, int] | None = None
        self.outcome: Outcome | None = None
        self.ended_ns: int | None = None
        self.resumes = 0
        self.resumed_step: int | None = None
        self._clock = clock
        self._memory = memory
        self._handled = id(sys.exc_info()[1])
        self._names = Names(run, source)
        self._outlet = Outlet(memory, guard)
        self._seq = counter()
        self._span_ids = counter()
        # In order of beginning. Changed by single atomic calls, read through copies.
        self._spans: dict[int, OpenSpan] = {}
        self._span_times = SpanTimes()
        self._worker: Worker | None = None
        self.told: dict[str, Field] = {}
        self.started_ns = clock.now_ns()
        self.rank, self.world_size = 0, 1
        self.on_end: Callable[[Summary, StopReason], None] | None = None
        self.first_times: FirstTimes | None = None
        self.requests: RequestWatch | None = None
        self.waits_since: Callable[[], int | None] | None = None
        self.steps = Steps(
            clock=clock,
            memory=memory,
            seq=self._seq,
            outlet=self._outlet,
            names=self._names,
            on_start=self._goes_on,
            on_error=self.left_by,
            failed=self._failed,
        )

    # -- what the loop says --------------------------------------------------------------------------------------

    @property
    def active(self) -> bool:
        return self.ended_ns is None

    @property
    def in_span(self) -> bool:
        """A declared span is open."""
        return bool(self._spans)

    def resumed(self, step: int | None) -> None:
        try:
            self._goes_on()
            self.steps.rewind()
            # The step before the first is how some say that nothing was loaded.
            number = None if step is None or step == -1 else _step_number(step)
            if self.first_times is not None:
                self.first_times.resumed(number, self.steps.done)
            self._event(Kind.RESUME, {"step": number})
            self.resumed_step = number
            self.resumes += 1
        except Exception as error:
            self._failed("resume could not be recorded", error)

    def data(self, iterable: Iterable[T]) -> Iterable[T]:
        try:
            fed: Feed[T] = feed(iterable, self.steps)
        except Exception as error:
            self.guard.caught("data could not be watched", error)
            return iterable
        return fed

    def step(self, step: int, count: int = 1, applied: bool = True) -> Steps:
        return self.steps.at(step, count, applied)

    def begin_step(self, step: int, count: int = 1) -> None:
        self.steps.at(step, count).__enter__()

    def end_step(self, *, applied: bool = True, loss: float | None = None, lr: float | None = None) -> None:
        steps = self.steps
        if loss is not None or lr is not None or applied is not steps.applied:
            steps.note(loss=loss, lr=lr, applied=applied)
        steps.__exit__(None, None, None)

    def own_work_done(self) -> None:
        self.steps.own_work_done()

    def checkpoint(self, step: int, async_: bool = False) -> SpanContext:
        return SpanContext(self, "checkpoint", None, step, async_)

    def evaluation(self, step: int | None = None) -> SpanContext:
        return SpanContext(self, "evaluation", None, self.steps.done if step is None else step, False)

    def span(self, name: str, category: str | None = None, step: int | None = None) -> SpanContext:
        return SpanContext(self, name, category, step, False)

    def begin_span(self, name: str, category: str | None = None, step: int | None = None, async_: bool = False) -> int:
        try:
            self._goes_on()
            self.steps.cut()
            span = OpenSpan(
                id=next(self._span_ids),
                name=str(name),
                step=None if step is None else self._span_step(index(step)),
                since_ns=self._clock.now_ns(),
                category=span_category(str(name), category),
                outermost=not self._spans,
                asked=None if self.requests is None else self.requests.pending,
            )
            fields: dict[str, Field] = {"span": span.name, "id": str(span.id)}
            if span.step is not None:
                fields["step"] = span.step
            if category is not None:
                fields["category"] = str(category)
            if async_:
                fields["async"] = True
            self._spans[span.id] = span
            self._event(Kind.BEGIN, fields, span.since_ns)
            return span.id
        except Exception as error:
            self._failed("span could not be begun", error)
            return -1

    def end_span(self, span: int, ok: bool = True) -> None:
        try:
            found = self._spans.pop(span, None)
            if found is None:
                return
            self.steps.cut()
            fields: dict[str, Field] = {"span": found.name, "id": str(found.id)}
            if found.step is not None:
                fields["step"] = found.step
            if not ok:
                fields["ok"] = False
            now = self._clock.now_ns()
            self._event(Kind.END, fields, now)
            self._note_span(found, now, ok)
        except Exception as error:
            self._failed("span could not be ended", error)

    def durable(self, step: int, ok: bool = True) -> None:
        try:
            self._event(Kind.DURABLE, {"step": _step_number(step), "ok": bool(ok)})
        except Exception as error:
            self._failed("durable checkpoint could not be recorded", error)

    def progress(self) -> None:
        try:
            self._event(Kind.PROGRESS)
        except Exception as error:
            self._failed("progress could not be recorded", error)

    def in_group(self, group: str | int) -> None:
        try:
            name = str(group)[:TEXT_MAX_CHARS]
            if self.told and self.told.get("group") != name:
                self.told["group"] = name
                self._event(Kind.START, self.told)
        except Exception as error:
            self._failed("group could not be recorded", error)

    def preempted(self) -> None:
        try:
            # The loop may yet save and clean up: the stop itself comes when it ends, with this reason.
            self._announce(Outcome(reason=StopReason.PREEMPTED, detail=None, ts_ns=self._clock.now_ns()))
        except Exception as error:
            self.guard.caught("preemption could not be recorded", error)

    def first_time(self, step: int) -> bool:
        try:
            known = self.first_times
            return True if known is None else known.first(_step_number(step), self.steps.done)
        except Exception as error:
            # A side effect that is left out can be mended; one that comes twice cannot.
            self.guard.caught("first_time could not be answered", error)
            return False

    def checkpoint_requested(self) -> bool:
        requests = self.requests
        if requests is None or requests.pending is None:
            return False
        pending = requests.pending
        if pending is None or pending.step is None:
            return pending is not None
        done = self.steps.done
        return done is not None and done >= pending.step

    def finish(self) -> None:
        try:
            error = sys.exc_info()[1]
            if error is not None and id(error) != self._handled:
                # `finally: rec.finish()` on an exception's way out is not a finish. One that was already being
                # handled when the loop last went on (a fallback in an `except` that trains) has nothing to do with it.
                self.left_by(error)
            elif self.outcome is not None and self.outcome.reason is not StopReason.PREEMPTED:
                # The exception that left the last step was dealt with: the user says that all is well.
                self.outcome = None
            self.stop(StopReason.FINISHED)
        except Exception as error:
            self.guard.caught("finish could not be recorded", error)

    # -- how it ends ---------------------------------------------------------------------------------------------

    def left_by(self, error: BaseException) -> None:
        """An exception leaves a step or a span. It may still be caught outside, so this only announces the stop;
        going on with a step or a span takes it back. Should the process die first, whoever recovers its memory
        says it."""
        try:
            outcome = outcome_of(error, self._clock.now_ns())
            if outcome is not None:
                # Told as it was where the exception came from: on its way out nothing is open any more.
                self.left = self.left or self.phase()
                self._announce(outcome)
        except Exception as ours:
            self.guard.caught("exception could not be recorded", ours)

    def stop(self, reason: StopReason, *, wait: bool = True) -> None:
        """Say the end, once, and wait a short while for the disk. An announced outcome outranks `reason`."""
        if self.ended_ns is not None:
            return
        try:
            now = self._clock.now_ns()
            self.ended_ns = now
            self.steps.flush()
            # The stop is the last event, whatever other threads still say.
            self._outlet.shut()
            self.steps.forget()
            outcome = self.outcome or Outcome(reason=reason, detail=None, ts_ns=now)
            if outcome.reason is StopReason.PREEMPTED:
                outcome = Outcome(reason=outcome.reason, detail=outcome.detail, ts_ns=now)
            if outcome.reason in (StopReason.EXCEPTION, StopReason.SIGNAL):
                for span in reversed(self._spans.copy().values()):
                    self.event(Kind.END, {"span": span.name, "id": str(span.id), "ok": False}, outcome.ts_ns)
            summary = self.summary()
            on_end = self.on_end
            if self._worker is not None:
                self._worker.stop(outcome, None if on_end is None else lambda: on_end(summary, outcome.reason))
                if wait:
                    self._worker.wait_closed()
        except Exception as error:
            self.guard.caught("stop could not be recorded", error)

    def wait_closed(self, patient: bool = True) -> bool:
        """Wait for the end of a record that was stopped without waiting; False when the disk was slower."""
        try:
            return self._worker is None or self._worker.wait_closed(patient)
        except Exception as error:
            self.guard.caught("stop could not be recorded", error)
            return False

    def abandon(self) -> None:
        """In a forked child: the memory and the files are the parent's, and so is the record."""
        self.ended_ns = self._clock.now_ns()
        self._outlet.shut()
        self._memory.closed = True
        self._worker = None
        self.on_end = self.requests = None
        if self.first_times is not None:
            self.first_times.abandon()
        self.waits_since = None
        self.steps.forget()

    # -- how it is written ---------------------------------------------------------------------------------------

    def attach(self, worker: Worker) -> None:
        """Give the recorder the worker that empties its memory."""
        self._worker = worker

    def event(self, kind: Kind, fields: dict[str, Field], ts_ns: int | None = None) -> bool:
        """Hand over an event that the recorder itself has to say, after the end too. False when it had no room."""
        return self._outlet.emit_last(self._line(kind, fields, ts_ns))

    def summary(self) -> Summary:
        """The attempt so far, as this rank saw it."""
        return summarize(
            run=self.run,
            rank=self.rank,
            world_size=self.world_size,
            start_ns=self.started_ns,
            end_ns=self._clock.now_ns() if self.ended_ns is None else self.ended_ns,
            steps=self.steps.times(),
            spans=self._span_times,
        )

    def phase(self) -> tuple[str, int]:
        """What the loop is doing, and since when, as a heartbeat tells it. From any thread."""
        steps = self.steps
        spans = list(self._spans.copy().values())
        blocked = steps.blocked_ns
        # Between two steps a collective tells nothing: an undeclared save would have all others wait in one.
        if blocked is not None and (spans or steps.open or steps.done is None):
            return "waiting", blocked
        if spans:
            return spans[-1].name, spans[-1].since_ns
        fetching = steps.fetching_ns
        if not steps.open:
            # Waiting for input is the beginning of the next step.
            return ("between", steps.ended_ns) if fetching is None else ("step", fetching)
        own = steps.own_done_ns
        if own is None and self.waits_since is not None:
            own = self.waits_since()
        return ("step", steps.started_ns) if own is None else ("waiting", own)

    def _event(self, kind: Kind, fields: dict[str, Field] | None = None, ts_ns: int | None = None) -> None:
        self._outlet.emit(self._line(kind, fields, ts_ns))

    def _line(self, kind: Kind, fields: dict[str, Field] | None, ts_ns: int | None) -> bytes:
        seq = next(self._seq)
        return self._names.put(seq, format_event(kind, seq, self._clock.now_ns() if ts_ns is None else ts_ns, fields))

    def _note_span(self, span: OpenSpan, end_ns: int, ok: bool) -> None:
        """A span has ended: what that means for the summary, and for a save that was asked for."""
        steps = self.steps
        if span.outermost and steps.done is not None:
            self._span_times.add(span.category, end_ns - span.since_ns, inside_step=steps.open)
        if ok and span.name == "checkpoint":
            self._span_times.saves += 1
            if span.asked is not None and self.requests is not None:
                self.requests.answered(span.asked)

    def _announce(self, outcome: Outcome) -> None:
        if self.ended_ns is not None:
            return
        before = self.outcome
        if before is not None and before.reason is StopReason.PREEMPTED:
            return
        self.outcome = outcome
        self.steps.alert = True
        self._memory.note_outcome(outcome.encode())

    def _goes_on(self) -> None:
        """A step or a span begins: an exception that had been announced was caught outside."""
        self._handled = id(sys.exc_info()[1])
        self.left = None
        self.steps.alert = False
        outcome = self.outcome
        if outcome is not None and outcome.reason is not StopReason.PREEMPTED and self.ended_ns is None:
            self.outcome = None
            self._memory.note_outcome(None)

    def _span_step(self, step: int) -> int | None:
        """The span's time counts even where its step cannot be right, as before the first one."""
        if 0 <= step < COUNT_LIMIT:
            return step
        self.guard.caught("span has an impossible step, which is left out", None)
        return None

    def _failed(self, reason: str, error: BaseException, lost: int = 1) -> None:
        self.guard.caught(reason, error, lost=lost if self.active else 0)


def _step_number(step: int) -> int:
    """Raises TypeError and ValueError for what is no step number."""
    number = index(step)
    if not 0 <= number < COUNT_LIMIT:
        raise ValueError("a step's number is 0 or more")
    return number
