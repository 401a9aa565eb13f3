"""A rank's own work in a distributed training: all of a step but the time in which it waited for other ranks.

Where a rank waits for others:

- in a collective that Python calls (`torch.distributed.all_reduce` and its kin, the collectives of FSDP2, a barrier, a
  receive): all of them wait in `Work.wait`, or in `wait_tensor` where they are functional;
- in DDP, between the last gradient that is ready and the end of the backward pass. A public hook of autograd sees the
  one, and a callback that autograd calls at the end of the pass sees the other. No communication hook is needed, and
  the user's own stays.

On the CPU the thread that trains waits itself. On a GPU its stream does: see `_stream_waits`.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterable
from threading import get_ident
from typing import Any

import torch

from goodput._adapters import guard, take_ours_off
from goodput._stream_waits import StreamWaits
from goodput.recorder import LiveRecorder

_by_recorder: dict[int, OwnWork] = {}
_all: tuple[OwnWork, ...] = ()
_installing = threading.Lock()
_installed: set[str] = set()

_GROUP_WAITS = ("wait_for_unshard", "post_backward", "_wait_for_post_backward", "finalize_backward")
"""Methods of FSDP2's parameter group in which its stream is told to wait for a collective."""


class OwnWork:
    """How long one recorder's rank waits for others.

    Attributes:
        stream: the waits of its GPU, None where it trains on the CPU or where that is not known yet.
    """

    def __init__(self, rec: LiveRecorder) -> None:
        self._rec = rec
        self._steps = rec.steps
        self._thread = get_ident()
        self._inside = False
        self._several: bool | None = None
        self.stream: StreamWaits | None = None

    @property
    def active(self) -> bool:
        return self._rec.active

    def moved_to_this_thread(self) -> None:
        """The loop runs on the thread that calls this."""
        self._thread = get_ident()

    def begin(self) -> tuple[int, Any] | None:
        """A call begins that may wait for others; gives what `end` wants, None where this one does not count."""
        try:
            if self._inside or self._rec.ended_ns is not None:
                return None
            here = get_ident() == self._thread
            stream = self.stream
            if not here and (stream is None or not _in_backward()):
                return None
            if self._several is None:
                self._several = _ranks() > 1
            if not self._several:
                return None
            self._inside = True
            event = None if stream is None or self._rec.in_span else stream.begin()
            return (self._steps.block() if here else -1), event
        except Exception as error:
            self._gave_up("a wait for other ranks could not be recorded", error)
            return None

    def end(self, begun: tuple[int, Any] | None, failed: bool) -> None:
        """It is over; `failed`: by an exception, after which this rank goes nowhere but out."""
        if begun is None:
            return
        try:
            self._inside = False
            since_ns, event = begun
            stream = self.stream
            if failed:
                return
            if stream is not None:
                stream.end(event)
            if since_ns >= 0:
                self._steps.unblock(since_ns, counts=stream is None and not self._rec.in_span)
        except Exception as error:
            self._gave_up("a wait for other ranks could not be recorded", error)

    def watch_gradients(self, parameters: list[Any]) -> Callable[[], None]:
        """Have the time from the last gradient to the end of the backward pass counted; gives what takes it back."""
        engine = getattr(torch.autograd.Variable, "_execution_engine", None)
        queue = getattr(engine, "queue_callback", None)
        steps = self._steps
        begun: list[Any] = []

        def over() -> None:
            try:
                stream = self.stream
                if stream is None and begun:
                    steps.unblock(begun.pop(), counts=not self._rec.in_span)
                elif stream is None:
                    steps.own_work_goes_on()
                elif begun:
                    stream.end(begun.pop())
            except Exception as error:
                self._gave_up("the end of a backward pass could not be recorded", error)

        def last_gradient(_gradients: Any) -> None:
            try:
                stream = self.stream
                if stream is None and not steps.open:
                    # Before the first step, or in none.
                    begun[:] = [steps.block()]
                elif stream is None:
                    begun.clear()
                    steps.own_work_done()
                elif not self._rec.in_span:
                    begun[:] = [stream.begin()]
                if queue is not None:
                    # What waits for the others has its own callback there, which may come after the first of ours, but
                    # not after one that is queued by it.
                    queue(lambda: queue(over))
            except Exception as error:
                self._gave_up("the last gradient could not be recorded", error)

        return torch.autograd.graph.register_multi_grad_hook(parameters, last_gradient).remove

    def watch_stream(self, device: Any) -> None:
        """This rank trains on this GPU."""
        if self.stream is not None:
            return
        cuda = torch.cuda
        computes = cuda.current_stream(device)

        def ready() -> bool:
            return bool(cuda.current_stream() == computes and not cuda.is_current_stream_capturing())

        self.stream = StreamWaits(
            event=lambda: _timed_event(cuda),
            ready=ready,
            waited=self._steps.waited,
            now_ns=self._steps.now_ns,
        )
        self._steps.before_end = self._read
        self._steps.before_cut = self._cut
        self._rec.waits_since = self._since

    def _read(self) -> None:
        try:
            if self.stream is not None:
                self.stream.read()
        except Exception as error:
            self._gave_up("waits on a GPU could not be read", error)

    def _cut(self) -> None:
        """A span begins or ends: what is over counts, and the rest lies in no step."""
        self._read()
        if self.stream is not None:
            self.stream.drop()

    def _since(self) -> int | None:
        try:
            return None if self.stream is None else self.stream.since()
        except Exception as error:
            self._gave_up("waits on a GPU could not be read", error)
            return None

    def _gave_up(self, what: str, error: Exception) -> None:
        """What failed once, such as a call to a GPU that has failed itself, is not tried again."""
        guard.caught(what, error)
        self._several = False
        self._inside = False
        self.stream = None
        self._steps.before_end = self._steps.before_cut = self._steps.blocked_ns = None
        self._rec.waits_since = None


def own_work_of(rec: LiveRecorder) -> OwnWork:
    """The one measurement of this recorder's waits for others, whoever asks for it. What has to be wrapped, is."""
    global _all
    for key, known in list(_by_recorder.items()):
        if not known.active:
            _by_recorder.pop(key, None)
    found = _by_recorder.setdefault(id(rec), OwnWork(rec))
    # A new one each time: whoever goes through the old one meanwhile is not disturbed.
    _all = tuple(_by_recorder.values())
    install()
    return found


def watch_own_work(rec: LiveRecorder, parameters: Iterable[Any]) -> Callable[[], None] | None:
    """Measure the own work of this rank, which trains these parameters, where there are several ranks.

    Call it when the parameters are what is trained: on their device, and sharded where they will be. Gives what takes
    it back.
    """
    if _ranks() < 2:
        return None
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    if not trained:
        return None
    found = own_work_of(rec)
    devices = {parameter.device for parameter in trained}
    if {device.type for device in devices} == {"cuda"}:
        if len(devices) > 1:
            return None  # one process on several GPUs: which of their streams waits, nobody knows
        found.watch_stream(devices.pop())
    elif {device.type for device in devices} != {"cpu"}:
        return None
    if not all(map(_is_whole, trained)) or _compiles_backward():
        return None
    return found.watch_gradients(trained)


def _ranks() -> int:
    """How many train together, as far as a process group tells; 1 without one."""
    distributed = torch.distributed
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def _timed_event(cuda: Any) -> Any:
    return cuda.Event(enable_timing=True)


def _is_whole(parameter: Any) -> bool:
    return type(parameter) in (torch.nn.Parameter, torch.Tensor) and type(parameter.data) is torch.Tensor


def _compiles_backward() -> bool:
    """Compiled autograd takes hooks into its graph, where ours has no place."""
    config = sys.modules.get("torch._dynamo.config")
    return bool(getattr(config, "compiled_autograd", False))


def _in_backward() -> bool:
    """On a thread of autograd's, which computes a part of a backward pass."""
    return bool(torch._C._current_graph_task_id() != -1)


def install() -> None:
    """Wrap, once in a process, the calls in which this rank waits for others. Without a recorder at work they do what
    they did."""
    if not torch.distributed.is_available():
        return
    with _installing:
        for name, owner, methods in (
            ("torch.distributed", "Work", ("wait",)),
            ("torch.distributed", None, ("_broadcast_coalesced", "monitored_barrier")),
            ("torch.distributed._functional_collectives", None, ("wait_tensor",)),
            ("torch.distributed.fsdp._fully_shard._fsdp_param_group", "FSDPParamGroup", _GROUP_WAITS),
            ("torch.distributed.fsdp._fully_shard._fsdp_state", "FSDPState", ("_root_post_backward_final_callback",)),
        ):
            module = sys.modules.get(name)
            target = module if owner is None else getattr(module, owner, None)
            key = f"{name}.{owner}"
            if target is None or key in _installed:
                continue
            _installed.add(key)
            for method in methods:
                call = getattr(target, method, None)
                if callable(call):
                    only_streams = "_fully_shard" in name
                    setattr(target, method, _waiting(call, only_streams))


def _waiting(call: Callable[..., Any], only_streams: bool) -> Callable[..., Any]:
    """The same call with its wait measured."""

    @functools.wraps(call)
    def measured(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or not _all:
            return call(*args, **kwargs)
        begun = [(known, known.begin()) for known in _all if not only_streams or known.stream is not None]
        try:
            result = call(*args, **kwargs)
        except BaseException as error:
            for known, since in begun:
                known.end(since, True)
            take_ours_off(error)
            raise
        for known, since in begun:
            known.end(since, False)
        return result

    return measured
