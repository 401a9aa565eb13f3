"""Reports while events come in: computed on connections of their own, one at a time, and kept until they are old."""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from goodput_analytics import AnalyticsError, Early, Report, RunSummary, Settings, UnknownRun
from goodput_analytics.advice_run import RunAdvice, advice_from_relations
from goodput_analytics.early import all_read
from goodput_analytics.ledger import launch_name, run_names
from goodput_analytics.notes import IncidentPlace, incident_place
from goodput_collector import early
from goodput_collector.corrections import Correction, read
from goodput_collector.errors import BusyError
from goodput_collector.relations import OF_RANKS, Window, named, select
from goodput_collector.shown import ShownRun, parts_of, to_see
from goodput_collector.store import Store
from goodput_collector.told import Candidate, Told, cheapest_first, tell

_HELD_RUNS = 4
"""Runs whose relations are kept; of the others the report alone."""
_HELD_REPORTS = 2_000
_FRESH_S = 1.0
_KNOWN = 1_000
"""Names that are told to who asked for one that is not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """What was told of a run, of which version, after how many corrections, whether time changes it, and when and how
    long it was computed; `all_read`: whether from all rows of ranks."""

    told: Told
    version: tuple[int, int]
    corrected: int
    settled: bool
    all_read: bool
    at_s: float
    cost_s: float


class Reports:
    """Answers about runs, from any thread.

    "Now" is the clock handed in, for a run that is heard from: it stops when the run has been silent for so long that
    it is lost. A report is at most as old as a second, or as `rest_ratio` times the time that it takes to compute.

    Attributes:
        keep: has kept what was found to be complete; it returns at once, and may do nothing.
    """

    def __init__(
        self,
        store: Store,
        clock_ns: Callable[[], int] = time.time_ns,
        settings: Settings | None = None,
        rest_ratio: float = 1.0,
    ) -> None:
        self._store = store
        self._clock_ns = clock_ns
        self._settings = settings or Settings()
        self._rest_ratio = rest_ratio
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._cursors: OrderedDict[str, duckdb.DuckDBPyConnection] = OrderedDict()
        self._working: duckdb.DuckDBPyConnection | None = None
        self._stopped = False
        self.keep: Callable[[early.Found], None] = lambda found: None
        store.before_reopen = self.let_go

    def report(self, run: str) -> Report:
        """The breakdown of a run as of now, or of a moment ago. Raises UnknownRun."""
        with self._lock:
            return self._fresh(run).report

    def told(self, run: str, windows_age_s: float) -> Told:
        """All that is told of a run, with windows that ended at most so long ago (or a moment ago), also where time
        changes nothing else any more. Raises UnknownRun."""
        with self._lock:
            return self._fresh(run, windows_age_s=windows_age_s)

    def check_run(self, run: str) -> None:
        """Raises UnknownRun where nothing has landed under that name."""
        self._parts(run)

    def names(self, limit: int) -> list[ShownRun]:
        """The runs by name, the one heard from last first; nothing is computed, so that launches beside the first are
        not among them."""
        cursor = self._store.cursor()
        try:
            return to_see(cursor, self._store.lander.told_ns)[:limit]
        finally:
            cursor.close()

    def corrections(self, limit: int) -> list[Correction]:
        """What people corrected, the latest first."""
        cursor = self._store.cursor()
        try:
            return read(cursor, limit)
        finally:
            cursor.close()

    def incident_place(self, run: str, attempt: int, abort_ns: int | None) -> IncidentPlace | None:
        """Where an incident of a run lies; None where there is none. Raises UnknownRun."""
        with self._standing(run) as con:
            return incident_place(con, attempt, abort_ns)

    def relation(self, name: str, run: str, window: Window) -> tuple[pa.Table, bool]:
        """Rows of a named relation of a run, and whether there are more. Raises UnknownRun or BadRequestError."""
        named(name)
        with self._standing(run, of_ranks=name in OF_RANKS) as con:
            return select(con, name, window)

    def advice(self, run: str, risk_ratio: float, at_ranks: Sequence[int]) -> RunAdvice:
        """Advice from a run's own record. Raises UnknownRun, or ValueError for a risk that is none."""
        with self._standing(run, of_ranks=True) as con:
            return advice_from_relations(con, run, risk_ratio=risk_ratio, at_ranks=at_ranks)

    def runs(self, limit: int) -> list[RunSummary]:
        """The runs, the one heard from last first, at most `limit`; launches beside the first count as runs."""
        return [told.summary for told in self._all(limit)]

    def candidates(self, limit: int) -> list[Candidate]:
        """The runs at work, the cheapest to preempt first; those whose price is not known come last."""
        now_ns = self._clock_ns()
        found = [told.candidate(now_ns) for told in self._all(limit)]
        return cheapest_first([one for one in found if one is not None])

    def stop(self) -> None:
        """Ends what is being computed and computes nothing more; returns at once. What falls between two queries is
        missed, so it is called until nobody waits any more."""
        self._stopped = True
        working = self._working
        if working is not None:
            working.interrupt()

    def let_go(self) -> None:
        """Ends what is being computed, and closes all connections; the next question opens new ones."""
        working = self._working
        if working is not None:
            working.interrupt()
        with self._lock:
            for cursor in self._cursors.values():
                cursor.close()
            self._cursors.clear()

    @contextmanager
    def _standing(self, run: str, *, of_ranks: bool = False) -> Iterator[duckdb.DuckDBPyConnection]:
        """The connection in which the relations of a run stand, with `of_ranks` made from all rows of ranks; nobody
        else uses it meanwhile. Raises UnknownRun."""
        with self._lock:
            self._fresh(run, relations=True, of_ranks=of_ranks)
            try:
                yield self._cursors[run]
            except duckdb.Error:
                self._forget(run)
                raise

    def _all(self, limit: int) -> list[Told]:
        """What is told of the runs heard from last."""
        told: list[Told] = []
        for run in self.names(limit):
            name, launch = run.run, 1
            while True:
                try:
                    with self._lock:  # for one run at a time: who asks for a single one gets in between
                        one = self._fresh(name)
                except (AnalyticsError, duckdb.Error):
                    break  # One run that cannot be computed must not hide the others; asking for it alone says why.
                told.append(one)
                launch += 1
                if launch > one.launches:
                    break
                name = launch_name(run.run, launch)
        return sorted(told, key=lambda one: -one.summary.last_event_ns)[:limit]

    def _fresh(
        self, run: str, *, relations: bool = False, of_ranks: bool = False, windows_age_s: float = math.inf
    ) -> Told:
        """What is told of a run, computed anew where it is old; with `relations` they stand in its connection, with
        `of_ranks` made from all rows of ranks."""
        parts = self._parts(run)
        lander = self._store.lander
        corrected = lander.corrected
        version = (sum(lander.versions.get(part, 0) for part in parts), lander.versions.get(None, 0))
        kept = self._kept.get(run)
        # What somebody corrected is to be seen at once.
        stands = run in self._cursors and (kept is None or kept.all_read or not of_ranks)
        if kept is not None and kept.corrected == corrected and (stands or not relations):
            age_s = time.monotonic() - kept.at_s
            same = kept.version == version and age_s < (windows_age_s if kept.settled else _FRESH_S)
            # However often it is asked, computing takes half of the time at most: ingestion wants the rest.
            if same or age_s < self._rest_ratio * kept.cost_s:
                self._kept.move_to_end(run)
                if run in self._cursors:
                    self._cursors.move_to_end(run)
                return kept.told
        if self._stopped:
            raise BusyError("The collector is stopping.", retry_after_s=1.0)
        begun = time.monotonic()
        last_ns = max((lander.told_ns[part] for part in parts if part in lander.told_ns), default=None)
        now_ns = self._clock_ns()
        lost_ns = None if last_ns is None else last_ns + self._settings.lost_ns + 1
        until_ns = now_ns if lost_ns is None else min(now_ns, lost_ns)
        self._forget(run)
        cursor = self._store.cursor()
        self._working = cursor
        try:
            # One view of the database, however much is landed meanwhile.
            cursor.execute("BEGIN")
            told = tell(cursor, run, until_ns, self._settings, now_ns, early=Early.NONE if of_ranks else Early.FIND)
            read, found = all_read(cursor), None if of_ranks else early.found(cursor)
            cursor.execute("COMMIT")
        except BaseException:
            cursor.close()
            raise
        finally:
            self._working = None
        ended_s = time.monotonic()
        self._kept[run] = _Kept(
            told=told,
            version=version,
            corrected=corrected,
            settled=until_ns == lost_ns,
            all_read=read,
            at_s=ended_s,
            cost_s=ended_s - begun,
        )
        self._cursors[run] = cursor
        if found is not None:
            self.keep(found)
        while len(self._cursors) > _HELD_RUNS:
            self._cursors.popitem(last=False)[1].close()
        while len(self._kept) > _HELD_REPORTS:
            self._forget(next(iter(self._kept)))
        return told

    def _forget(self, run: str) -> None:
        self._kept.pop(run, None)
        cursor = self._cursors.pop(run, None)
        if cursor is not None:
            cursor.close()

    def _parts(self, run: str) -> tuple[int, ...]:
        """The keys of the landed runs that a name stands for."""
        cursor = self._store.cursor()
        try:
            found = parts_of(cursor, run)
            if found is not None:
                return found
            known = run_names(cursor)[:_KNOWN]
        finally:
            cursor.close()
        raise UnknownRun(run, known)
