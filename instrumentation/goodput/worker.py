"""The recorder's own thread: disk, heartbeats, and the agreement about the attempt."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from goodput.attempt import Agreement
from goodput.clock import Clock
from goodput.events import Field, Kind, StopReason, format_event
from goodput.facts import current_facts
from goodput.guard import Guard, warn_once
from goodput.liveness import LivenessLock
from goodput.memory import Memory
from goodput.outcome import Outcome, stop_fields
from goodput.twins import find_twin, twin_warning
from goodput.writer import SpoolWriter

if TYPE_CHECKING:
    from goodput.recorder import LiveRecorder

TICK_S = 0.1
"""How often the thread looks at the memory."""
PRESSED_TICK_S = 0.02
"""The same while the memory fills fast."""
UNSHARED_TICK_S = 0.05
"""The same where a kill takes the memory along: with the wait for a processor and the disk it stays below 0.1 s."""
CLOSE_LIMIT_S = 2.0
"""How long the end of a process may wait for its disk."""
ROUND_NS = 200_000_000
"""What has waited in shared memory since the look before goes to the disk: half as many rounds, each of which is paid
with the caches and a processor of the training. The rest of a round is rarer still."""
_EARLY_NS = 10_000_000  # A look may come a little early.
_LOOK_NS = 500_000_000
_TELL_NS = 1_000_000_000


class Worker:
    """Does each `TICK_S` what must not happen on the training thread.

    Attributes:
        closed: the record is complete on disk, its memory and its lock are gone.
    """

    def __init__(
        self,
        *,
        recorder: LiveRecorder,
        clock: Clock,
        memory: Memory,
        writer: SpoolWriter,
        lock: LivenessLock | None,
        agreement: Agreement,
        guard: Guard,
        heartbeat_s: float,
    ) -> None:
        self._recorder = recorder
        self._clock = clock
        self._memory = memory
        self._writer = writer
        self._lock = lock
        self._agreement = agreement
        self._guard = guard
        self._heartbeat_ns = int(heartbeat_s * 1e9)
        self._beats = 0
        self._beaten_ns = clock.now_ns()
        self._told_ns = self._beaten_ns
        # At once, to begin with.
        self._looked_ns = self._round_ns = self._beaten_ns - _TELL_NS
        self._told_rank, self._told_world_size = recorder.rank, recorder.world_size
        self._twins_looked_for = False
        self._outcome: Outcome | None = None
        self._afterwards: Callable[[], None] | None = None
        # Held until the end: waiting for it is one call, ten times a second, and `release` is safe in a signal handler.
        self._going = threading.Lock()
        self._going.acquire()
        self._thread: threading.Thread | None = None
        self.closed = False

    def start(self) -> None:
        """Begin the thread. Raises RuntimeError when the interpreter is already shutting down."""
        thread = threading.Thread(target=self._loop, name="goodput", daemon=True)
        thread.start()
        self._thread = thread

    def stop(self, outcome: Outcome, afterwards: Callable[[], None] | None = None) -> None:
        """Have the `stop` and all that is left written, and something done after that."""
        self._outcome = outcome
        self._afterwards = afterwards
        thread = self._thread
        alive = thread is not None and thread.is_alive()
        if self._going.locked():
            self._going.release()
        if not alive:
            self.close()

    def wait_closed(self, patient: bool = True) -> bool:
        """Wait for that, at most `CLOSE_LIMIT_S`, or not at all without patience. False when the disk was slower."""
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return True
        thread.join(CLOSE_LIMIT_S if patient else 0.0)
        if thread.is_alive():
            self._guard.caught("disk did not take the end of the record in time", None)
            return False
        return True

    def tick(self) -> None:
        """One round. Errors are counted, never raised."""
        now = self._clock.now_ns()
        shared = self._memory.path is not None
        if shared and now - self._round_ns < ROUND_NS - _EARLY_NS and not self._writer.crowded():
            return
        self._round_ns = now
        if now - self._looked_ns >= _LOOK_NS:
            self._looked_ns = now
            self._look_for_request(now)
        tell = now - self._told_ns >= _TELL_NS
        if tell or not shared:
            self._note_done()
        try:
            if shared:
                self._recorder.steps.flush_older(now)
            else:
                # Nobody could find a step that waits to be joined with the next ones.
                self._recorder.steps.flush()
            self._agree(now)
            if not self._twins_looked_for and self._recorder.steps.done is not None:
                self._twins_looked_for = True
                self._look_for_twins()
            if tell:
                self._told_ns = now
                self._tell_drops()
        except Exception as error:
            self._guard.caught("recorder's thread failed", error)
        self._writer.drain(now)
        if self._heartbeat_ns and now - self._beaten_ns >= self._heartbeat_ns:
            self._beaten_ns = now
            self._beat(now, self._recorder.phase())

    def close(self) -> None:
        """Write the end. The memory and the lock stay where not all of it could be written: the next reader of the
        spool takes it up."""
        try:
            self._agreement.close()
            outcome = self._outcome
            if outcome is not None:
                # First of all: the process may not be there any more when the disk has taken what comes before.
                self._memory.note_outcome(outcome.encode())
            limit_s = time.monotonic() + CLOSE_LIMIT_S / 2
            while self._writer.frozen() and time.monotonic() < limit_s:
                time.sleep(PRESSED_TICK_S)
            now = self._clock.now_ns()
            self._note_done(final=True)
            left = self._recorder.left
            raised = outcome is not None and outcome.reason is StopReason.EXCEPTION
            if raised and left is not None and self._heartbeat_ns:
                # Whether it waited for others when it raised: a heartbeat from before would not know.
                self._beat(now, left)
            complete = self._writer.drain(now, final=True)
            self._tell_drops()
            if outcome is not None:
                fields = stop_fields(outcome.reason, outcome.detail)
                if self._recorder.event(Kind.STOP, fields, outcome.ts_ns):
                    self._memory.note_outcome(None)
            complete = self._writer.drain(now, final=True) and complete
            # Removing what is done with would wait for a frozen disk too; the next reader does it then.
            complete = complete and not self._writer.frozen()
            self._writer.close()
            self._memory.close()
            if complete and self._memory.path is not None:
                Path(self._memory.path).unlink(missing_ok=True)
            if self._lock is not None:
                self._lock.release(remove=complete)
            if self._recorder.first_times is not None:
                self._recorder.first_times.close()
            self.closed = complete
        except Exception as error:
            self._guard.caught("record could not be closed", error)
        try:
            afterwards, self._afterwards = self._afterwards, None
            if afterwards is not None:
                afterwards()
        except Exception as error:
            self._guard.caught("summary could not be told", error)

    def _note_done(self, *, final: bool = False) -> None:
        """How far the loop has come, for those that ask whether a step was computed before."""
        recorder = self._recorder
        try:
            if recorder.first_times is not None:
                recorder.first_times.note_done(recorder.steps.done, self._writer.frozen, final=final)
        except Exception as error:
            self._guard.caught("steps computed before cannot be kept", error)

    def _look_for_request(self, now_ns: int) -> None:
        try:
            if self._recorder.requests is not None:
                self._recorder.requests.poll(now_ns)
        except Exception as error:
            self._guard.caught("request for a checkpoint could not be read", error)

    def _agree(self, now_ns: int) -> None:
        joined = self._agreement.poll(now_ns)
        if joined is None:
            return
        self._recorder.event(
            Kind.JOINED,
            {
                "attempt_token": joined.token,
                "rank": joined.rank,
                "world_size": joined.world_size,
                # What `start` came too early to tell, such as the backend.
                "meta": current_facts(),
            },
        )
        self._recorder.rank, self._recorder.world_size = joined.rank, joined.world_size

    def _look_for_twins(self) -> None:
        """Once, when the first step shows that this is a launch. Ranks that only their process group numbers all
        began as rank 0: they cannot be told from twins."""
        recorder = self._recorder
        if self._lock is None or self._agreement.world_size > self._told_world_size:
            return
        try:
            pid = find_twin(self._lock.path.parent, recorder.run, self._told_rank)
        except OSError:
            return
        if pid is not None:
            warn_once(f"twin of {recorder.run}", twin_warning(recorder.run, self._told_rank, pid))

    def _loop(self) -> None:
        tick_s = TICK_S if self._memory.path is not None else UNSHARED_TICK_S
        while not self._going.acquire(timeout=PRESSED_TICK_S if self._writer.pressed else tick_s):
            self.tick()
        self.close()

    def _beat(self, now_ns: int, phased: tuple[str, int]) -> None:
        recorder = self._recorder
        phase, since_ns = phased
        fields: dict[str, Field] = {"of": recorder.source}
        if recorder.steps.done is not None:
            fields["step"] = recorder.steps.done
        fields["phase"] = phase
        fields["phase_since_ns"] = since_ns
        line = format_event(Kind.HEARTBEAT, self._beats, now_ns, fields)
        self._beats += 1
        self._writer.heartbeat(line, now_ns)

    def _tell_drops(self) -> None:
        for reason, count in self._guard.untold():
            if not self._recorder.event(Kind.DROPPED, {"reason": reason, "count": count}):
                return
            self._guard.told(reason, count)
            self._memory.note_lost(self._guard.untold_count())
