"""The Trainer of transformers: one callback.

    from goodput.huggingface import GoodputCallback

    trainer = Trainer(..., callbacks=[GoodputCallback(run="llama-7b")])

For transformers 4.46 and newer, 5 included, and the trainers that others derive from it. It tells steps by
`state.global_step`, without the micro-batches between them and with the updates that a loss scaler left out; data
wait; saves from before to after; evaluations during training; the load of a checkpoint and the step it holds; loss
where it lies in the host's memory, learning rate; and an exception, which ends the record as such.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from transformers import Trainer, TrainerCallback

from goodput import torch as plain
from goodput._adapters import Wrapped, guard, harmless, join, live, plain_float, span_open, surround, traceless
from goodput.protocol import Recorder
from goodput.recorder import LiveRecorder

__all__ = ["GoodputCallback", "watch"]

_installing = threading.Lock()
_installed = False
_for_all: LiveRecorder | None = None


def prepare(begin: Callable[[Any], LiveRecorder | None]) -> None:
    """Have `Trainer.train` ask `begin` for a recorder first, given the trainer; None leaves the training unrecorded.

    For a program that turns out to be a training only there. `begin` must not raise.
    """

    def training(trainer: Any, *_: Any, **__: Any) -> None:
        global _for_all
        if _for_all is None:
            _for_all = begin(trainer)

    _install()
    Trainer.train = surround(Trainer.train, training)


def watch(rec: Recorder | None = None, *, run: str | None = None) -> Recorder:
    """Record every `trainer.train()` from here on, also of trainers that were given no callback.

    For programs that are not to be changed. `rec`: the recorder (default: the one that this process has begun, else a
    new one, of this `run`). Returns it; never raises.
    """
    global _for_all
    speaks, _ = join(rec, run)
    try:
        _for_all = live(speaks)
        if _for_all is not None:
            _install()
    except Exception as error:
        guard.caught("the trainer could not be watched", error)
    return speaks


class GoodputCallback(TrainerCallback):  # type: ignore[misc]
    """Records `trainer.train()`.

    Args:
        run: name of the run (default `GOODPUT_RUN`).
        rec: a recorder that was begun before, for what comes before `train` to be seen as `init`. It is yours to
            finish; one that the callback begins, it finishes.
    """

    def __init__(self, run: str | None = None, *, rec: Recorder | None = None) -> None:
        super().__init__()
        self._run = run
        self._given = rec
        self._rec: LiveRecorder | None = None
        self._owns = False
        self._inside = False
        self._lr: float | None = None
        self._losses: list[float] = []
        self._own_work: Any = None
        _install()

    def __reduce__(self) -> tuple[Any, ...]:
        # Whoever copies a trainer, for a search or for another process: the copy begins for itself.
        return (type(self), (self._run,))

    # -- its beginning and its end -------------------------------------------------------------------------------

    @harmless("the training could not be watched")
    def begin(self, trainer: Any, wrapped: Wrapped) -> None:
        """`trainer.train()` was called; what is wrapped goes into `wrapped`."""
        self._join()
        self._inside = True
        if self._rec is None:
            return
        wrapped.around(trainer, "_save_checkpoint", lambda *_, **__: self._saving(trainer))
        wrapped.around(trainer, "evaluate", lambda *_, **__: self._evaluating(trainer))
        for load in ("_load_from_checkpoint", "_load_optimizer_and_scheduler"):
            wrapped.around(trainer, load, lambda *args, **named: self._loading([*args, *named.values()]))
        self._keep_losses(trainer, wrapped)

    @harmless("an exception could not be recorded")
    def failed(self, error: BaseException) -> None:
        """`trainer.train()` was left by this exception."""
        if self._rec is not None:
            self._rec.left_by(error)

    @harmless("the end of the training could not be recorded")
    def end(self, finished: bool) -> None:
        """`trainer.train()` is over."""
        self._inside = False
        remove, self._own_work = self._own_work, None
        if remove is not None:
            remove()
        if finished and self._rec is not None and self._owns:
            self._rec.finish()
            self._rec = None

    def _join(self) -> None:
        if self._rec is not None and self._rec.active:
            return
        speaks, self._owns = join(self._given, self._run)
        self._rec = live(speaks)
        if self._rec is not None:
            plain.watch_data(self._rec)

    @harmless("the start of the training could not be recorded")
    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if not self._inside:
            self._join()
        if self._rec is not None:
            plain.watch_data(self._rec)
            self._rec.resumed(state.global_step or None)

    @harmless("the end of the training could not be recorded")
    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if not self._inside:
            self.end(finished=True)

    # -- steps ---------------------------------------------------------------------------------------------------

    @harmless("the beginning of a step could not be recorded")
    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._rec is not None:
            self._losses.clear()
            self._rec.begin_step(state.global_step + 1)

    @harmless("the learning rate could not be read")
    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, optimizer: Any = None, **_: Any) -> None:
        if self._rec is not None and optimizer is not None:
            self._lr = plain_float(optimizer.param_groups[0].get("lr"))

    @harmless("a step could not be recorded")
    def on_step_end(
        self, args: Any, state: Any, control: Any, model: Any = None, optimizer: Any = None, **_: Any
    ) -> None:
        rec = self._rec
        if rec is None:
            return
        applied = not getattr(optimizer, "step_was_skipped", False)
        # Each micro-batch gives its share of the loss.
        rec.end_step(applied=applied, loss=sum(self._losses) if self._losses else None, lr=self._lr)
        if self._own_work is None and model is not None:
            self._own_work = plain.watch_own_work(rec, model.parameters()) or (lambda: None)

    def _keep_losses(self, trainer: Any, wrapped: Wrapped) -> None:
        step = trainer.training_step

        @functools.wraps(step)
        def training_step(*args: Any, **kwargs: Any) -> Any:
            loss = step(*args, **kwargs)
            self._keep_loss(loss)
            return loss

        wrapped.replace(trainer, "training_step", traceless(training_step))

    @harmless("the loss could not be read")
    def _keep_loss(self, loss: Any) -> None:
        value = plain_float(loss)
        if value is not None:
            self._losses.append(value)

    # -- what blocks the loop ------------------------------------------------------------------------------------

    def _saving(self, trainer: Any) -> AbstractContextManager[None] | None:
        if self._rec is None or span_open(self._rec) == "checkpoint":
            return None
        return self._rec.checkpoint(trainer.state.global_step)

    def _evaluating(self, trainer: Any) -> AbstractContextManager[None] | None:
        if self._rec is None or span_open(self._rec) == "evaluation":
            return None
        return self._rec.evaluation(trainer.state.global_step)

    def _loading(self, what: list[Any]) -> AbstractContextManager[None] | None:
        # It is called without a checkpoint too, and then loads nothing.
        return None if self._rec is None or not what or what[0] is None else self._rec.span("load_checkpoint")


def _install() -> None:
    """Have `Trainer.train` tell the callback, once in a process: no callback is told of an exception, or gets hold of
    the trainer. A trainer without the callback runs as before."""
    global _installed
    with _installing:
        if _installed:
            return
        _installed = True
        original = Trainer.train

        @functools.wraps(original)
        def train(self: Any, *args: Any, **kwargs: Any) -> Any:
            callback = _callback_of(self)
            if callback is None:
                return original(self, *args, **kwargs)
            wrapped = Wrapped()
            finished = False
            callback.begin(self, wrapped)
            try:
                result = original(self, *args, **kwargs)
                finished = True
                return result
            except BaseException as error:
                callback.failed(error)
                raise
            finally:
                wrapped.restore()
                callback.end(finished)

        Trainer.train = traceless(train)


def _callback_of(trainer: Any) -> GoodputCallback | None:
    try:
        found = (callback for callback in trainer.callback_handler.callbacks if isinstance(callback, GoodputCallback))
        callback = next(found, None)
        if callback is None and _for_all is not None and _for_all.active:
            callback = GoodputCallback(rec=_for_all)
            trainer.add_callback(callback)
        return callback
    except Exception as error:
        guard.caught("the training could not be watched", error)
        return None
