"""Where the pages read from: a collector, or a file that no collector holds. Every question has an answer.

Answers are shared by all sessions and kept for a moment; while the collector is away the last ones are shown, with
what is the matter. A question that several sessions ask at once is asked once.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import duckdb
import pyarrow as pa

from goodput_analytics import AnalyticsError, Report, RunSummary, UnknownRun
from goodput_analytics.advice_run import RunAdvice
from goodput_collector.client import Correction, FileClient, GoodputCollectorError, HttpClient, Wish, open_client

T = TypeVar("T")

FRESH_S = 2.0
"""How long an answer of a collector stands before it is asked again."""
HELD = 512
"""Answers that are kept: the oldest go."""
HELD_BYTES = 256 * 2**20
IDLE_S = 5.0
"""A file is let go when nobody has asked for this long: a collector may want it."""


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """What was last heard, when (seconds since the epoch), and what kept us from hearing more; each may be None."""

    value: T | None
    at_s: float | None
    trouble: str | None

    def known(self) -> T:
        """The value where it is sure that there is one."""
        assert self.value is not None
        return self.value


class Source:
    """Answers from one place, for any thread."""

    def __init__(self, where: str, token: str | None = None, clock_s: Callable[[], float] = time.time) -> None:
        self.where = where
        self.is_file = not where.startswith(("http://", "https://"))
        self._token = token
        self._clock_s = clock_s
        self._kept: OrderedDict[tuple[Any, ...], tuple[float, object, Any, int]] = OrderedDict()
        self._asking: dict[tuple[Any, ...], threading.Lock] = {}
        self._lock = threading.Lock()
        self._bytes = 0
        self._client: HttpClient | FileClient | None = None
        self._client_of: object = None
        self._using = threading.Lock()
        self._asked_s = 0.0

    def runs(self, limit: int) -> Answer[list[RunSummary]]:
        """The runs heard from last, as a collector lists them."""
        return self._ask(("runs", limit), lambda client: client.runs(limit))

    def names(self) -> Answer[list[str]]:
        """The names of the runs, the one heard from last first: quick, for nothing is computed."""
        return self._ask(("names",), lambda client: client.names())

    def correct(self, wish: Wish) -> Correction:
        """Has a collector correct something; what was heard of the run before is asked again.

        Raises GoodputCollectorError, with what to do; for a file, which is only read here, too.
        """
        client = self._client or open_client(self.where, self._token)
        if not isinstance(client, HttpClient):
            raise GoodputCollectorError("A file is only read here: correct it with `goodput correct`.")
        try:
            made = client.correct(wish)
        except UnknownRun as error:
            raise GoodputCollectorError(str(error)) from error
        with self._lock:
            old = [key for key in self._kept if wish.run in key or key[0] in ("names", "runs")]
        for key in old:
            self._forget(key)
        return made

    def report(self, run: str) -> Answer[Report]:
        """The breakdown of a run. Raises UnknownRun."""
        return self._ask(("report", run), lambda client: client.report(run))

    def advice(self, run: str) -> Answer[RunAdvice]:
        """How often to save and how long to wait, from the run's own record. Raises UnknownRun."""
        return self._ask(("advice", run), lambda client: client.advice(run))

    def rows(
        self, name: str, run: str, *, from_ns: int | None = None, to_ns: int | None = None, most: int = 2_000
    ) -> Answer[pa.Table]:
        """Rows of a relation or a view of a run. Raises UnknownRun."""
        return self._ask(
            ("rows", name, run, from_ns, to_ns, most),
            lambda client: client.relation(name, run, from_ns=from_ns, to_ns=to_ns, limit=most).table,
        )

    def version(self) -> object:
        """What stands for the content of a file; None for a collector, whose content moves."""
        if not self.is_file:
            return None
        try:
            seen = Path(self.where).stat()
        except OSError:
            return "missing"
        return seen.st_mtime_ns, seen.st_size, seen.st_ino

    def close(self) -> None:
        """Lets the file go."""
        with self._using:
            self._let_go()

    def _ask(self, key: tuple[Any, ...], question: Callable[[HttpClient | FileClient], T]) -> Answer[T]:
        with self._lock:
            asking = self._asking.setdefault(key, threading.Lock())
        with asking:
            kept = self._kept.get(key)
            version = self.version()
            if kept is not None and (kept[1] == version if self.is_file else self._clock_s() - kept[0] < FRESH_S):
                with self._lock, suppress(KeyError):
                    self._kept.move_to_end(key)
                return Answer(cast(T, kept[2]), kept[0], None)
            try:
                value = self._asked(question, version)
            except UnknownRun:
                self._forget(key)
                raise
            except (GoodputCollectorError, AnalyticsError, duckdb.Error, OSError, ValueError) as error:
                said = " ".join(str(error).split())
                return Answer(None if kept is None else cast(T, kept[2]), None if kept is None else kept[0], said)
            at_s = self._clock_s()
            self._keep(key, at_s, version, value)
            return Answer(value, at_s, None)

    def _asked(self, question: Callable[[HttpClient | FileClient], T], version: object) -> T:
        if not self.is_file:
            client = self._client or open_client(self.where, self._token)
            self._client = client
            return question(client)
        with self._using:
            if self._client is not None and self._client_of != version:
                self._let_go()
            if self._client is None:
                self._client, self._client_of = open_client(self.where), version
                threading.Thread(target=self._close_when_idle, name="goodput-idle", daemon=True).start()
            self._asked_s = time.monotonic()
            try:
                return question(self._client)
            finally:
                self._asked_s = time.monotonic()

    def _close_when_idle(self) -> None:
        while True:
            time.sleep(IDLE_S / 2)
            with self._using:
                if self._client is None:
                    return
                if time.monotonic() - self._asked_s >= IDLE_S:
                    self._let_go()
                    return

    def _let_go(self) -> None:
        if self._client is not None:
            self._client.close()
        self._client = None

    def _keep(self, key: tuple[Any, ...], at_s: float, version: object, value: object) -> None:
        size = value.nbytes if isinstance(value, pa.Table) else 20_000
        with self._lock:
            before = self._kept.pop(key, None)
            self._bytes += size - (before[3] if before else 0)
            self._kept[key] = (at_s, version, value, size)
            while len(self._kept) > HELD or (self._bytes > HELD_BYTES and len(self._kept) > 1):
                old, gone = self._kept.popitem(last=False)
                self._bytes -= gone[3]
                self._asking.pop(old, None)

    def _forget(self, key: tuple[Any, ...]) -> None:
        with self._lock:
            gone = self._kept.pop(key, None)
            self._bytes -= gone[3] if gone else 0
