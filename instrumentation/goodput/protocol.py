"""What a training loop says to a recorder."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

T = TypeVar("T")


class StepHandle(Protocol):
    """What `with rec.step(n) as step` gives."""

    def note(self, *, loss: float | None = None, lr: float | None = None, applied: bool | None = None) -> None:
        """Tell more about the step: loss, learning rate, and whether the optimizer's update was applied.

        Figures must be at hand: reading a tensor on a GPU would wait for it.
        """


class Recorder(Protocol):
    """One rank's record of one run. No method raises, blocks on a disk, or changes an exception passing through.

    Step numbers are 0 or more. What is told with an impossible one is left out, warned of once and counted.

    Attributes:
        run: the run's name, empty for a recorder that does nothing.
        source: this process's source in the event contract, empty likewise.
        active: events are being recorded.
    """

    @property
    def run(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def active(self) -> bool: ...

    def resumed(self, step: int | None) -> None:
        """The loaded checkpoint holds the steps up to this one; None (or -1) when training begins from nothing."""

    def data(self, iterable: Iterable[T]) -> Iterable[T]:
        """The same items; the time that the loop waits for them counts as the next step's (or the open one's)
        data wait. May be iterated again, as its iterable may; `len` and attributes are the iterable's."""

    def step(self, step: int, count: int = 1, applied: bool = True) -> AbstractContextManager[StepHandle]:
        """Around one optimizer update. `count`: how many updates this one stands for, `step - count + 1` to `step`;
        `applied` False: the update was skipped, as a loss scaler does."""

    def begin_step(self, step: int, count: int = 1) -> None:
        """`step` for callbacks: a step begins. One that was open is forgotten, as it was not completed."""

    def end_step(self, *, applied: bool = True, loss: float | None = None, lr: float | None = None) -> None:
        """The open step is complete."""

    def own_work_done(self) -> None:
        """Inside a step: this rank has done its own work and from here only waits for others."""

    def in_group(self, group: str | int) -> None:
        """This rank does the same work as all that say the same, and other work than the others, such as a stage of a
        pipeline: it is compared with these. Say it before the first steps; the same as `goodput.start(group=...)`."""

    def checkpoint(self, step: int, async_: bool = False) -> AbstractContextManager[None]:
        """Around a save, as long as it blocks the loop. `async_`: it goes on afterwards; say `durable` then."""

    def evaluation(self, step: int | None = None) -> AbstractContextManager[None]:
        """Around an evaluation of the model as of this step (default: the last one done)."""

    def span(self, name: str, category: str | None = None, step: int | None = None) -> AbstractContextManager[None]:
        """Around other work that blocks the loop: `init`, `rendezvous`, `load_checkpoint`, `compile`, `data_skip`,
        or a word of one's own, with the ledger's category that its time belongs to."""

    def begin_span(self, name: str, category: str | None = None, step: int | None = None, async_: bool = False) -> int:
        """`span` for callbacks: gives what `end_span` wants."""

    def end_span(self, span: int, ok: bool = True) -> None:
        """The span is over; `ok` False when its work failed."""

    def durable(self, step: int, ok: bool = True) -> None:
        """An asynchronous checkpoint of this step is whole and safe on storage; `ok` False: it failed."""

    def progress(self) -> None:
        """Proof of progress inside a long span. From any thread."""

    def preempted(self) -> None:
        """The platform takes the machine away: whatever ends this process now is no failure of its own.
        May be called from a signal handler."""

    def first_time(self, step: int) -> bool:
        """Whether this step is computed for the first time in this run, for side effects that must not happen twice.

        False for a step that was done, or asked about here, before a restart on this node or before a `resumed`, and
        for one that a loaded checkpoint holds. Asked again in the same pass the answer is the same. On a node that has
        not seen the run, steps after the loaded checkpoint's count as new; a recorder that does nothing says True.
        """

    def checkpoint_requested(self) -> bool:
        """Whether the platform asks for a save now, as before a maintenance. Costs one read of memory; true until a
        checkpoint that begins after it has ended well. Ask after a step: then all ranks agree (`goodput.request`)."""

    def finish(self) -> None:
        """Training is complete. Waits at most two seconds for the disk. Later calls of any method do nothing.
        Rank 0 prints a short summary on stderr, unless `GOODPUT_SUMMARY=0`."""
