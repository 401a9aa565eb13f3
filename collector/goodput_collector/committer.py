"""The one thread that writes: puts what many senders bring into groups, each durable at once."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from goodput_collector.chunks import Answer, Chunk
from goodput_collector.errors import BusyError, GoodputCollectorError, StorageError
from goodput_collector.store import Store

T = TypeVar("T")

GROUP_MAX_BYTES = 32 * 2**20
GROUP_MAX_CHUNKS = 20_000
QUEUE_MAX_BYTES = 96 * 2**20
_EACH_BYTES = 512
"""What a chunk counts for, beside its data, in what is held."""
_HEAL_S = 1.0
_REST_MAX_S = 1.0
_REST_RATIO = 3.0
_MUCH_BYTES = 2**20
"""A request of this size is of one who has more to send, and is not kept waiting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    chunks: Sequence[Chunk]
    size_bytes: int
    answered: Future[list[Answer]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    work: Callable[[Store], Any]
    answered: Future[Any]


class Committer:
    """Runs a store's writes in a thread of its own, for senders in any thread.

    A group holds whatever has come; after a group the thread rests for three times as long as it took (at most a
    second), so that many small senders share one transaction; not when somebody has much to send.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._queue: queue.SimpleQueue[_Request | _Task | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._held_bytes = 0
        self._closing = False
        self._trouble: str | None = None
        self._hurry = threading.Event()
        self._thread = threading.Thread(target=self._run, name="goodput-committer", daemon=True)
        self._thread.start()

    @property
    def trouble(self) -> str | None:
        """Why nothing can be kept now, in one sentence; None when all is well."""
        if not self._thread.is_alive():
            return "The collector's writer has ended."
        return self._trouble

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    @property
    def held_bytes(self) -> int:
        """What waits to be kept."""
        return self._held_bytes

    def submit(self, chunks: Sequence[Chunk]) -> Future[list[Answer]]:
        """Has the chunks kept; several of one stream are kept in their order.

        The answers come when all is durable. The future fails with StorageError when a disk refused. Raises BusyError
        when too much waits already, or the collector stops.
        """
        size = _EACH_BYTES * len(chunks) + sum([len(chunk.data) for chunk in chunks])
        with self._lock:
            if self._closing:
                raise BusyError("The collector is stopping.", retry_after_s=1.0)
            if self._held_bytes and self._held_bytes + size > QUEUE_MAX_BYTES:
                raise BusyError("The collector has more to do than it can hold.", retry_after_s=1.0)
            self._held_bytes += size
            request = _Request(chunks=chunks, size_bytes=size, answered=Future())
            self._queue.put(request)
            if size >= _MUCH_BYTES or self._held_bytes >= GROUP_MAX_BYTES // 4:
                self._hurry.set()
        return request.answered

    def call(self, work: Callable[[Store], T]) -> Future[T]:
        """Has `work` done on the store by the thread that writes, between two groups; what comes meanwhile waits.

        The future fails with what `work` raises. Raises BusyError when the collector stops.
        """
        with self._lock:
            if self._closing:
                raise BusyError("The collector is stopping.", retry_after_s=1.0)
            task = _Task(work=work, answered=Future())
            self._queue.put(task)
            self._hurry.set()
        return task.answered

    def close(self, limit_s: float = 4.0) -> bool:
        """Keeps what has come, takes nothing more, and ends the thread; False when that took longer."""
        with self._lock:
            if not self._closing:
                self._closing = True
                self._queue.put(None)
                self._hurry.set()
        self._thread.join(limit_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        last = False
        while not last:
            requests, task, last = self._gather()
            if task is not None:
                # It was asked for after the requests.
                if requests:
                    self._keep(requests)
                self._do(task)
                continue
            if not requests:
                continue
            begun = time.monotonic()
            self._keep(requests)
            took = time.monotonic() - begun
            if not last and max(request.size_bytes for request in requests) < _MUCH_BYTES:
                self._hurry.wait(min(_REST_RATIO * took, _REST_MAX_S))
                self._hurry.clear()

    def _gather(self) -> tuple[list[_Request], _Task | None, bool]:
        """Waits for a request, and takes with it what else has come, up to a task; whether it was the last."""
        requests: list[_Request] = []
        size = count = 0
        while size < GROUP_MAX_BYTES and count < GROUP_MAX_CHUNKS:
            try:
                # Without work a look at the clock now and then brings a database that has failed back.
                request = self._queue.get(timeout=_HEAL_S) if not requests else self._queue.get_nowait()
            except queue.Empty:
                if not requests and self._trouble is not None:
                    self._heal()
                    continue
                if not requests:
                    continue
                break
            if request is None:
                return requests, None, True
            if isinstance(request, _Task):
                return requests, request, False
            requests.append(request)
            size += request.size_bytes
            count += len(request.chunks)
        return requests, None, False

    def _do(self, task: _Task) -> None:
        if not task.answered.set_running_or_notify_cancel():
            return
        try:
            result = task.work(self._store)
        except StorageError as error:
            self._trouble = str(error)
            task.answered.set_exception(error)
        except BaseException as error:
            # Whatever went wrong is the asker's to hear; the thread goes on.
            task.answered.set_exception(error)
        else:
            task.answered.set_result(result)

    def _heal(self) -> None:
        try:
            self._store.heal()
            self._trouble = None
        except GoodputCollectorError as error:
            self._trouble = str(error)

    def _keep(self, requests: Sequence[_Request]) -> None:
        try:
            answers = _in_turns(self._store, [chunk for request in requests for chunk in request.chunks])
        except StorageError as error:
            self._trouble = str(error)
            self._fail(requests, error)
            return
        except Exception as error:
            # A defect of ours must not end the thread: the senders keep what they have and try again.
            self._trouble = f"The collector could not take what it was sent ({type(error).__name__}: {error})."
            self._store.healthy = False
            self._fail(requests, StorageError(self._trouble))
            return
        self._trouble = None
        at = 0
        for request in requests:
            count = len(request.chunks)
            self._done(request)
            if request.answered.set_running_or_notify_cancel():
                request.answered.set_result(answers[at : at + count])
            at += count

    def _fail(self, requests: Sequence[_Request], error: StorageError) -> None:
        for request in requests:
            self._done(request)
            if request.answered.set_running_or_notify_cancel():
                request.answered.set_exception(error)

    def _done(self, request: _Request) -> None:
        with self._lock:
            self._held_bytes -= request.size_bytes


def _in_turns(store: Store, chunks: Sequence[Chunk]) -> list[Answer]:
    """Takes the chunks, of which several may be of one stream: the second of a stream waits for the next turn."""
    if len({chunk.stream for chunk in chunks}) == len(chunks):
        return store.take(chunks)
    answers: dict[int, Answer] = {}
    waiting = list(enumerate(chunks))
    while waiting:
        turn: dict[str, tuple[int, Chunk]] = {}
        later: list[tuple[int, Chunk]] = []
        for index, chunk in waiting:
            if chunk.stream in turn:
                later.append((index, chunk))
            else:
                turn[chunk.stream] = (index, chunk)
        taken = store.take([chunk for _, chunk in turn.values()])
        answers.update(zip((index for index, _ in turn.values()), taken, strict=True))
        waiting = later
    return [answers[index] for index in range(len(chunks))]
