"""Lightning: one callback.

    from goodput.lightning import GoodputCallback

    trainer = Trainer(callbacks=[GoodputCallback(run="llama-7b")])

For Lightning 2.4 and newer (`lightning.pytorch`, or `pytorch_lightning` where that is what the program uses). It tells
steps by `trainer.global_step`, without the micro-batches between them and with the updates that a loss scaler left
out; data wait; every save from before to after, an asynchronous one as long as it blocks, and durable once written;
validation (the sanity check is on the way to the first step); the load of a checkpoint and the step it holds; loss
where it lies in the host's memory, learning rate; and an exception, which ends the record as such.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from goodput import torch as plain
from goodput._adapters import Wrapped, Written, guard, harmless, join, live, plain_float, span_open, surround
from goodput.identity import identify
from goodput.protocol import Recorder
from goodput.recorder import LiveRecorder

if TYPE_CHECKING:
    from lightning.pytorch import Callback, Trainer
elif "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
    from pytorch_lightning import Callback, Trainer
else:
    try:
        from lightning.pytorch import Callback, Trainer
    except ImportError:
        from pytorch_lightning import Callback, Trainer

__all__ = ["GoodputCallback", "watch"]

_ASYNC = "AsyncCheckpointIO"
_TERMINATED = "SIGTERMException"

_installing = threading.Lock()
_installed = False
_for_all: LiveRecorder | None = None


def prepare(begin: Callable[[Any], LiveRecorder | None]) -> None:
    """Have `Trainer.fit` ask `begin` for a recorder first, given the trainer; None leaves the training unrecorded.

    For a program that turns out to be a training only there. `begin` must not raise.
    """

    def fitting(trainer: Any, *_: Any, **__: Any) -> None:
        global _for_all
        if _for_all is None:
            _for_all = begin(trainer)

    _install()
    Trainer.fit = surround(Trainer.fit, fitting)


def watch(rec: Recorder | None = None, *, run: str | None = None) -> Recorder:
    """Record every `trainer.fit` from here on, also of trainers that were given no callback.

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


class GoodputCallback(Callback):  # type: ignore[misc]
    """Records `trainer.fit`.

    Args:
        run: name of the run (default `GOODPUT_RUN`).
        rec: a recorder that was begun before, for what comes before `fit` to be seen as `init`. It is yours to finish;
            one that the callback begins, it finishes.
    """

    def __init__(self, run: str | None = None, *, rec: Recorder | None = None) -> None:
        super().__init__()
        self._run = run
        self._given = rec
        self._forget()

    def _forget(self) -> None:
        self._rec: LiveRecorder | None = None
        self._owns = False
        self._wrapped = Wrapped()
        self._trained = False
        self._done = 0
        self._open = False
        self._skipped = 0
        self._losses: list[float] = []
        self._lr: float | None = None
        self._own_work: Any = None

    def __reduce__(self) -> tuple[Any, ...]:
        # A launcher that spawns processes, and whoever copies a trainer: the copy begins for itself.
        return (type(self), (self._run,))

    # -- its beginning and its end -------------------------------------------------------------------------------

    @harmless("the training could not be watched")
    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if stage != "fit" or (self._rec is not None and self._rec.active):
            return
        self._forget()
        with _told_place(trainer):
            speaks, self._owns = join(self._given, self._run, _job(trainer))
        self._rec = live(speaks)
        if self._rec is None:
            return
        plain.watch_data(self._rec)
        wrapped = self._wrapped
        wrapped.around(trainer, "save_checkpoint", lambda *_, **__: self._saving(trainer))
        wrapped.around(trainer.strategy, "load_checkpoint", lambda *_, **__: self._span("load_checkpoint"))
        wrapped.around(trainer.fit_loop.epoch_loop.val_loop, "run", lambda *_, **__: self._evaluating(trainer))

    @harmless("the start of the training could not be recorded")
    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        rec = self._rec
        if rec is None:
            return
        self._trained = True
        self._done = int(trainer.global_step)
        self._open = False
        self._skipped = plain.skipped_updates()
        plain.watch_data(rec)
        rec.resumed(self._done if self._done or trainer.ckpt_path else None)
        writer = trainer.strategy.checkpoint_io
        if _is_async(writer):
            self._wrapped.around(writer.checkpoint_io, "save_checkpoint", self._writing)

    @harmless("the end of the training could not be recorded")
    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if stage != "fit":
            return
        self._let_go()
        if self._rec is not None and self._owns and self._trained:
            self._rec.finish()
            self._rec = None

    @harmless("an exception could not be recorded")
    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._let_go()
        if self._rec is not None:
            # Lightning leaves by an exit with status 0 after a SIGTERM; what ended the training was the signal.
            terminated = type(exception).__name__ == _TERMINATED
            self._rec.left_by(SystemExit(143) if terminated else exception)

    def _let_go(self) -> None:
        self._wrapped.restore()
        remove, self._own_work = self._own_work, None
        if remove is not None:
            remove()

    # -- steps ---------------------------------------------------------------------------------------------------

    @harmless("the beginning of a step could not be recorded")
    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if self._rec is not None and not self._open:
            self._open = True
            self._losses.clear()
            self._rec.begin_step(int(trainer.global_step) + 1)

    @harmless("the learning rate could not be read")
    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        if self._rec is not None:
            self._lr = plain_float(optimizer.param_groups[0].get("lr"))

    @harmless("a step could not be recorded")
    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        rec = self._rec
        if rec is None:
            return
        loss = plain_float(outputs.get("loss")) if isinstance(outputs, Mapping) else plain_float(outputs)
        if loss is not None:
            self._losses.append(loss)
        done = int(trainer.global_step)
        count = done - self._done
        if count <= 0:
            return  # a micro-batch
        skipped = plain.skipped_updates()
        applied, self._skipped = skipped - self._skipped < count, skipped
        if rec.steps.open and (count > 1 or not self._open):
            # Several optimizers: each of their updates counts.
            rec.steps.at(done, count)
        # In automatic optimization each micro-batch gives its share of the loss.
        parts = 1 if pl_module.automatic_optimization else len(self._losses)
        rec.end_step(applied=applied, loss=sum(self._losses) / parts if self._losses else None, lr=self._lr)
        self._done = done
        self._open = False
        if self._own_work is None:
            self._own_work = plain.watch_own_work(rec, trainer.model.parameters()) or (lambda: None)

    # -- what blocks the loop ------------------------------------------------------------------------------------

    def _saving(self, trainer: Any) -> AbstractContextManager[None] | None:
        if self._rec is None or span_open(self._rec) == "checkpoint":
            return None
        return self._rec.checkpoint(int(trainer.global_step), async_=_is_async(trainer.strategy.checkpoint_io))

    def _writing(self, checkpoint: Any, *_: Any, **__: Any) -> AbstractContextManager[None] | None:
        return None if self._rec is None else Written(self._rec, int(checkpoint["global_step"]))

    def _evaluating(self, trainer: Any) -> AbstractContextManager[None] | None:
        return None if self._rec is None else self._rec.evaluation(int(trainer.global_step))

    def _span(self, name: str) -> AbstractContextManager[None] | None:
        return None if self._rec is None else self._rec.span(name)


def _install() -> None:
    """Have `Trainer.fit` bring the callback along, once in a process."""
    global _installed
    with _installing:
        if not _installed:
            _installed = True
            Trainer.fit = surround(Trainer.fit, lambda trainer, *_, **__: _bring_along(trainer))


def _bring_along(trainer: Any) -> None:
    if _for_all is None or not _for_all.active:
        return
    if not any(isinstance(callback, GoodputCallback) for callback in trainer.callbacks):
        # First: what others do at the end of a step, such as save, comes after the step.
        trainer.callbacks.insert(0, GoodputCallback(rec=_for_all))


def _is_async(writer: Any) -> bool:
    return any(kind.__name__ == _ASYNC for kind in type(writer).__mro__)


@contextmanager
def _told_place(trainer: Any) -> Iterator[None]:
    """Lightning's own launcher leaves rank 0 without a rank in its environment: the trainer knows it."""
    known = "RANK" in os.environ or "SLURM_PROCID" in os.environ or trainer.world_size <= 1
    place = {"RANK": trainer.global_rank, "WORLD_SIZE": trainer.world_size, "LOCAL_RANK": trainer.local_rank}
    before = {name: os.environ.get(name) for name in place}
    try:
        if not known:
            os.environ.update({name: str(value) for name, value in place.items()})
        yield
    finally:
        if not known:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


def _job(trainer: Any) -> str | None:
    """What holds the GPUs, where Lightning itself starts the processes: its main process. None where the environment
    tells."""
    launcher = type(trainer.strategy.launcher).__name__
    host, pid, parent = os.uname().nodename, os.getpid(), os.getppid()
    known = identify(os.environ, host=host, pid=pid, parent_pid=parent).job
    told = bool(os.environ.get("GOODPUT_JOB")) or not known.startswith("local:")
    if told or trainer.world_size <= 1:
        return None
    if "Subprocess" in launcher:
        return f"local:{host}:{pid if trainer.local_rank == 0 else parent}"
    return f"local:{host}:{parent}" if "MultiProcessing" in launcher else None
