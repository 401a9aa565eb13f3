"""Steps: timing them, their data wait and own work, and joining fast ones into one event."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count as counter
from operator import index
from types import TracebackType

from goodput.clock import Clock
from goodput.events import COUNT_LIMIT, format_step
from goodput.memory import Memory, PendingStep
from goodput.names import Names
from goodput.outlet import Outlet
from goodput.tally import StepTimes

COALESCE_BELOW_NS = 50_000_000
"""Steps are joined until an event stands for at least this long: 20 events a second."""
COALESCE_MAX_NS = 1_000_000_000
"""No event waits for longer than this."""
_KEEP_BELOW_NS = 4 * COALESCE_BELOW_NS
_BLOCK_SHIFT_MIN = 4
_SHIFT_MAX = 20
_NEVER = 1 << 63
_NAN = float("nan")


class Steps:
    """One rank's steps; also the context manager that `rec.step()` gives.

    Used by the training thread, except for `own_work_done` (autograd calls hooks on threads of its own) and
    `flush_older` (the recorder's thread).

    How many steps an event stands for is a power of two, 2^shift, and events are cut where the step number passes
    a multiple of it. The shift follows the mean period of the last aligned block of steps, with hysteresis: ranks of
    a synchronous job see the same periods, so they cut at the same step numbers without talking to each other.

    Attributes:
        alert: something is to be looked at when the next step begins.
        applied: the open step's update was applied.
        before_end: called when a step is about to end, for what measures waits elsewhere than on this thread.
        before_cut: the same for a span that is about to begin or to end.
        blocked_ns: since when the training thread is inside a collective, None while it is not.
        done: number of the last step that was completed, None before the first.
        open: a step is running.
        started_ns: when the open step began.
        ended_ns: when the last step ended, or when the recorder started.
        own_done_ns: when this rank was done with its own work in the open step, None while it is not.
        fetching_ns: since when the loop waits for input between two steps, None when it does not.
    """

    __slots__ = (
        "_between_ns",
        "_block_shift",
        "_count",
        "_counted",
        "_cut",
        "_data_ns",
        "_failed",
        "_fed",
        "_first_ns",
        "_loss",
        "_lr",
        "_mark_next",
        "_mark_ns",
        "_mark_step",
        "_memory",
        "_monotonic_ns",
        "_names",
        "_noted",
        "_offset_ns",
        "_on_error",
        "_on_start",
        "_others_ns",
        "_outlet",
        "_pending",
        "_seq",
        "_shift",
        "_skipped_ns",
        "_spent_ns",
        "_step",
        "_turn",
        "_wait_ns",
        "_waited_ns",
        "alert",
        "applied",
        "before_cut",
        "before_end",
        "blocked_ns",
        "done",
        "ended_ns",
        "fetching_ns",
        "open",
        "own_done_ns",
        "started_ns",
    )

    def __init__(
        self,
        *,
        clock: Clock,
        memory: Memory,
        seq: counter[int],
        outlet: Outlet,
        names: Names,
        on_start: Callable[[], None],
        on_error: Callable[[BaseException], None],
        failed: Callable[[str, BaseException, int], None],
    ) -> None:
        """`on_start` is called when a step begins and `alert` is set, `on_error` with an exception that leaves a step;
        `failed` takes errors of our own, and how many events they cost."""
        self._monotonic_ns = clock.monotonic_ns
        self._offset_ns = clock.offset_ns
        self._memory = memory
        self._seq = seq
        self._outlet = outlet
        self._names = names
        self._on_start = on_start
        self._on_error = on_error
        self._failed = failed
        # At most one element, taken with `pop`, which is one atomic call: whoever gets it writes it.
        self._pending: list[tuple[int, PendingStep]] = []
        self._turn = 0
        self._shift = 0
        self._block_shift = _BLOCK_SHIFT_MIN
        self._mark_step: int | None = None
        self._mark_ns = 0
        # The step number from which the next block is over.
        self._mark_next = 0
        self._step = 0
        self._count = 1
        self._fed = False
        self._cut = False
        self._noted = False
        self._wait_ns = 0
        self._data_ns = 0
        # How long others were waited for since the last step's end, below 0 while nothing measures it; and the part of
        # it that lies between two steps.
        self._others_ns = -1
        self._between_ns = 0
        self._counted = 0
        self._spent_ns = 0
        self._waited_ns = 0
        self._skipped_ns = 0
        self._first_ns: int | None = None
        self._loss = _NAN
        self._lr = _NAN
        self.alert = True
        self.applied = True
        self.before_end: Callable[[], None] | None = None
        self.before_cut: Callable[[], None] | None = None
        self.blocked_ns: int | None = None
        self.done: int | None = None
        self.open = False
        self.started_ns = 0
        self.ended_ns = clock.now_ns()
        self.own_done_ns: int | None = None
        self.fetching_ns: int | None = None

    def at(self, step: int, count: int = 1, applied: bool = True) -> Steps:
        """Say which step the next `with` is about."""
        self._step = step
        self._count = count
        self.applied = applied
        return self

    def __enter__(self) -> Steps:
        """The step starts now, or where its input was first waited for."""
        try:
            if self.alert:
                self._on_start()
            step = self._step
            count = self._count
            if type(step) is not int or type(count) is not int:
                self._step = step = index(step)
                self._count = count = index(count)
            # One chain of comparisons, as this is the hot path: both are below the limit.
            if not 0 <= step < COUNT_LIMIT > count > 0:
                raise ValueError("a step's number is 0 or more, and it stands for 1 or more")
            now = self._monotonic_ns() + self._offset_ns
            wait = self._wait_ns
            if wait:
                # The input was waited for just before: that wait is part of this step.
                self._wait_ns = 0
                wait = min(wait, max(now - self.ended_ns, 0))
            self._data_ns = wait
            if self._between_ns:
                # Others were waited for since the last step: so much of the gap is no work of this rank's own, and
                # belongs to the step, where it counts as waiting.
                between, self._between_ns = self._between_ns, 0
                now -= min(between, max(now - wait - self.ended_ns, 0))
            self._cut = self._noted = False
            self.own_done_ns = None
            self.started_ns = now - wait
            self.open = True
        except Exception as error:
            self.open = False
            self._failed("step could not be begun", error, 1)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """The step is complete, unless an exception leaves it."""
        if error is not None:
            return self.abandon(error)
        # Without an open step there is nothing to say: the loop calls `end_step` once too often.
        if not self.open:
            return
        try:
            if self.before_end is not None:
                self.before_end()
            end = self._monotonic_ns() + self._offset_ns
            self.open = False
            step = self._step
            start = self.started_ns
            own = self.own_done_ns
            data = self._data_ns if self._fed else -1
            others = self._others_ns
            if others < 0:
                busy = -1 if own is None else own - start
            else:
                busy = (end if own is None else own) - start - others
                # On a GPU a wait may be seen to be over a little later: what is too much for this step is the next's.
                self._others_ns = -1 if busy >= 0 else -busy
                busy = max(busy, 0)
            self.done = step
            self.ended_ns = end
            self._counted += self._count
            self._spent_ns += end - start
            if data > 0:
                self._waited_ns += data
            if self._noted:
                loss, lr = self._loss, self._lr
            else:
                loss = lr = _NAN
            if self.applied and (self._shift or self._pending):
                self._join(step, start, end, data, busy, self._count, loss, lr)
            else:
                if self._pending:
                    self.flush()
                if not self.applied:
                    self._skipped_ns += end - start - max(data, 0)
                seq = next(self._seq)
                line = format_step(seq, step, start, end, data, busy, self._count, loss, lr, self.applied)
                if seq >= self._names.due_seq:
                    line = self._names.put(seq, line)
                try:
                    self._outlet.write(line)
                except ValueError:
                    self._outlet.write_elsewhere(line)
            if step >= self._mark_next:
                self._pace(step, end)
        except Exception as ours:
            self._failed("step could not be recorded", ours, 1)

    def abandon(self, error: BaseException) -> None:
        """An exception leaves the step: it is not done, and nothing is said of it."""
        try:
            self._on_error(error)
        except Exception as ours:
            self._failed("exception could not be recorded", ours, 0)
        self.open = False
        self._others_ns = -1

    def note(self, *, loss: float | None = None, lr: float | None = None, applied: bool | None = None) -> None:
        """Tell more about the open step: its loss and learning rate, and whether its update was applied."""
        try:
            if not self._noted:
                self._loss = self._lr = _NAN
                self._noted = True
            if loss is not None:
                self._loss = float(loss)
            if lr is not None:
                self._lr = float(lr)
            if applied is not None:
                self.applied = bool(applied)
        except Exception as error:
            # The step itself is recorded all the same.
            self._failed("step's figures could not be read", error, 0)

    def now_ns(self) -> int:
        """The time, as the steps count it."""
        return self._monotonic_ns() + self._offset_ns

    def own_work_done(self) -> None:
        """From here this rank only waits for the others. The last call in a step counts."""
        if self.open:
            self.own_done_ns = self._monotonic_ns() + self._offset_ns

    def own_work_goes_on(self) -> None:
        """The others have caught up: what this rank waited for since `own_work_done` was not its own work."""
        own = self.own_done_ns
        if own is not None and self.open:
            self.own_done_ns = None
            self.waited(self._monotonic_ns() + self._offset_ns - own)

    def waited(self, ns: int) -> None:
        """Others were waited for, on the training thread or on its GPU; 0: that is measured, and it was nothing."""
        others = self._others_ns
        self._others_ns = ns + others if others > 0 else ns

    def block(self) -> int:
        """The training thread goes into a collective; gives the time."""
        self.blocked_ns = now = self._monotonic_ns() + self._offset_ns
        return now

    def unblock(self, since_ns: int, counts: bool) -> None:
        """It has come out of it. `counts`: this was waiting for others, and nothing else tells of it."""
        self.blocked_ns = None
        if not counts or (self.own_done_ns is not None and self.open):
            return
        wait = self._monotonic_ns() + self._offset_ns - since_ns
        self.waited(wait)
        # While input is fetched the time is the input's, and the step begins with that anyhow.
        if not self.open and self.fetching_ns is None:
            self._between_ns += wait

    def fetch(self) -> int:
        """The loop begins to wait for input; gives the time."""
        now = self._monotonic_ns() + self._offset_ns
        self._fed = True
        if not self.open:
            self.fetching_ns = now
        return now

    def fetched(self, since_ns: int) -> None:
        """The input has come."""
        wait = self._monotonic_ns() + self._offset_ns - since_ns
        self.fetching_ns = None
        if self.open:
            self._data_ns += wait
        else:
            self._wait_ns += wait

    def cut(self) -> None:
        """A span begins or ends here: no event may reach across, and input fetched before belongs to no step."""
        if self.before_cut is not None:
            self.before_cut()
        if self._pending:
            self.flush()
        if self.open:
            self._cut = True
        else:
            self._wait_ns = self._between_ns = 0
            self._others_ns = -1

    def times(self) -> StepTimes:
        """What the steps took so far."""
        return StepTimes(
            count=self._counted,
            first_ns=self._first_ns,
            spent_ns=self._spent_ns,
            waited_ns=self._waited_ns,
            skipped_ns=self._skipped_ns,
        )

    def rewind(self) -> None:
        """A checkpoint was loaded: the step number may fall back."""
        self.cut()
        if self._mark_next != _NEVER:
            self._mark_step = None
            self._mark_next = 0

    def flush(self) -> None:
        """Write the pending step. Any thread may."""
        try:
            turn, pending = self._pending.pop()
        except IndexError:
            return
        self._emit(turn, pending)

    def flush_older(self, now_ns: int) -> None:
        """Write the pending step if it began more than a second ago: the loop may have stopped."""
        for _, pending in self._pending[:1]:
            if now_ns - pending[2] >= COALESCE_MAX_NS:
                self.flush()

    def forget(self) -> None:
        """Leave the memory alone from now on: it is closed, or another process's."""
        self._pending.clear()
        self.open = False
        self.before_end = self.before_cut = None
        self._shift = 0
        # With no next block the shift stays 0, and nothing is ever joined.
        self._mark_next = _NEVER

    def _join(self, step: int, start: int, end: int, data: int, busy: int, count: int, loss: float, lr: float) -> None:
        """Add a step to the pending one, and write that when it is due."""
        seq = -1
        try:
            turn, pending = self._pending.pop()
        except IndexError:
            pass
        else:
            if pending[1] == step - count:
                gap = max(start - pending[3], 0)
                seq, _, start, _, data_before, busy_before, count_before, loss_before, lr_before = pending
                data = data + data_before if data >= 0 and data_before >= 0 else -1
                # What the rank did between the two steps now lies inside the event, and was its own work.
                busy = busy + busy_before + gap if busy >= 0 and busy_before >= 0 else -1
                count += count_before
                loss = loss if loss == loss else loss_before
                lr = lr if lr == lr else lr_before
            else:
                self._emit(turn, pending)
        if seq < 0:
            seq = next(self._seq)
        self._turn = turn = self._turn + 1
        joined = (seq, step, start, end, data, busy, count, loss, lr)
        self._memory.note_step(turn, joined)
        self._pending.append((turn, joined))
        shift = self._shift
        if self._cut or end - start >= COALESCE_MAX_NS or step >> shift != (step - count) >> shift:
            self.flush()

    def _emit(self, turn: int, pending: PendingStep) -> None:
        self._outlet.emit(self._names.put(pending[0], format_step(*pending)))
        self._memory.step_done(turn)

    def _pace(self, step: int, end: int) -> None:
        """Choose how many steps an event stands for, at the end of an aligned block of steps."""
        before, self._mark_step = self._mark_step, step
        since, self._mark_ns = self._mark_ns, end
        self._mark_next = ((step >> self._block_shift) + 1) << self._block_shift
        if self._first_ns is None:
            self._first_ns = self.started_ns
        if before is None or step <= before:
            return
        period = max((end - since) // (step - before), 1)
        shift = self._shift
        if not COALESCE_BELOW_NS <= period << shift <= _KEEP_BELOW_NS:
            shift = 0
            while period << shift < COALESCE_BELOW_NS and shift < _SHIFT_MAX:
                shift += 1
            self._shift = shift
            self._block_shift = max(shift, _BLOCK_SHIFT_MIN)
        self._mark_next = ((step >> self._block_shift) + 1) << self._block_shift
