"""What /metrics shows: computed run by run in a thread of its own, so that a scrape only puts blocks together."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import duckdb

from goodput_analytics import AnalyticsError
from goodput_analytics.ledger import launch_name
from goodput_collector import metrics
from goodput_collector.errors import BusyError
from goodput_collector.exposition import Family, page
from goodput_collector.metrics import AT_WORK, MetricOptions, counters, last_event_block, run_blocks, stays
from goodput_collector.metrics_figures import NS_PER_S
from goodput_collector.metrics_marks import Landed, Marks, landed, since_opened, size_bytes
from goodput_collector.metrics_urgent import Waiting, most_urgent, standing_still
from goodput_collector.reports import Reports
from goodput_collector.shown import ShownRun, to_see
from goodput_collector.store import Store
from goodput_collector.told import Told

_SHOW_S = 2.0
"""What was computed is shown at least so often while a round goes on."""
EVERY_S = 5.0
"""Least time from the beginning of one round to that of the next."""
_REST_RATIO = 1.0


class Writer(Protocol):
    """What is asked of the thread that writes: see Committer."""

    @property
    def trouble(self) -> str | None:
        """Why nothing can be kept now."""

    @property
    def held_bytes(self) -> int:
        """What waits to be kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """A run on the board: its samples, and where the time of its last event is found."""

    told: Told
    blocks: Mapping[str, str]
    parts: tuple[int, ...]
    launch: int

    def heard_ns(self, told_ns: Mapping[int, int]) -> int:
        """When it told of something last; for a launch beside the first what its report says."""
        last_ns = max((told_ns[part] for part in self.parts if part in told_ns), default=None)
        return self.told.summary.last_event_ns if last_ns is None or self.launch > 1 else last_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class _Round:
    """What a round over the runs came to."""

    left_out: int = 0
    failed: int = 0
    took_s: float = 0.0


class Board:
    """The figures of all runs that are told of. One thread refreshes it; any thread reads it, and waits for nobody."""

    def __init__(
        self,
        store: Store,
        reports: Reports,
        writer: Writer,
        options: MetricOptions,
        *,
        db: Path,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """To be made before anything is written: it counts what the database holds. Raises duckdb.Error."""
        self._store = store
        self._reports = reports
        self._writer = writer
        self._options = options
        self._db = db
        self._clock_ns = clock_ns
        self._started_ns = clock_ns()
        self._marks = Marks(store)
        cursor = store.cursor()
        try:
            self._before: Landed = landed(cursor) - since_opened(store.lander.counts)
        finally:
            cursor.close()
        self._shown: Mapping[str, _Shown] = {}
        self._round = _Round()
        self._gone: dict[str, int] = {}

    def refresh(self, rest: Callable[[float], bool] = lambda _: False) -> None:
        """One round over the runs. `rest` is called with the seconds of a processor that a run has cost this thread; it
        says whether to stop."""
        begun = time.monotonic()
        found: dict[str, _Shown] = {}
        fresh: dict[str, Told] = {}
        shown_s = begun
        failed = left_out = 0
        now_ns = self._clock_ns()
        known = self._heard_from(now_ns)
        names = {one.run for one in known}
        for one in known:
            run = one.run
            if len(found) >= self._options.most_runs:
                left_out += 1
                continue
            name, launch = run, 1
            while len(found) < self._options.most_runs:
                if not self._hurry(found, fresh, rest):
                    return
                began_s = time.thread_time()
                try:
                    told = self._reports.told(name, self._options.ended_refresh_s)
                except BusyError:
                    return
                except (AnalyticsError, duckdb.Error):
                    failed += 1
                    break
                before = self._shown.get(name)
                if not stays(told, now_ns, self._options):
                    if told.launches == 1:
                        self._gone[run] = one.told_ns
                elif before is not None and before.told is told:
                    found[name] = before
                else:
                    fresh[name] = told
                    found[name] = _Shown(told=told, blocks={}, parts=one.parts, launch=launch)
                if rest(time.thread_time() - began_s):
                    return
                launch += 1
                name = launch_name(run, launch)
                if launch > told.launches or name in names:
                    break
            if time.monotonic() - shown_s > _SHOW_S:
                older = {one: shown for one, shown in self._shown.items() if one not in found}
                self._show(dict(list({**found, **older}.items())[: self._options.most_runs]), fresh)
                found = {one: self._shown[one] for one in found if one in self._shown}
                fresh, shown_s = {}, time.monotonic()
        self._show(found, fresh)
        self._round = _Round(left_out=left_out, failed=failed, took_s=time.monotonic() - begun)

    def _hurry(self, found: dict[str, _Shown], fresh: Mapping[str, Told], rest: Callable[[float], bool]) -> bool:
        """Computes a run that cannot wait for its turn, where there is one. False where the round is to end."""
        told_ns = self._store.lander.told_ns
        cursor = self._store.cursor()
        try:
            still = standing_still(cursor, told_ns)
        finally:
            cursor.close()
        waiting = {
            name: Waiting(told=one.told, heard_ns=one.heard_ns(told_ns), still=still.issuperset(one.parts))
            for name, one in self._shown.items()
            if name not in fresh
        }
        name = most_urgent(waiting, self._clock_ns())
        if name is None:
            return True
        began_s = time.thread_time()
        try:
            told = self._reports.told(name, self._options.ended_refresh_s)
        except BusyError:
            return False
        except (AnalyticsError, duckdb.Error):
            return True  # its turn in the round will count it
        before = self._shown[name]
        if told is not before.told:
            now = _Shown(told=told, blocks={}, parts=before.parts, launch=before.launch)
            self._show({**self._shown, name: now}, {name: told})
            if name in found and name in self._shown:
                found[name] = self._shown[name]
        return not rest(time.thread_time() - began_s)

    def page(self, openmetrics: bool) -> bytes:
        """The answer to a scrape."""
        shown = self._shown
        told_ns = self._store.lander.told_ns
        own = self._own(shown)
        last_event = [last_event_block(name, one.heard_ns(told_ns)) for name, one in shown.items()]
        blocks: list[tuple[Family, Sequence[str]]] = []
        for family in metrics.RUN_FAMILIES:
            if family is metrics.LAST_EVENT:
                blocks.append((family, last_event))
            else:
                blocks.append((family, [one.blocks[family.name] for one in shown.values()]))
        blocks += [(family, own.get(family.name, [])) for family in metrics.COLLECTOR_FAMILIES]
        return page(blocks, openmetrics)

    def _heard_from(self, now_ns: int) -> list[ShownRun]:
        """The runs that could be shown, the one heard from last first."""
        told_ns = self._store.lander.told_ns
        cursor = self._store.cursor()
        try:
            known = to_see(cursor, told_ns)
        finally:
            cursor.close()
        longest_ns = max(self._options.ended_s, self._options.lost_s) * NS_PER_S
        return [
            one
            for one in known
            if one.told_ns and now_ns - one.told_ns <= longest_ns and self._gone.get(one.run) != one.told_ns
        ]

    def _show(self, found: Mapping[str, _Shown], fresh: Mapping[str, Told]) -> None:
        """Puts runs on the board: those computed anew with counters that are written down first."""
        wanted = {name: counters(told, told.figures) for name, told in fresh.items()}
        try:
            counted = self._marks.raised(wanted)
        except duckdb.Error:
            # The disk refuses: what was told before still holds, and gauges go on. A run that is new waits.
            counted = {name: last for name in wanted if (last := self._marks.last(name)) is not None}
        labels = self._options.labels
        shown: dict[str, _Shown] = {}
        for name, one in found.items():
            told = fresh.get(name)
            if told is None:
                shown[name] = one
            elif name in counted:
                blocks = run_blocks(told, told.figures, counted[name], labels)
                shown[name] = _Shown(told=told, blocks=blocks, parts=one.parts, launch=one.launch)
        self._shown = shown

    def _own(self, shown: Mapping[str, _Shown]) -> dict[str, list[str]]:
        """The samples about the collector itself."""
        now_ns = self._clock_ns()
        taken = self._before + since_opened(self._store.lander.counts)
        ages_s = [
            max(now_ns - one.told.figures.windows_end_ns, 0) / NS_PER_S
            for one in shown.values()
            if one.told.report.state in AT_WORK
        ]
        db_bytes = size_bytes(self._db)
        told = self._round
        return {
            metrics.EVENTS.name: [metrics.EVENTS.sample(taken.events)],
            metrics.DUPLICATES.name: [metrics.DUPLICATES.sample(taken.duplicates)],
            metrics.CONFLICTS.name: [metrics.CONFLICTS.sample(taken.conflicts)],
            metrics.REJECTED.name: [
                metrics.REJECTED.sample(lines, {"reason": reason}) for reason, lines in taken.rejected.items()
            ],
            metrics.STARTED.name: [metrics.STARTED.sample(self._started_ns / NS_PER_S)],
            metrics.READY.name: [metrics.READY.sample(int(self._writer.trouble is None))],
            metrics.WAITING_BYTES.name: [metrics.WAITING_BYTES.sample(self._writer.held_bytes)],
            metrics.DATABASE_BYTES.name: [] if db_bytes is None else [metrics.DATABASE_BYTES.sample(db_bytes)],
            metrics.RUNS.name: [metrics.RUNS.sample(len(shown))],
            metrics.RUNS_LEFT_OUT.name: [metrics.RUNS_LEFT_OUT.sample(told.left_out)],
            metrics.RUNS_FAILED.name: [metrics.RUNS_FAILED.sample(told.failed)],
            metrics.FIGURES_AGE.name: [metrics.FIGURES_AGE.sample(max(ages_s, default=0.0))],
            metrics.REFRESH.name: [metrics.REFRESH.sample(told.took_s)],
        }


class BoardThread:
    """Refreshes a board until it is stopped, and rests as long as it computes: ingestion wants the rest. What it waits
    for a processor, or for another's report, is no reason to rest: others have it then."""

    def __init__(self, board: Board, say: Callable[[str], None], *, every_s: float = EVERY_S) -> None:
        self._board = board
        self._say = say
        self._every_s = every_s
        self._stop = threading.Event()
        self._said: set[str] = set()
        self._thread = threading.Thread(target=self._run, name="goodput-metrics", daemon=True)

    def start(self) -> None:
        """Begins the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Tells it to end; returns at once."""
        self._stop.set()

    def join(self, limit_s: float) -> None:
        """Waits for its end, at most so long."""
        if self._thread.is_alive():
            self._thread.join(limit_s)

    def _run(self) -> None:
        while not self._stop.is_set():
            begun = time.monotonic()
            try:
                self._board.refresh(self._rest)
            except Exception as error:
                # A defect of ours in one round must not end the metrics, and still less the collector.
                words = f"/metrics could not be computed: {type(error).__name__}: {error}"
                if not self._stop.is_set() and words not in self._said:
                    self._said.add(words)
                    self._say(words)
            self._stop.wait(max(begun + self._every_s - time.monotonic(), 0.1))

    def _rest(self, cost_s: float) -> bool:
        # What was found computed costs next to nothing, and deserves no rest.
        return self._stop.wait(_REST_RATIO * cost_s) if cost_s > 0.005 else self._stop.is_set()
