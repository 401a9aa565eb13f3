"""The reports of all runs, gathered in the background so that no page waits for them."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass
from typing import Any

from goodput_analytics import AnalyticsError, Report, UnknownRun
from goodput_dashboard.source import Source

MOST_RUNS = 1_000
STAGES = (8, 64, MOST_RUNS)
"""A collector that was just started computes each run when it is first asked for; so a few are asked for first."""
AGAIN_S = 3.0
UNWATCHED_S = 60.0
"""Nobody having looked for this long, nothing is gathered until somebody looks again."""
SPARK_POINTS = 24
DETAILS_S = 60.0
"""How often a run that moves has its line over time drawn again."""
LIVE = ("running", "hung", "paused")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One run on the shelf.

    Attributes:
        report: its breakdown.
        first_ns, last_ns: its first attempt's start, and the last that was heard from it.
        goodput: goodput over its time, oldest first; None where nothing was held.
        nodes, jobs: where it ran; labels: what its ranks were labelled with.
    """

    report: Report
    first_ns: int
    last_ns: int
    goodput: tuple[float | None, ...]
    nodes: tuple[str, ...]
    jobs: tuple[str, ...]
    labels: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shelved:
    """What stands on the shelf.

    Attributes:
        entries: the runs, the one heard from last first.
        names: those of all runs that are known of; missing: how many of them are still to come.
        whole: whether all of it was gathered once.
        trouble: what keeps us from hearing more; at_s: when something was last heard, seconds since the epoch.
    """

    entries: tuple[Entry, ...]
    names: tuple[str, ...]
    missing: int
    whole: bool
    trouble: str | None
    at_s: float | None


class Shelf:
    """Gathers reports while somebody looks. Any thread may look."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._entries: dict[str, Entry] = {}
        self._seen: dict[str, Any] = {}
        self._detailed_s: dict[str, float] = {}
        self._names: tuple[str, ...] = ()
        self._trouble: str | None = None
        self._at_s: float | None = None
        self._looked_s = 0.0
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._whole = False
        self._stopped = threading.Event()

    def stop(self, wait_s: float = 5.0) -> None:
        """Gathers no more, and waits for what is being read: a thread must not be in the database when all ends."""
        self._stopped.set()
        thread = self._thread
        if thread is not None:
            thread.join(wait_s)

    def look(self, wait_s: float = 0.0) -> Shelved:
        """What stands there now. Waits up to `wait_s` for all of it to have been gathered once."""
        with self._changed:
            self._looked_s = time.monotonic()
            if not self._stopped.is_set() and (self._thread is None or not self._thread.is_alive()):
                self._whole = False
                self._thread = threading.Thread(target=self._gather, name="goodput-shelf", daemon=True)
                self._thread.start()
            self._changed.wait_for(lambda: self._whole or self._trouble is not None, wait_s)
            entries = [self._entries[name] for name in self._names if name in self._entries]
            return Shelved(
                entries=tuple(sorted(entries, key=lambda one: (-one.last_ns, one.report.run))),
                names=self._names,
                missing=len(self._names) - len(entries),
                whole=self._whole,
                trouble=self._trouble,
                at_s=self._at_s,
            )

    def _gather(self) -> None:
        stage, version = 0, None
        while time.monotonic() - self._looked_s < UNWATCHED_S and not self._stopped.is_set():
            now = self._source.version()
            if self._source.is_file and self._whole and now == version and self._trouble is None:
                self._stopped.wait(AGAIN_S)
                continue
            try:
                more = self._gather_file() if self._source.is_file else self._gather_runs(STAGES[stage])
            except Exception as error:  # whatever it was, the page says so and the next round tries again
                self._say(f"{type(error).__name__}: {error}", whole=False)
                more = False
            version = now
            if more and stage + 1 < len(STAGES):
                stage += 1
                continue
            if self._trouble is None:
                self._say(None, whole=True)
            self._stopped.wait(AGAIN_S)

    def _gather_file(self) -> bool:
        heard = self._source.names()
        if heard.value is None or heard.trouble is not None:
            self._say(heard.trouble, whole=False)
            return False
        names = list(heard.value)
        self._set_names(names)
        self._trouble = None
        place = 0
        while place < len(names) and not self._stopped.is_set():
            name = names[place]
            entry = self._entry(name, None)
            # Launches that ran side by side under one name are runs of their own.
            if entry is not None and any(f.code == "two_launches" for f in entry.report.findings):
                launch, base = _launch(name)
                beside = f"{base}~{launch + 1}"
                if beside not in names:
                    names.insert(place + 1, beside)
            if entry is None:
                names.pop(place)
            else:
                place += 1
            self._set_names(names)
        return False

    def _gather_runs(self, limit: int) -> bool:
        heard = self._source.runs(limit)
        if heard.value is None or heard.trouble is not None:
            self._say(heard.trouble, whole=False)
            return False
        self._trouble = None
        self._set_names(
            [one.run for one in heard.value]
            if limit == MOST_RUNS or len(heard.value) < limit
            else [*dict.fromkeys([*(one.run for one in heard.value), *self._names])]
        )
        changed = []
        for one in heard.value:
            mark = (one.last_event_ns, one.state, one.allocated_gpu_s)
            if self._seen.get(one.run) != mark:
                self._entry(one.run, one.last_event_ns, detailed=False)
                self._seen[one.run] = mark
                changed.append(one)
        self._say(None, whole=len(heard.value) < limit)
        # A collector has the reports at hand; for the details it must build most runs' relations once more.
        now_s = time.monotonic()
        for one in changed:
            if self._stopped.is_set():
                break
            if now_s - self._detailed_s.get(one.run, -DETAILS_S) >= DETAILS_S:
                self._entry(one.run, one.last_event_ns)
                self._detailed_s[one.run] = time.monotonic()
        return len(heard.value) >= limit

    def _entry(self, name: str, last_ns: int | None, *, detailed: bool = True) -> Entry | None:
        """Reads a run. Without `detailed` what else is known of it stays as it was."""
        before = self._entries.get(name)
        try:
            told = self._source.report(name)
            if told.value is None:
                return None
            line = self._source.rows("view_timeline", name, most=SPARK_POINTS) if detailed else None
            places = self._source.rows("view_places", name) if detailed else None
        except (UnknownRun, AnalyticsError):
            return None
        report = told.value
        rows = [] if places is None or places.value is None else places.value.to_pylist()
        drawn = [] if line is None or line.value is None else line.value.to_pylist()
        kept = None if detailed else before
        entry = Entry(
            report=report,
            first_ns=min((one.start_ns for one in report.attempts), default=report.as_of_ns),
            last_ns=report.as_of_ns if last_ns is None else last_ns,
            goodput=kept.goodput if kept else _goodput(drawn),
            nodes=kept.nodes if kept else tuple(sorted({row["node"] for row in rows if row["node"]})),
            jobs=tuple(sorted({one.job for one in report.attempts if one.job})),
            labels=kept.labels if kept else _labels(rows),
        )
        with self._changed:
            self._entries[name] = entry
            self._at_s = told.at_s
            self._changed.notify_all()
        return entry

    def _set_names(self, names: list[str]) -> None:
        with self._changed:
            self._names = tuple(names[:MOST_RUNS])
            for gone in set(self._entries) - set(self._names):
                del self._entries[gone]
                self._seen.pop(gone, None)
                self._detailed_s.pop(gone, None)

    def _say(self, trouble: str | None, *, whole: bool) -> None:
        with self._changed:
            self._trouble = trouble
            self._whole = whole or self._whole
            self._changed.notify_all()


def _launch(name: str) -> tuple[int, str]:
    base, mark, number = name.rpartition("~")
    return (int(number), base) if mark and number.isdecimal() else (1, name)


def _goodput(rows: list[dict[str, Any]]) -> tuple[float | None, ...]:
    """The share of `productive` in each stretch, oldest first."""
    shares: dict[int, float] = {}
    for row in rows:
        shares.setdefault(row["start_ns"], 0.0)
        if row["category"] == "productive":
            shares[row["start_ns"]] = row["share_ratio"]
    return tuple(shares[start_ns] for start_ns in sorted(shares))


def _labels(rows: list[dict[str, Any]]) -> dict[str, str]:
    """The labels of the latest attempt that has any."""
    for row in reversed(rows):
        try:
            told = json.loads(row["labels"] or "{}")
        except ValueError:
            continue
        if isinstance(told, dict) and told:
            return {str(key): str(value) for key, value in told.items()}
    return {}
