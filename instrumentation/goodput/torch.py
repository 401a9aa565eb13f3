"""Plain PyTorch loops, and those of Accelerate: one line, and the optimizer's own hooks tell the steps.

    import goodput.torch

    rec = goodput.torch.watch(model, optimizer, run="llama-7b")
    for batch in loader:
        model(batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    rec.finish()

For PyTorch 2.4 and newer. What it sees:

- **Steps**: the updates of the optimizer; the micro-batches before one belong to it. A step starts where its first
  batch is waited for, or, in a loop without a `DataLoader`, where the step before it ended.
- **Updates that a `torch.amp.GradScaler` left out**: steps with `applied` false.
- **Data wait** in any `DataLoader`, on the training thread. `rec.data(...)` measures other input.
- **Saves**: `torch.save` of the model's weights or the optimizer's state, and `Accelerator.save_state`.
- **Loads** on the way to the first step: `torch.load` and `Accelerator.load_state`. The step that the training goes on
  from is the optimizer's own count (Adam and its kin), else a `step` in what `torch.load` gave.
- **Evaluation**: from `model.eval()` to `model.train()`.
- **A rank's own work** among several: the step without the time in which it waited for the others, under DDP, FSDP2 and
  with collectives of one's own, on the CPU and on a GPU.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from goodput._adapters import guard, harmless, join, live, surround, take_ours_off, traceless
from goodput._data_wait import data_wait_of, waits
from goodput._own_work import own_work_of, watch_own_work
from goodput._roles import role, role_of_parameters
from goodput._step_watch import StepWatch
from goodput.protocol import Recorder
from goodput.recorder import LiveRecorder

__all__ = ["role", "watch", "watch_own_work"]

_watches: list[StepWatch] = []
_installing = threading.Lock()
_installed: set[str] = set()
_skipped_updates = 0
_switching: int | None = None


def watch(
    model: Any = None,
    optimizer: Any = None,
    rec: Recorder | None = None,
    *,
    run: str | None = None,
    step: int | None = None,
    evaluations: bool = True,
    group: Any = None,
) -> Recorder:
    """Record the loop that trains this model with this optimizer. Call it when both are built.

    Args:
        model: the model, as it is trained (wrapped in DDP, sharded, compiled or prepared, where it is).
        optimizer: the optimizer, or several whose updates make up one step, the last one last. None: the first that
            makes an update.
        rec: the recorder (default: the one that this process has begun, else a new one).
        run: name of the run, for a new recorder.
        step: the last step that the loaded checkpoint holds, where the optimizer does not know it.
        evaluations: the time from `model.eval()` to `model.train()` is evaluation. False where it is not, as in the
            rollouts of reinforcement learning.
        group: ranks with the same value do the same work: a word, a number such as that of a pipeline's stage, or the
            job's `DeviceMesh`, of which a pipeline's dimension counts (`role(mesh, "ep", ...)` gives what others would
            make of it). Sharded parameters tell their mesh themselves.

    Returns the recorder, for `finish()` and whatever else the loop can tell. Never raises.
    """
    speaks, _ = join(rec, run)
    try:
        recorder = live(speaks)
        if recorder is not None:
            if group is not None:
                _tell_group(recorder, group)
            _watch(recorder, model, optimizer, step, evaluations)
    except Exception as error:
        guard.caught("the training loop could not be watched", error)
    return speaks


def watch_data(rec: LiveRecorder) -> None:
    """Have the waits of the `DataLoader`s on this thread measured, for another adapter, which tells the steps."""
    data_wait_of(rec).moved_to_this_thread()
    own_work_of(rec).moved_to_this_thread()
    for known in _active():
        if known.rec is rec:
            known.stand_down()
    _install()


def tell_loaded(loaded: object) -> None:
    """Another adapter has loaded this checkpoint, which may tell its step."""
    for known in _active():
        known.loaded(loaded)


def skipped_updates() -> int:
    """How many updates the loss scalers of this process have left out."""
    return _skipped_updates


# -- from the optimizer --------------------------------------------------------------------------------------------


def _watch(rec: LiveRecorder, model: Any, optimizer: Any, step: int | None, evaluations: bool) -> None:
    given = [] if optimizer is None else [optimizer] if not isinstance(optimizer, list | tuple) else list(optimizer)
    optimizers = [_inner(one) for one in given]
    for known in list(_watches):
        # One that was told its optimizer takes the place of one that would take any.
        replaced = known.rec is rec and (_same(known.optimizers, optimizers) or (bool(optimizers) and not known.chosen))
        if replaced or not known.rec.active:
            _watches.remove(known)
            known.close()
    found = StepWatch(rec, optimizers=optimizers, model=model, evaluations=evaluations)
    own_work_of(rec)
    if model is not None and _is_distributed(model):
        # Already in the first step: a rank that never comes to it is missed by the others there.
        _own_work(found)
    else:
        found.on_first_step = lambda: _own_work(found)

    before, after = found.before_update, found.after_update
    for one in optimizers:
        found.closing += [one.register_step_pre_hook(before).remove, one.register_step_post_hook(after).remove]
    if not optimizers:
        found.closing += [
            register_optimizer_step_pre_hook(before).remove,
            register_optimizer_step_post_hook(after).remove,
        ]
    _install()
    _watches.append(found)
    if step is not None:
        rec.resumed(step)
    elif not rec.resumes:
        found.find_restored()


def _same(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))


def _inner(optimizer: Any) -> Any:
    """The optimizer that makes the update, inside what others have wrapped around it."""
    while not hasattr(optimizer, "_optimizer_step_post_hooks") and hasattr(optimizer, "optimizer"):
        optimizer = optimizer.optimizer
    return optimizer


def _is_distributed(model: Any) -> bool:
    """What is trained is on its device and sharded as it will be."""
    if isinstance(model, torch.nn.parallel.DistributedDataParallel):
        return True
    return any(
        type(parameter).__name__ == "DTensor" or hasattr(parameter, "device_mesh") for parameter in model.parameters()
    )


@harmless("the ranks that do the same work could not be told")
def _tell_group(rec: LiveRecorder, group: Any) -> None:
    if hasattr(group, "mesh_dim_names"):
        group = role(group)
    if group is not None:
        rec.in_group(group)


@harmless("the ranks that do the same work could not be told")
def _tell_role(rec: LiveRecorder, parameters: Sequence[Any]) -> None:
    """What the mesh of sharded parameters says, where nobody has said anything."""
    if "group" not in rec.told:
        _tell_group(rec, role_of_parameters(parameters))


def _own_work(found: StepWatch) -> None:
    parameters = found.parameters() if found.model is None else list(found.model.parameters())
    _tell_role(found.rec, parameters)
    remove = watch_own_work(found.rec, parameters)
    if remove is not None:
        found.closing.append(remove)


# -- where there is no hook ----------------------------------------------------------------------------------------


def _install() -> None:
    """Wrap, once in a process, the calls that nothing hooks. Without a watch at work they do what they did."""
    with _installing:
        if "torch" not in _installed:
            _installed.add("torch")
            _wrap_loader()
            _wrap_scaler()
            _wrap_mode()
            _wrap_restore()
            _wrap_save_and_load()
        accelerate = sys.modules.get("accelerate")
        accelerator = getattr(accelerate, "Accelerator", None)
        if accelerator is not None and "accelerate" not in _installed:
            _installed.add("accelerate")
            accelerator.save_state = surround(accelerator.save_state, lambda *_, **__: _first(StepWatch.saving_all))
            accelerator.load_state = surround(accelerator.load_state, lambda *_, **__: _first(StepWatch.loading))


def _active() -> list[StepWatch]:
    return [known for known in _watches if known.rec.active]


def _first(ask: Callable[[StepWatch], Any]) -> Any:
    """The first answer of the watches at work that is one."""
    return next((answer for answer in map(ask, _active()) if answer is not None), None)


def _wrap_loader() -> None:
    from torch.utils.data import DataLoader
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    start_workers, fetch = DataLoader.__iter__, _BaseDataLoaderIter.__next__

    DataLoader.__iter__ = _waited(start_workers, False)  # type: ignore[method-assign]
    _BaseDataLoaderIter.__next__ = _waited(fetch, True)  # type: ignore[method-assign, assignment]


def _waited(call: Callable[[Any], Any], gives: bool) -> Callable[[Any], Any]:
    """The same method with its time measured; `gives`: what it returns is a batch."""

    @functools.wraps(call)
    def measured(self: Any) -> Any:
        # All in one function, as it is called for each batch.
        begun = [(wait, wait.begin()) for wait in waits()]
        try:
            item = call(self)
        except BaseException as error:
            for wait, since in begun:
                wait.end(since, False)
            take_ours_off(error)
            raise
        for wait, since in begun:
            wait.end(since, gives)
        return item

    return measured


def _wrap_scaler() -> None:
    original = torch.amp.GradScaler.step

    @functools.wraps(original)
    def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        global _skipped_updates
        inner, made = _inner(optimizer), []
        if not isinstance(inner, torch.optim.Optimizer):
            return original(self, optimizer, *args, **kwargs)
        hook = inner.register_step_post_hook(lambda *_: made.append(True))
        try:
            result = original(self, optimizer, *args, **kwargs)
        finally:
            hook.remove()
        if not made:
            _skipped_updates += 1
            for known in _active():
                known.skipped(inner)
        return result

    torch.amp.GradScaler.step = traceless(step)  # type: ignore[method-assign]


def _wrap_mode() -> None:
    original = torch.nn.Module.train

    @functools.wraps(original)
    def train(self: Any, mode: bool = True) -> Any:
        global _switching
        thread = threading.get_ident()
        if _switching == thread or not _watches:
            # A part of a model is switched with the whole.
            return original(self, mode)
        _switching = thread
        try:
            result = original(self, mode)
        finally:
            _switching = None
        for known in _active():
            known.mode(self, mode)
        return result

    torch.nn.Module.train = traceless(train)  # type: ignore[method-assign]


def _wrap_restore() -> None:
    original = torch.optim.Optimizer.load_state_dict

    @functools.wraps(original)
    def load_state_dict(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        for known in _active():
            known.restored(self)
        return result

    torch.optim.Optimizer.load_state_dict = traceless(load_state_dict)  # type: ignore[method-assign]


def _wrap_save_and_load() -> None:
    load = torch.load

    @functools.wraps(load)
    def load_and_tell(*args: Any, **kwargs: Any) -> Any:
        result = load(*args, **kwargs)
        tell_loaded(result)
        return result

    torch.save = surround(torch.save, lambda obj=None, *_, **__: _first(lambda known: known.saving(obj)))
    torch.load = surround(load_and_tell, lambda *_, **__: _first(StepWatch.loading))
    torch.serialization.save, torch.serialization.load = torch.save, torch.load
