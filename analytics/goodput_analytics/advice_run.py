"""Advice for a run, from its own record: how often to save, how long to wait, what noise costs at scale."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import duckdb
import numpy as np

from goodput_analytics.advice_cost import CostModel
from goodput_analytics.advice_interval import IntervalAdvice, advise_interval
from goodput_analytics.advice_rates import Rate, rate
from goodput_analytics.advice_saves import SaveTimes, save_times
from goodput_analytics.early import Early
from goodput_analytics.ledger import build
from goodput_analytics.relations import rows, run_sql
from goodput_analytics.scale import Noise, fit_noise
from goodput_analytics.settings import NS_PER_S, Settings
from goodput_analytics.timeouts import (
    DEFAULT_RISK_RATIO,
    DEFAULT_TIMEOUT_S,
    TimeoutAdvice,
    advise_timeout,
    hang_cost_gpu_s,
)

RELATIONS = ("advice_saves", "advice_running", "advice_restarts", "advice_silences")
MOST_NOISE_ROWS = 200_000
MOST_RANKS = 10_000_000
MOST_AT_RANKS = 1_000


def checked_risk(risk_ratio: float) -> float:
    """The risk, where it is one. Raises ValueError."""
    if not 0 < risk_ratio < 1:
        raise ValueError(f"a risk is a ratio between 0 and 1; it is {risk_ratio}")
    return risk_ratio


def checked_ranks(at_ranks: Iterable[int]) -> list[int]:
    """Numbers of ranks, where they are some that a job can have. Raises ValueError."""
    found = list(at_ranks)
    if len(found) > MOST_AT_RANKS or any(not 1 <= n <= MOST_RANKS for n in found):
        raise ValueError(f"numbers of ranks are from 1 to {MOST_RANKS:,}, at most {MOST_AT_RANKS:,} of them")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAdvice:
    """What a run's record says about how to run it.

    Attributes:
        run: its name.
        gpus, nodes, ranks: of its last attempt; nodes None where no rank said where it is.
        held_gpu_s: what it held so far.
        running_s: from first steps to ends of attempts, hangs at their ends left out.
        saves: how long saves block; None without any.
        interruptions: unplanned ends while it ran, and the time between them.
        node_mtbf_s: the time between them for one node.
        planned_stops, rollbacks, startup_failures: counted apart.
        restart_s: a restart, on average; None where none was seen. `restarts`: how many were.
        hang_s: from the last progress to the abort, over all interruptions; hangs: how many of them were hangs.
        typical_hang_s: the median hang; None without any.
        interval_s: useful work between two saves, on average; None without a save.
        interval: the advice; None where a save or an interruption is missing.
        interval_low_s, interval_high_s: the best intervals at the ends of the confidence interval of M. Without any
            interruption only the low one is known, and nothing speaks for saving more often than that.
        timeout: the advised collective timeout; None where there was no step.
        timeout_s: the one in use, as far as hangs show it; else PyTorch's default.
        saved_per_hang_gpu_s: what the advised one would save each time.
        noise: what slow steps cost at more ranks; None where ranks do not tell their own work, or too little of it.
    """

    run: str
    gpus: int | None
    nodes: int | None
    ranks: int | None
    held_gpu_s: float
    running_s: float
    saves: SaveTimes | None
    interruptions: Rate
    node_mtbf_s: float | None
    planned_stops: int
    rollbacks: int
    startup_failures: int
    restart_s: float | None
    restarts: int
    hang_s: float
    hangs: int
    typical_hang_s: float | None
    interval_s: float | None
    interval: IntervalAdvice | None
    interval_low_s: float | None
    interval_high_s: float | None
    timeout: TimeoutAdvice | None
    timeout_s: float
    saved_per_hang_gpu_s: float | None
    noise: Noise | None


def advise(
    con: duckdb.DuckDBPyConnection,
    run: str,
    *,
    now_ns: int | None = None,
    settings: Settings | None = None,
    risk_ratio: float = DEFAULT_RISK_RATIO,
    at_ranks: Sequence[int] = (),
) -> RunAdvice:
    """Advice from the record of one run.

    Args:
        con: a connection to a database with landed events; it may be read-only. Temporary tables are left in it.
        run: the run's name.
        now_ns: the collector's wall clock for a run that it hears from; None takes the run's last event.
        settings: the thresholds of the ledger.
        risk_ratio: false aborts that the timeout may cause in 30 days of running.
        at_ranks: numbers of ranks that the noise is wanted at, beside ten times the run's own.

    Raises:
        UnknownRun: no such run.
        ValueError: a risk that is not between 0 and 1.
    """
    build(con, run, now_ns=now_ns, settings=settings, early=Early.NONE)
    return advice_from_relations(con, run, risk_ratio=risk_ratio, at_ranks=at_ranks)


def advice_from_relations(
    con: duckdb.DuckDBPyConnection,
    run: str,
    *,
    risk_ratio: float = DEFAULT_RISK_RATIO,
    at_ranks: Sequence[int] = (),
) -> RunAdvice:
    """The same where the run's relations stand in the connection, made from all rows of ranks (`Early.NONE`)."""
    for name in RELATIONS:
        run_sql(con, name)
    running = rows(con, "SELECT * FROM gp_advice_running")[0]
    ends = rows(con, "SELECT * FROM gp_advice_restarts ORDER BY abort_ns, attempt")
    running_s = running["running_ns"] / NS_PER_S
    interruptions = rate(running["interruptions"], running_s)
    saves, interval_s = _saves(con)
    hangs_s = sorted(row["hang_ns"] / NS_PER_S for row in ends if row["hang_ns"] > 0)
    restarts_s = [row["restart_ns"] / NS_PER_S for row in ends if row["restart_ns"] is not None]
    restart_s = sum(restarts_s) / len(restarts_s) if restarts_s else None
    hang_s = sum(hangs_s) / len(ends) if ends else 0.0
    typical_hang_s = hangs_s[len(hangs_s) // 2] if hangs_s else None
    held_gpu_s = _held_gpu_s(con)
    timeout = _timeout(con, running_s, risk_ratio)
    timeout_s = DEFAULT_TIMEOUT_S if typical_hang_s is None else typical_hang_s
    shorter_s = None if timeout is None or not ends else sum(min(h, timeout.timeout_s) for h in hangs_s) / len(ends)

    def model(mtbf_s: float | None) -> CostModel | None:
        if saves is None or mtbf_s is None or saves.checkpoint_s <= 0:
            return None
        write_s = saves.write_s if saves.async_ratio > 0.5 else 0.0
        return CostModel(
            checkpoint_s=saves.checkpoint_s,
            mtbf_s=mtbf_s,
            restart_s=restart_s or 0.0,
            hang_s=hang_s,
            write_s=write_s,
        )

    expected, pessimist, optimist = model(interruptions.mean_s), model(interruptions.low_s), model(interruptions.high_s)
    gpus = None if running["gpus"] is None else int(running["gpus"])
    return RunAdvice(
        run=run,
        gpus=gpus,
        nodes=running["nodes"],
        ranks=running["ranks"],
        held_gpu_s=held_gpu_s,
        running_s=running_s,
        saves=saves,
        interruptions=interruptions,
        node_mtbf_s=_node_mtbf_s(running["node_ns"], running["interruptions"]),
        planned_stops=running["planned"],
        rollbacks=running["rollbacks"],
        startup_failures=running["startup_failures"],
        restart_s=restart_s,
        restarts=len(restarts_s),
        hang_s=hang_s,
        hangs=len(hangs_s),
        typical_hang_s=typical_hang_s,
        interval_s=interval_s,
        interval=None
        if expected is None
        else advise_interval(expected, actual_s=interval_s, held_gpu_s=held_gpu_s, shorter_hang_s=shorter_s),
        interval_low_s=None if pessimist is None else pessimist.optimal_s,
        interval_high_s=None if optimist is None else optimist.optimal_s,
        timeout=timeout,
        timeout_s=timeout_s,
        saved_per_hang_gpu_s=None
        if timeout is None or gpus is None
        else hang_cost_gpu_s(max(timeout_s - timeout.timeout_s, 0.0), gpus),
        noise=_noise(con, at_ranks),
    )


def _held_gpu_s(con: duckdb.DuckDBPyConnection) -> float:
    return float(con.execute("SELECT held_gpu_ns FROM gp_held").fetchall()[0][0]) / NS_PER_S


def _node_mtbf_s(node_ns: int | None, interruptions: int) -> float | None:
    return float(node_ns) / NS_PER_S / interruptions if node_ns and interruptions else None


def _saves(con: duckdb.DuckDBPyConnection) -> tuple[SaveTimes | None, float | None]:
    """How long saves block, and the useful work between them."""
    told = rows(con, "SELECT * FROM gp_advice_saves ORDER BY begin_ns, attempt")
    between = [row["work_ns"] / NS_PER_S for row in told if row["work_ns"]]
    saves = save_times(
        [row["blocking_ns"] / NS_PER_S for row in told],
        [row["write_ns"] / NS_PER_S if row["async"] else None for row in told],
    )
    return saves, sum(between) / len(between) if between else None


def _timeout(con: duckdb.DuckDBPyConnection, running_s: float, risk_ratio: float) -> TimeoutAdvice | None:
    kinds = con.execute("SELECT DISTINCT kind FROM gp_advice_silences ORDER BY kind").fetchall()
    query = "SELECT silence_ns FROM gp_advice_silences WHERE kind = $kind"
    silences = {kind: con.execute(query, {"kind": kind}).fetchnumpy()["silence_ns"] / NS_PER_S for (kind,) in kinds}
    stalls = con.execute("SELECT silence_ns + hang_ns FROM gp_advice_silences WHERE hang_ns > 0").fetchall()
    return advise_timeout(
        silences, running_s, risk_ratio=risk_ratio, recovered_stalls_s=[stall_ns / NS_PER_S for (stall_ns,) in stalls]
    )


def _noise(con: duckdb.DuckDBPyConnection, at_ranks: Sequence[int]) -> Noise | None:
    """The noise of a run whose ranks tell their own work."""
    run_sql(con, "advice_noise", {"most_rows": MOST_NOISE_ROWS})
    query = "SELECT dense_rank() OVER (ORDER BY place) - 1 AS step, dense_rank() OVER (ORDER BY rank) - 1 AS rank, "
    told = con.execute(query + "late_ns, window_ns FROM gp_advice_noise").fetchnumpy()
    step, rank = told["step"], told["rank"]
    if not step.size:
        return None
    late_s = np.full((int(step.max()) + 1, int(rank.max()) + 1), np.nan)
    late_s[step, rank] = told["late_ns"] / NS_PER_S
    step_s = np.zeros(late_s.shape[0])
    step_s[step] = told["window_ns"] / NS_PER_S
    return fit_noise(late_s, step_s, at_ranks)
