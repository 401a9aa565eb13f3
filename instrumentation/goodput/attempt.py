"""Agreeing with the other ranks on a token for this life of the worker group, through the process group's store."""

from __future__ import annotations

import os
import sys
import weakref
from dataclasses import dataclass
from typing import Any

from goodput.guard import Guard

LIMIT_NS = 60_000_000_000
"""After this long an agreement is given up; the ledger then tells attempts by their order in time."""
_POLL_NS = 200_000_000
_ASK = "goodput/attempt/ask/"
_ANSWER = "goodput/attempt/answer/"
_DONE = b"done:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """A process group has formed, and its ranks call this life of it by `token`."""

    token: str
    rank: int
    world_size: int


class Agreement:
    """Polled by the recorder's thread; never blocks, and never takes part in a collective.

    A store may outlive the attempt that wrote into it, so a value found there proves nothing. Each rank therefore
    asks with a nonce of its own, and rank 0 answers that very nonce: an answer cannot be older than the question.

        rank r:  set ask/r = nonce                     until answer/r/nonce exists, then ask/r = done:token
        rank 0:  for each r, get ask/r = nonce         set answer/r/nonce = token, until it reads done:token

    Every read is preceded by a `check`, which answers at once: a waiting `get` would hold the store's connection,
    and the training thread may want it.
    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._group: weakref.ref[Any] | None = None
        self._store: Any = None
        self._rank = 0
        self._world_size = 0
        self._word = ""
        self._waiting: dict[int, bytes] = {}
        self._begun_ns = 0
        self._polled_ns = 0
        self._closed = False

    @property
    def world_size(self) -> int:
        """Ranks of the process group that was seen last; 0 for none."""
        return self._world_size

    def poll(self, now_ns: int) -> Joined | None:
        """Go on a little; gives the agreement when this rank has just learnt it."""
        if self._closed:
            return None
        try:
            distributed: Any = sys.modules.get("torch.distributed")
            # None before the process group has formed. The module may be half imported, or built without any of it.
            group = None if distributed is None else getattr(getattr(distributed, "group", None), "WORLD", None)
            if group is None:
                self._store = None
                return None
            if self._group is None or self._group() is not group:
                self._group = weakref.ref(group)
                return self._begin(distributed, now_ns)
            if self._store is None or now_ns - self._polled_ns < _POLL_NS:
                return None
            self._polled_ns = now_ns
            if now_ns - self._begun_ns > LIMIT_NS:
                self._store = None
                if self._rank != 0:
                    self._guard.caught("the ranks could not agree on an attempt token in time", None)
                return None
            if self._rank != 0:
                return self._ask()
            self._answer()
            return None
        except Exception as error:
            # Also when the group is torn down while we look at it.
            self._store = None
            self._guard.caught("the process group's store could not be used", error)
            return None

    def close(self) -> None:
        """Leave the store alone from now on."""
        self._closed = True
        self._store = None

    def _begin(self, distributed: Any, now_ns: int) -> Joined | None:
        self._rank = int(distributed.get_rank())
        self._world_size = int(distributed.get_world_size())
        self._word = os.urandom(8).hex()
        self._begun_ns = self._polled_ns = now_ns
        self._waiting = dict.fromkeys(range(1, self._world_size), b"")
        # Not public, but the same since torch 1.9; without it there is no token, and attempts are told by time.
        self._store = distributed.distributed_c10d._get_default_store() if self._world_size > 1 else None
        if self._rank == 0:
            if self._store is not None:
                self._answer()
            return Joined(token=self._word, rank=0, world_size=self._world_size)
        self._store.set(f"{_ASK}{self._rank}", self._word)
        return None

    def _ask(self) -> Joined | None:
        key = f"{_ANSWER}{self._rank}/{self._word}"
        if not self._store.check([key]):
            return None
        token = bytes(self._store.get(key))
        self._store.set(f"{_ASK}{self._rank}", _DONE + token)
        self._store = None
        return Joined(token=token.decode("ascii"), rank=self._rank, world_size=self._world_size)

    def _answer(self) -> None:
        token = self._word.encode("ascii")
        for rank, answered in list(self._waiting.items()):
            if self._closed or not self._store.check([f"{_ASK}{rank}"]):
                continue
            asked = bytes(self._store.get(f"{_ASK}{rank}"))
            if asked == _DONE + token:
                del self._waiting[rank]
            elif asked != answered and not asked.startswith(_DONE):
                self._store.set(f"{_ANSWER}{rank}/{asked.decode('ascii')}", self._word)
                self._waiting[rank] = asked
        if not self._waiting:
            self._store = None
