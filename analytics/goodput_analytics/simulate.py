"""Monte Carlo of a job that saves, fails and comes back, many runs at a time.

All runs advance together, a failure at a time and not a save at a time: between two interruptions a run's saves are at
known moments, so how many became durable is a division. Each pass over the arrays takes every unfinished run to its
next interruption, however long that is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from goodput_analytics.advice_cost import CostModel
from goodput_analytics.simulate_job import Job

Floats = NDArray[np.float64]
Indexes = NDArray[np.intp]
Flags = NDArray[np.bool_]

MOST_RUNS = 100_000
MOST_NODE_RUNS = 20_000_000
"""Runs times nodes of an elastic job: each node of each run has its own clock, and takes memory."""
MOST_INTERRUPTIONS = 5_000
"""A run that was interrupted as often is cut short: its shares of time are known well enough, and it may never end."""

SHARES = ("goodput", "checkpoint", "rework", "restart", "hang", "degraded")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What an interval came to, as means over the runs. The ratios are of the time that the job's GPUs were held.

    Attributes:
        interval_s: useful work between two saves.
        goodput_ratio: useful work, counted once.
        checkpoint_ratio: blocked by saves, those too that a failure cut short.
        rework_ratio: work that was thrown away.
        restart_ratio: restarts, and waiting for nodes where too few were there.
        hang_ratio: hangs, until somebody acted.
        degraded_ratio: GPUs of nodes that were away.
        model_ratio: the goodput that the first-order model expects, without hangs' and nodes' further effects.
        stderr: the standard error of `goodput_ratio`; None of a single run.
        interruptions: failures per run, on average.
        finished_ratio: runs that got to their end; the others were cut short after MOST_INTERRUPTIONS.
        runs: how many there were.
    """

    interval_s: float
    goodput_ratio: float
    checkpoint_ratio: float
    rework_ratio: float
    restart_ratio: float
    hang_ratio: float
    degraded_ratio: float
    model_ratio: float
    stderr: float | None
    interruptions: float
    finished_ratio: float
    runs: int


def simulate(job: Job, interval_s: float, *, runs: int = 400, seed: int = 1) -> Outcome:
    """Simulate a job `runs` times at an interval of useful work between saves.

    The last chunk may be shorter; it is saved too, and the job ends when that save is durable.

    Args:
        job: what to simulate.
        interval_s: useful work, at full speed, between two saves.
        runs: how often; each draws failures of its own (with a trace only hangs are drawn).
        seed: the same seed gives the same figures.

    Raises:
        ValueError: an interval or a number of runs that cannot be simulated.
    """
    job.check_interval(interval_s)
    if not 1 <= runs <= MOST_RUNS:
        raise ValueError(f"runs must be from 1 to {MOST_RUNS:,}; it is {runs}")
    if job.elastic and runs * job.elastic.nodes > MOST_NODE_RUNS:
        raise ValueError(
            f"runs times nodes must be {MOST_NODE_RUNS:,} or less; they are {runs:,} and {job.elastic.nodes:,}"
        )
    state = _Runs(job, interval_s, runs, np.random.default_rng(seed))
    state.go()
    ratios = {name: spent / state.now for name, spent in state.spent.items()}
    goodput = ratios["goodput"]
    return Outcome(
        interval_s=interval_s,
        **{f"{name}_ratio": float(np.mean(ratio)) for name, ratio in ratios.items()},
        model_ratio=_model_ratio(job, interval_s),
        stderr=float(np.std(goodput, ddof=1) / math.sqrt(runs)) if runs > 1 else None,
        interruptions=float(np.mean(state.failures)),
        finished_ratio=float(np.mean(state.finished)),
        runs=runs,
    )


def _model_ratio(job: Job, interval_s: float) -> float:
    if math.isinf(job.mean_gap_s):
        return 1.0 / (1.0 + job.checkpoint_s / interval_s)
    model = CostModel(
        checkpoint_s=job.checkpoint_s,
        mtbf_s=job.mean_gap_s,
        restart_s=job.restart_s,
        hang_s=job.hang_ratio * job.hang_timeout_s,
        write_s=job.write_s,
    )
    return model.first_order_ratio(interval_s)


class _Failures(Protocol):
    """When the next failure strikes. `due` is on a clock that may run slower than the wall's."""

    def begin(self, now: Floats) -> Floats: ...
    def left(self, due: Floats, now: Floats, speed: Floats) -> Floats: ...
    def used(self, due: Floats, elapsed: Floats, speed: Floats) -> Floats: ...


class _Drawn:
    """Gaps drawn from a Weibull distribution; with fewer nodes they pass as much more slowly."""

    def __init__(self, mean_s: float, shape: float, rng: np.random.Generator) -> None:
        self.scale_s, self.shape, self.rng = mean_s / math.gamma(1.0 + 1.0 / shape), shape, rng

    def begin(self, now: Floats) -> Floats:
        return self.scale_s * self.rng.weibull(self.shape, now.size)

    def left(self, due: Floats, now: Floats, speed: Floats) -> Floats:
        return due / speed

    def used(self, due: Floats, elapsed: Floats, speed: Floats) -> Floats:
        return np.maximum(due - elapsed * speed, 0.0)


class _Told:
    """Failures at told moments of the wall clock."""

    def __init__(self, times_s: tuple[float, ...]) -> None:
        self.times = np.array([*times_s, np.inf])

    def begin(self, now: Floats) -> Floats:
        return self.times[np.searchsorted(self.times[:-1], now, side="right")]

    def left(self, due: Floats, now: Floats, speed: Floats) -> Floats:
        return np.maximum(due - now, 0.0)

    def used(self, due: Floats, elapsed: Floats, speed: Floats) -> Floats:
        return due


@dataclass(slots=True)
class _Stretch:
    """What a life between two interruptions would be, for each run: when its saves are, and when it ends.

    Attributes:
        work, last: the time of a chunk and of the last one; cycle: from the end of one save to the end of the next.
        first: the end of the first save; chunks: how many are left; finish: when the last is durable.
    """

    work: Floats
    last: Floats
    first: Floats
    cycle: Floats
    chunks: Floats
    finish: Floats

    def durable(self, at: Floats, write_s: float) -> Floats:
        """Chunks, but for the last, that are safe after so long."""
        count = np.floor((at - self.first - write_s) / self.cycle) + 1.0
        return np.clip(count, 0.0, self.chunks - 1.0)

    def working(self, at: Floats) -> Floats:
        """The time of work, not of saves, in the first `at` seconds."""
        blocks = np.clip(np.floor((at - self.first) / self.cycle) + 1.0, 0.0, self.chunks - 1.0)
        since = np.where(blocks > 0, at - self.first - (blocks - 1.0) * self.cycle, at)
        chunk = np.where(blocks == self.chunks - 1.0, self.last, self.work)
        return blocks * self.work + np.minimum(since, chunk)


class _Runs:
    """Many runs of one job, and how far each has come.

    Attributes:
        now: each run's clock; spent: its time by share, in seconds of the whole job (of k of n nodes, k/n of it).
        chunks, failures: saves that are still to come; failures so far.
    """

    def __init__(self, job: Job, interval_s: float, runs: int, rng: np.random.Generator) -> None:
        self.job, self.interval_s, self.rng = job, interval_s, rng
        count = max(math.ceil(job.useful_s / interval_s), 1)
        self.last_s = job.useful_s - (count - 1) * interval_s
        if self.last_s <= 0:  # rounding made a chunk of nothing
            count -= 1
            self.last_s = job.useful_s - (count - 1) * interval_s
        self.now = np.zeros(runs)
        self.chunks = np.full(runs, float(count))
        self.failures = np.zeros(runs)
        self.finished = np.zeros(runs, dtype=bool)
        self.spent = {name: np.zeros(runs) for name in SHARES}
        self.source: _Failures = (
            _Told(job.failure_times_s or ()) if job.mtbf_s is None else _Drawn(job.mtbf_s, job.weibull_shape, rng)
        )
        self.due = self.source.begin(self.now)
        self.restart = np.zeros(runs)  # what each has still to do before it works: nothing at the start
        nodes = job.elastic.nodes if job.elastic else 1
        self.back = np.zeros((runs, nodes)) if job.elastic else np.zeros((runs, 0))

    def go(self) -> None:
        """Run them all to their ends."""
        live = np.arange(self.now.size)
        while live.size:
            self._advance(live)
            live = live[~self.finished[live] & (self.failures[live] < MOST_INTERRUPTIONS)]

    def _advance(self, live: Indexes) -> None:
        """Take each run to its end, its next failure, or the save at which repaired nodes come back."""
        self._wait_for_nodes(live)
        speed, repair = self._strength(live)
        limit = self.source.left(self.due[live], self.now[live], speed)
        restart = self.restart[live]
        restarting = np.minimum(restart, limit)
        self._enter("restart", live, restarting, speed)
        room = limit - restarting  # until the failure; nothing where the restart was cut short
        stretch = self._stretch(live, speed)
        finished = (stretch.finish <= room) & (restart <= limit)
        most, join_at = self._joining(stretch, repair - restarting)
        joined = (join_at <= room) & (join_at < stretch.finish) & (restart <= limit)
        length = np.where(joined, join_at, np.where(finished, stretch.finish, room))
        finished &= ~joined
        self._work(live, stretch, length, speed, most, finished, joined)
        elapsed = restarting + length
        self.now[live] += elapsed
        self.finished[live] = finished
        self.due[live] = self.source.used(self.due[live], elapsed, speed)
        self.restart[live] = self.job.elastic.restart_s if self.job.elastic else self.job.restart_s
        self._fail(live[~finished & ~joined])

    def _stretch(self, live: Indexes, speed: Floats) -> _Stretch:
        save, write = self.job.checkpoint_s, self.job.write_s
        chunks = self.chunks[live]
        work, last = self.interval_s / speed, self.last_s / speed
        first, cycle = np.where(chunks == 1, last, work) + save, np.maximum(work, write) + save
        before = (chunks - 2.0) * cycle  # of the saves after the first, all but the last
        finish = np.where(chunks == 1, first, first + before + np.maximum(last, write) + save) + write
        return _Stretch(work=work, last=last, first=first, cycle=cycle, chunks=chunks, finish=finish)

    def _work(
        self,
        live: Indexes,
        stretch: _Stretch,
        length: Floats,
        speed: Floats,
        most: Floats,
        finished: Flags,
        joined: Flags,
    ) -> None:
        """Enter what a stretch of work came to, and take off what is safe."""
        safe = np.where(joined, most, stretch.durable(length, self.job.write_s))
        useful = np.where(finished, (stretch.chunks - 1.0) * stretch.work + stretch.last, safe * stretch.work)
        # After the save at which nodes come back nothing is begun: the loop waits until that save is durable.
        working = np.minimum(stretch.working(length), most * stretch.work)
        working = np.where(finished | joined, useful, np.maximum(working, useful))
        self._enter("goodput", live, useful, speed)
        self._enter("rework", live, working - useful, speed)
        self._enter("checkpoint", live, length - working, speed)
        self.chunks[live] -= np.where(finished, stretch.chunks, safe)

    def _enter(self, name: str, live: Indexes, time: Floats, speed: Floats) -> None:
        self.spent[name][live] += time * speed
        if self.job.elastic:
            self.spent["degraded"][live] += time * (1.0 - speed)

    def _fail(self, live: Indexes) -> None:
        if not live.size:
            return
        job = self.job
        self.failures[live] += 1.0
        if job.hang_ratio > 0:
            hung = self.rng.random(live.size) < job.hang_ratio
            waited = np.where(hung, job.hang_timeout_s, 0.0)
            # A hang holds the nodes that hang; those that were away stay away.
            self._enter("hang", live, waited, self._strength(live)[0])
            self.now[live] += waited
        if job.elastic:
            self._lose_a_node(live, job.elastic.repair_s)
        self.due[live] = self.source.begin(self.now[live])

    def _lose_a_node(self, live: Indexes, repair_s: float) -> None:
        """Take away the node that has been there longest: which of those that are there makes no difference."""
        there = np.argmin(self.back[live], axis=1)
        self.back[live, there] = self.now[live] + repair_s

    def _strength(self, live: Indexes) -> tuple[Floats, Floats]:
        """The share of nodes that are there, and in how long the next comes back (infinite where none is away)."""
        if not self.job.elastic:
            return np.ones(live.size), np.full(live.size, np.inf)
        away = self.back[live] - self.now[live][:, None]
        gone = away > 0
        speed = 1.0 - gone.sum(axis=1) / self.job.elastic.nodes
        return speed, np.where(gone, away, np.inf).min(axis=1)

    def _wait_for_nodes(self, live: Indexes) -> None:
        """Where too few nodes are there, wait until enough are back. Nothing runs, so nothing fails.

        The nodes that are away at its beginning count as away for all of it.
        """
        elastic = self.job.elastic
        if not elastic:
            return
        # Of n numbers in order, the m-th is the moment from which m nodes are there.
        enough = np.partition(self.back[live], elastic.min_nodes - 1, axis=1)[:, elastic.min_nodes - 1]
        wait = np.maximum(enough - self.now[live], 0.0)
        short = live[wait > 0]
        if not short.size:
            return
        self._enter("restart", short, wait[wait > 0], self._strength(short)[0])
        self.now[short] = enough[wait > 0]
        self.due[short] = self.source.begin(self.now[short])

    def _joining(self, stretch: _Stretch, repair: Floats) -> tuple[Floats, Floats]:
        """After how many chunks a node is to come back, and when the save of the last is durable; infinite if never."""
        never = np.full(repair.size, np.inf)
        joins = np.isfinite(repair)
        if not joins.any():
            return never, never
        write = self.job.write_s
        number = np.ceil((np.where(joins, repair, 0.0) - stretch.first - write) / stretch.cycle) + 1.0
        number = np.maximum(number, 1.0)
        joins &= number < stretch.chunks  # else the job ends before
        at = stretch.first + write + (number - 1.0) * stretch.cycle
        return np.where(joins, number, never), np.where(joins, at, never)
