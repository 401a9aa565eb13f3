"""torch.distributed.checkpoint: one line.

    import goodput.dcp
    import torch.distributed.checkpoint as dcp

    goodput.dcp.watch()
    ...
    future = dcp.async_save(state, checkpoint_id=path)

For PyTorch 2.4 and newer. `dcp.save` is a save from before to after. `dcp.async_save` is one as long as it blocks:
until it returns, and while the loop waits for its result; the save is durable when it is written. `dcp.load` is a
load. A save belongs to the last step that was done.

What was imported by name (`from torch.distributed.checkpoint import save`) before `watch` is not seen.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch.distributed.checkpoint
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver

from goodput import torch as plain
from goodput._adapters import Wrapped, guard, harmless, join, live, span_open, surround, traceless
from goodput.protocol import Recorder
from goodput.recorder import LiveRecorder

__all__ = ["watch"]

_installing = threading.Lock()
_installed = False
_watching: tuple[LiveRecorder, int] | None = None


def watch(rec: Recorder | None = None, *, run: str | None = None) -> Recorder:
    """Record what torch.distributed.checkpoint does on this thread, the one that trains.

    Args:
        rec: the recorder (default: the one that this process has begun, else a new one).
        run: name of the run, for a new recorder.

    Returns the recorder. Never raises. Call it again for another recorder.
    """
    global _watching
    speaks, _ = join(rec, run)
    try:
        recorder = live(speaks)
        if recorder is not None:
            _install()
            _watching = (recorder, threading.get_ident())
    except Exception as error:
        guard.caught("distributed checkpoints could not be watched", error)
    return speaks


def _recorder() -> LiveRecorder | None:
    """The recorder to tell, None on other threads: what goes on there blocks nobody."""
    watching = _watching
    if watching is None or not watching[0].active or watching[1] != threading.get_ident():
        return None
    return watching[0]


def _install() -> None:
    """Wrap the three functions, once in a process."""
    global _installed
    with _installing:
        if _installed:
            return
        _installed = True
        checkpointing: Any = torch.distributed.checkpoint
        save = surround(checkpointing.save, lambda *_, **__: _saving())
        load = _telling_what_it_loaded(checkpointing.load)
        checkpointing.save = state_dict_saver.save = save
        checkpointing.load = state_dict_loader.load = load
        if hasattr(checkpointing, "async_save"):
            async_save = _telling_when_durable(checkpointing.async_save)
            checkpointing.async_save = state_dict_saver.async_save = async_save


def _saving(async_: bool = False) -> AbstractContextManager[None] | None:
    rec = _recorder()
    if rec is None or span_open(rec) == "checkpoint":
        return None
    return rec.checkpoint(_last_step(rec), async_)


def _last_step(rec: LiveRecorder) -> int:
    done = rec.steps.done
    return (rec.resumed_step or 0) if done is None else done


def _telling_what_it_loaded(load: Callable[..., Any]) -> Callable[..., Any]:
    def loading(*_: Any, **__: Any) -> AbstractContextManager[None] | None:
        rec = _recorder()
        return None if rec is None or span_open(rec) == "load_checkpoint" else rec.span("load_checkpoint")

    watched = surround(load, loading)

    @functools.wraps(load)
    def load_and_tell(*args: Any, **kwargs: Any) -> Any:
        result = watched(*args, **kwargs)
        plain.tell_loaded(args[0] if args else kwargs.get("state_dict"))
        return result

    return traceless(load_and_tell)


def _telling_when_durable(async_save: Callable[..., Any]) -> Callable[..., Any]:
    watched = surround(async_save, lambda *_, **__: _saving(async_=True))

    @functools.wraps(async_save)
    def save_and_tell(*args: Any, **kwargs: Any) -> Any:
        rec = _recorder()
        step = None if rec is None else _last_step(rec)
        result = watched(*args, **kwargs)
        if rec is not None and step is not None:
            _follow(rec, step, result)
        return result

    return traceless(save_and_tell)


@harmless("an asynchronous save could not be followed")
def _follow(rec: LiveRecorder, step: int, result: Any) -> None:
    """Tell when the save is written, and where the loop waits for it."""
    written = getattr(result, "upload_completion", result)

    def waiting(future: Any) -> Callable[..., AbstractContextManager[None] | None]:
        def around(*_: Any, **__: Any) -> AbstractContextManager[None] | None:
            if future.done() or _recorder() is not rec or span_open(rec) == "checkpoint":
                return None
            return rec.checkpoint(step, async_=True)

        return around

    waits = Wrapped()
    for future in (written, getattr(result, "staging_completion", None)):
        waits.around(future, "result", waiting(future))

    @harmless("an asynchronous save could not be followed")
    def done(future: Any) -> None:
        rec.durable(step, ok=not future.cancelled() and future.exception() is None)

    written.add_done_callback(done)
