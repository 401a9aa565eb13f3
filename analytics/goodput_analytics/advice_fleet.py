"""Saves of several runs on one storage: what it costs that they collide, and what staggering them would be worth.

A save that finds others under way is slower. With k saves in flight each is taken to go on at 1 / (1 + b (k - 1)) of
the speed that it has alone: b = 0 where the storage does not mind, b = 1 where all share what one could have. For any b
a save's time alone follows from when the others came and went; the b that fits makes those times, within each run, as
equal as they can be. (To compare the lengths of saves by how many others each met would be unfair: a long save meets
more of them because it is long.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb
import numpy as np
from numpy.typing import NDArray

from goodput_analytics.errors import AnalyticsError
from goodput_analytics.ledger import build, launch_name, run_names
from goodput_analytics.relations import rows, run_sql
from goodput_analytics.settings import NS_PER_S, Settings

Floats = NDArray[np.float64]

MOST_CONTENTION = 4.0
_GRID = 81
_REFINEMENTS = 6
LEAST_SAVES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSave:
    """One blocking save of a run: when it began and ended, and the GPUs that waited for it."""

    run: str
    begin_s: float
    end_s: float
    gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """The saves that had about as many in flight beside them, themselves counted, on average over their time.

    Attributes:
        in_flight: rounded to a whole number.
        saves: how many they were.
        mean_s: how long they blocked.
        slowdown: the mean of their length over their run's own time alone, as fitted.
    """

    in_flight: int
    saves: int
    mean_s: float
    slowdown: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRun:
    """What colliding costs one run.

    Attributes:
        run: its name; saves: its blocking saves.
        mean_s: how long they blocked; alone_s: how long they would have, with the storage to themselves.
        lost_gpu_s: GPU time that it lost to the saves of others.
    """

    run: str
    saves: int
    mean_s: float
    alone_s: float
    lost_gpu_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetAdvice:
    """What the saves of all runs of a database do to one another.

    Attributes:
        saves: blocking saves looked at; async_saves: those left out, since they hold nobody up while they write.
        contention: the b that fits; None where nothing tells (too few saves, or none that met another).
        crowds: saves by how many were in flight.
        runs: each run, the one that loses most first.
        blocked_gpu_s: GPU time blocked by saves.
        saved_gpu_s: how much of it staggering would save.
        busy_ratio: of the time from the first save to the last, how much saves would take one after another. Only
            below 1 can they all be staggered.
        left_out: runs whose ledger could not be made.
    """

    saves: int
    async_saves: int
    contention: float | None
    crowds: tuple[Crowd, ...]
    runs: tuple[FleetRun, ...]
    blocked_gpu_s: float
    saved_gpu_s: float | None
    busy_ratio: float | None
    left_out: tuple[str, ...] = ()


def fleet(
    con: duckdb.DuckDBPyConnection, *, now_ns: int | None = None, settings: Settings | None = None
) -> FleetAdvice:
    """What the saves of all runs in a database do to one another.

    Args:
        con: a connection to a database with landed events; it may be read-only. Temporary tables are left in it.
        now_ns, settings: as for `report`.
    """
    saves: list[FleetSave] = []
    async_saves = 0
    left_out = []
    for run in run_names(con):
        launch, launches = 1, 1
        while launch <= launches:
            name = launch_name(run, launch)
            try:
                launches = build(con, name, now_ns=now_ns, settings=settings).launches
                run_sql(con, "advice_saves")
            except (AnalyticsError, duckdb.Error):
                left_out.append(name)  # one run that cannot be computed must not hide the others
                break
            told = rows(con, "SELECT * FROM gp_advice_saves WHERE blocking_ns > 0 ORDER BY begin_ns")
            async_saves += sum(row["async"] for row in told)
            saves += [
                FleetSave(
                    run=name,
                    begin_s=row["begin_ns"] / NS_PER_S,
                    end_s=(row["begin_ns"] + row["blocking_ns"]) / NS_PER_S,
                    gpus=row["gpus"],
                )
                for row in told
                if not row["async"]
            ]
            launch += 1
    return advise_fleet(saves, async_saves=async_saves, left_out=left_out)


def advise_fleet(saves: Sequence[FleetSave], *, async_saves: int = 0, left_out: Sequence[str] = ()) -> FleetAdvice:
    """What saves do to one another, and what it would be worth if each had the storage to itself."""
    kept = sorted((s for s in saves if s.end_s > s.begin_s), key=lambda s: (s.begin_s, s.end_s, s.run))
    length = np.array([s.end_s - s.begin_s for s in kept])
    gpus = np.array([float(s.gpus) for s in kept])
    names = sorted({s.run for s in kept})
    owner = np.array([names.index(s.run) for s in kept], dtype=np.intp)
    shares = _time_by_crowd(kept)
    contention = _fit(shares, length, owner) if len(kept) >= LEAST_SAVES else None
    alone = length if contention is None else _alone(shares, contention)
    met = shares.in_flight(length)
    lost = (length - alone) * gpus
    span_s = max((s.end_s for s in kept), default=0.0) - min((s.begin_s for s in kept), default=0.0)
    return FleetAdvice(
        saves=len(kept),
        async_saves=async_saves,
        contention=contention,
        crowds=tuple(
            Crowd(
                in_flight=int(k),
                saves=int(np.sum(met == k)),
                mean_s=float(np.mean(length[met == k])),
                slowdown=float(np.mean(length[met == k] / _run_means(alone, owner)[met == k])),
            )
            for k in np.unique(met)
        ),
        runs=tuple(
            sorted(
                (
                    FleetRun(
                        run=name,
                        saves=int(np.sum(owner == i)),
                        mean_s=float(np.mean(length[owner == i])),
                        alone_s=float(np.mean(alone[owner == i])),
                        lost_gpu_s=float(np.sum(lost[owner == i])),
                    )
                    for i, name in enumerate(names)
                ),
                key=lambda r: (-r.lost_gpu_s, r.run),
            )
        ),
        blocked_gpu_s=float(np.sum(length * gpus)),
        saved_gpu_s=None if contention is None else float(np.sum(lost)),
        busy_ratio=float(np.sum(alone)) / span_s if span_s > 0 else None,
        left_out=tuple(left_out),
    )


@dataclass(frozen=True, slots=True)
class _Crowding:
    """How long each save had how many in flight: pieces of (save, seconds, number)."""

    save: NDArray[np.intp]
    seconds: Floats
    number: Floats
    saves: int

    def in_flight(self, length: Floats) -> NDArray[np.intp]:
        """The mean number in flight over each save's time, rounded."""
        return np.rint(np.bincount(self.save, self.seconds * self.number, self.saves) / length).astype(np.intp)


def _time_by_crowd(kept: Sequence[FleetSave]) -> _Crowding:
    """Walk over all begins and ends in order of time."""
    moments = sorted([(s.begin_s, 1, i) for i, s in enumerate(kept)] + [(s.end_s, 0, i) for i, s in enumerate(kept)])
    save: list[int] = []
    seconds: list[float] = []
    number: list[float] = []
    flying: set[int] = set()
    before_s = 0.0
    for at_s, begins, i in moments:
        if at_s > before_s and flying:
            save += flying
            seconds += [at_s - before_s] * len(flying)
            number += [float(len(flying))] * len(flying)
        before_s = at_s
        if begins:
            flying.add(i)
        else:
            flying.discard(i)
    return _Crowding(np.array(save, dtype=np.intp), np.array(seconds), np.array(number), len(kept))


def _alone(shares: _Crowding, contention: float) -> Floats:
    """How long each save would have taken alone."""
    work = shares.seconds / (1.0 + contention * (shares.number - 1.0))
    return np.bincount(shares.save, work, shares.saves).astype(np.float64)


def _run_means(values: Floats, owner: NDArray[np.intp]) -> Floats:
    means: Floats = np.asarray(np.bincount(owner, values) / np.bincount(owner), dtype=np.float64)
    return means[owner]


def _fit(shares: _Crowding, length: Floats, owner: NDArray[np.intp]) -> float | None:
    """The contention that leaves the least spread of times alone within runs; None where no save met another."""
    if not np.any(shares.number > 1) or np.max(np.bincount(owner)) < 2:
        return None

    def spread(contention: float) -> float:
        logs = np.log(_alone(shares, contention))
        return float(np.sum((logs - _run_means(logs, owner)) ** 2))

    low, high = 0.0, MOST_CONTENTION
    best = 0.0
    for _ in range(_REFINEMENTS):
        grid = np.linspace(low, high, _GRID)
        place = int(np.argmin([spread(float(b)) for b in grid]))
        best = float(grid[place])
        low, high = float(grid[max(place - 1, 0)]), float(grid[min(place + 1, _GRID - 1)])
    return best
