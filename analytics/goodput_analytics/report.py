"""The report of a run: every figure that the terminal, the JSON and the dashboard show, read off the relations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb

from goodput_analytics.advice import daly_s, young_s
from goodput_analytics.early import Early
from goodput_analytics.errors import LedgerError
from goodput_analytics.findings import NOTEWORTHY_RATIO, Evidence, find
from goodput_analytics.ledger import Ledger, build, launch_name, run_names
from goodput_analytics.model import (
    Attempt,
    Category,
    Checkpoints,
    Incident,
    Quality,
    Report,
    RunState,
    RunSummary,
    Straggler,
)
from goodput_analytics.relations import rows, run_sql
from goodput_analytics.settings import NS_PER_S, Settings
from goodput_analytics.suspects import Sign, missing_ranks, suspect_ranks

if TYPE_CHECKING:
    from goodput_analytics.step_changes import StepChange

LEAST_WINDOWS = 32
"""Windows below which nobody looks for a change of the step time."""
ONE_DEVICE_RATIO = 0.8
"""From this share of a node's slowest steps on its busiest device is told of alone."""

LOSS_STEPS = 1_000
"""So many steps before and after a resume losses are looked at."""
RELATIONS = (
    "totals",
    "attempt_list",
    "stragglers",
    "checkpoints",
    "at_risk",
    "queue_wait",
    "signs",
    "notes",
    "event_counts",
    "quality",
    "rejected_lines",
    "silent_ranks",
    "slowdowns",
    "long_spans",
    "resume_losses",
)


def _s(ns: Any) -> float:
    """Nanoseconds, or GPU-nanoseconds, as seconds: the one place that converts."""
    return float(ns) / NS_PER_S


def _s_or_none(ns: Any) -> float | None:
    return None if ns is None else _s(ns)


def report(
    con: duckdb.DuckDBPyConnection, run: str, *, now_ns: int | None = None, settings: Settings | None = None
) -> Report:
    """The breakdown of one run.

    Args:
        con: a connection to a database with landed events; it may be read-only. Temporary tables are left in it.
        run: the run's name.
        now_ns: the collector's wall clock for a run that it hears from; None takes the run's last event.
        settings: the thresholds.

    Raises:
        UnknownRun: no such run.
        LedgerError: the ledger does not balance, which is a defect of ours.
    """
    return _report(con, run, now_ns, settings or Settings(), Early.READ)[0]


def _report(
    con: duckdb.DuckDBPyConnection, run: str, now_ns: int | None, settings: Settings, early: Early
) -> tuple[Report, Ledger]:
    ledger = build(con, run, now_ns=now_ns, settings=settings, early=early)
    values = {
        "run_id": ledger.run_id,
        "durable_step": ledger.durable_step,
        "loss_tolerance_ratio": settings.loss_tolerance_ratio,
        **_steps_around_resumes(con),
    }
    for name in RELATIONS:
        run_sql(con, name, values)
    gpu_ns, phases_ns = _totals(con)
    allocated_ns = sum(gpu_ns.values())
    gpu_s = {category: _s(ns) for category, ns in gpu_ns.items()}
    phases_gpu_s = _phases(phases_ns)
    signs = _signs(con)
    incidents = _incidents(con, signs)
    checkpoints = _checkpoints(con)
    stragglers = _stragglers(con)
    quality = _quality(con, ledger, gpu_ns)
    evidence = Evidence(
        allocated_gpu_s=_s(allocated_ns),
        gpu_s=gpu_s,
        phases_gpu_s=phases_gpu_s,
        incidents=incidents,
        checkpoints=checkpoints,
        stragglers=stragglers,
        quality=quality,
        launches=ledger.launches,
        slowdown=next(iter(rows(con, "SELECT * FROM gp_slowdowns")), None),
        stillness=_stillness(con, signs),
        waited_for=_waited_for(con, ledger, settings, signs),
        long_spans=rows(con, "SELECT * FROM gp_long_spans ORDER BY longest_ns DESC"),
        resume_losses=rows(con, "SELECT * FROM gp_resume_losses"),
        step_change=_step_change(con, NOTEWORTHY_RATIO * _s(allocated_ns)),
        slow_node=_slow_node(con)
        if gpu_s[Category.STRAGGLER] >= NOTEWORTHY_RATIO * _s(allocated_ns) > 0 and _named_again(con)
        else None,
    )
    told = Report(
        run=run,
        state=_state(con, ledger, settings),
        as_of_ns=ledger.as_of_ns,
        allocated_gpu_s=_s(allocated_ns),
        goodput_ratio=float(gpu_ns[Category.PRODUCTIVE]) / float(allocated_ns) if allocated_ns else None,
        at_risk_gpu_s=_at_risk(con, ledger),
        gpu_s=gpu_s,
        phases_gpu_s=phases_gpu_s,
        queue_wait_s=_s_or_none(con.execute("SELECT wait_ns FROM gp_queue_wait").fetchall()[0][0]),
        attempts=_attempts(con, ledger),
        incidents=incidents,
        stragglers=stragglers,
        findings=find(evidence),
        checkpoints=checkpoints,
        quality=quality,
    )
    return told, ledger


def _steps_around_resumes(con: duckdb.DuckDBPyConnection) -> dict[str, int]:
    """Between which steps losses can tell how the run went on after its resumes; none where it never resumed."""
    low, high = 1, 0
    top: int | None = None
    told = con.execute("SELECT first_step, last_step FROM gp_lives WHERE first_step IS NOT NULL ORDER BY attempt, life")
    for first, last in told.fetchall():
        if top is not None:
            low = first - LOSS_STEPS if high < low else min(low, first - LOSS_STEPS)
            high = max(high, top, first + LOSS_STEPS)
        top = last if top is None else max(top, last)
    return {"low_step": low, "high_step": high}


def runs(
    con: duckdb.DuckDBPyConnection, *, now_ns: int | None = None, settings: Settings | None = None
) -> list[RunSummary]:
    """One line for every landed run, the one heard from last first."""
    found = []
    for run in run_names(con):
        launch = 1
        while True:
            name = launch_name(run, launch)
            try:
                one, ledger = _report(con, name, now_ns, settings or Settings(), Early.READ)
            except (LedgerError, duckdb.Error):
                # One run that cannot be computed must not hide the others; asking for it alone says why.
                found.append(_unknown(con, name))
                break
            found.append(_summary(con, one))
            launch += 1
            if launch > ledger.launches:
                break
    return sorted(found, key=lambda summary: -summary.last_event_ns)


def report_and_summary(
    con: duckdb.DuckDBPyConnection,
    run: str,
    *,
    now_ns: int | None = None,
    settings: Settings | None = None,
    early: Early = Early.READ,
) -> tuple[Report, RunSummary, int]:
    """The breakdown of one run, its line in the list of runs, and how many launches its name stands for.

    Arguments and errors are those of `report` and `build`.
    """
    one, ledger = _report(con, run, now_ns, settings or Settings(), early)
    return one, _summary(con, one), ledger.launches


def _summary(con: duckdb.DuckDBPyConnection, one: Report) -> RunSummary:
    """The line of the run whose relations stand in the connection."""
    seen = con.execute(
        "SELECT least((SELECT min(ts_ns) FROM gp_events), (SELECT min(begin_ns) FROM gp_window_parts)), "
        "greatest((SELECT max(ts_ns) FROM gp_events), (SELECT max(end_ns) FROM gp_window_parts))"
    ).fetchall()[0]
    return RunSummary(
        run=one.run,
        state=one.state,
        attempts=len(one.attempts),
        first_event_ns=int(seen[0] or 0),
        last_event_ns=int(seen[1] or 0),
        allocated_gpu_s=one.allocated_gpu_s,
        goodput_ratio=one.goodput_ratio,
    )


def _unknown(con: duckdb.DuckDBPyConnection, run: str) -> RunSummary:
    """A run whose ledger could not be made."""
    seen = con.execute(
        "SELECT min(ts_ns), max(ts_ns) FROM ev_start JOIN shown_runs USING (run_id) WHERE run = $run", {"run": run}
    ).fetchall()[0]
    return RunSummary(
        run=run,
        state=None,
        attempts=0,
        first_event_ns=int(seen[0] or 0),
        last_event_ns=int(seen[1] or 0),
        allocated_gpu_s=None,
        goodput_ratio=None,
    )


def _totals(con: duckdb.DuckDBPyConnection) -> tuple[dict[str, int], dict[str, dict[str, int]]]:
    gpu_ns = {category.value: 0 for category in Category}
    phases: dict[str, dict[str, int]] = {}
    for row in rows(con, "SELECT category, phase, gpu_ns FROM gp_totals ORDER BY category, phase"):
        gpu_ns[row["category"]] += int(row["gpu_ns"])
        if row["phase"] is not None:
            phases.setdefault(row["category"], {})[row["phase"]] = int(row["gpu_ns"])
    return gpu_ns, phases


def _phases(phases_ns: dict[str, dict[str, int]]) -> dict[str, dict[str, float]]:
    return {
        category.value: {phase: _s(ns) for phase, ns in phases_ns[category].items()}
        for category in Category
        if category in phases_ns
    }


def _attempts(con: duckdb.DuckDBPyConnection, ledger: Ledger) -> tuple[Attempt, ...]:
    return tuple(
        Attempt(**row, resume_step=ledger.bases.get((row["attempt"], 0)))
        for row in rows(con, "SELECT * FROM gp_attempt_list ORDER BY attempt")
    )


def _signs(con: duckdb.DuckDBPyConnection) -> dict[int, list[Sign]]:
    signs: dict[int, list[Sign]] = {}
    for row in rows(con, "SELECT * FROM gp_signs"):
        signs.setdefault(row["attempt"], []).append(Sign(**row))
    return signs


def _incidents(con: duckdb.DuckDBPyConnection, signs: dict[int, list[Sign]]) -> tuple[Incident, ...]:
    return tuple(
        Incident(
            attempt=row["attempt"],
            cause=row["cause"],
            last_progress_ns=row["last_progress_ns"],
            abort_ns=row["abort_ns"],
            detection_s=_s(row["detection_ns"]),
            recovered_ns=row["recovered_ns"],
            lost_steps=row["lost_steps"],
            hang_gpu_s=_s(row["hang_gpu_ns"]),
            rework_gpu_s=_s(row["rework_gpu_ns"]),
            restart_gpu_s=_s(row["restart_gpu_ns"]),
            suspect_ranks=()
            if row["cause"] == "rollback"
            else suspect_ranks(row["cause"], signs.get(row["attempt"], [])),
        )
        for row in rows(con, "SELECT * FROM gp_incidents ORDER BY abort_ns, attempt, life, inside DESC")
    )


def _stragglers(con: duckdb.DuckDBPyConnection) -> tuple[Straggler, ...]:
    return tuple(
        Straggler(
            rank=row["rank"],
            node=row["node"],
            loss_gpu_s=_s(row["loss_gpu_ns"]),
            slowest_steps=row["slowest_steps"],
            slowdown_ratio=row["slowdown_ratio"],
        )
        for row in rows(con, "SELECT * FROM gp_stragglers ORDER BY loss_gpu_ns DESC, rank")
    )


def _checkpoints(con: duckdb.DuckDBPyConnection) -> Checkpoints:
    row = rows(con, "SELECT * FROM gp_checkpoints")[0]
    blocking_s = _s_or_none(row["mean_blocking_ns"])
    unplanned, running_ns = row["interruptions"], row["running_ns"]
    mtbf_s = _s(running_ns) / unplanned if unplanned and running_ns else None
    known = blocking_s is not None and mtbf_s is not None and blocking_s > 0
    return Checkpoints(
        count=row["count"],
        failed=row["failed"],
        mean_blocking_s=blocking_s,
        mean_interval_s=_s_or_none(row["mean_interval_ns"]),
        mtbf_s=mtbf_s,
        young_s=young_s(blocking_s, mtbf_s) if known and blocking_s is not None and mtbf_s is not None else None,
        daly_s=daly_s(blocking_s, mtbf_s) if known and blocking_s is not None and mtbf_s is not None else None,
    )


def _quality(con: duckdb.DuckDBPyConnection, ledger: Ledger, gpu_ns: dict[str, int]) -> Quality:
    row = rows(con, "SELECT * FROM gp_quality")[0]
    assumed_ns = int(row.pop("assumed_gap_gpu_ns")) + (gpu_ns[Category.PRODUCTIVE] if ledger.kept_unreported else 0)
    return Quality(
        **{key: value for key, value in row.items() if key != "max_skew_ns"},
        max_skew_s=_s(row["max_skew_ns"]),
        rejected={r["reason"]: r["lines"] for r in rows(con, "SELECT * FROM gp_rejected_lines")},
        silent_ranks=tuple(r["rank"] for r in rows(con, "SELECT rank FROM gp_silent_ranks ORDER BY rank")),
        assumed_gpu_s=_s(assumed_ns),
    )


def _at_risk(con: duckdb.DuckDBPyConnection, ledger: Ledger) -> float | None:
    """What would be lost if the run died now; None where no checkpoint was ever reported, 0 when it has ended."""
    if not ledger.reported:
        return None
    live = con.execute("SELECT bool_or(outcome = 'live') FROM gp_attempts").fetchall()[0][0]
    return _s(con.execute("SELECT gpu_ns FROM gp_at_risk").fetchall()[0][0]) if live else 0.0


def _stillness(con: duckdb.DuckDBPyConnection, signs: dict[int, list[Sign]]) -> dict[str, Any] | None:
    """What a run that hangs now is doing, since when, and who is missing; None for one that does not."""
    found = rows(
        con,
        "SELECT attempt, t.activity, t.mark_ns, t.still_ns FROM gp_tails t JOIN gp_attempts a USING (attempt) "
        "WHERE a.outcome = 'live' AND t.hung AND NOT t.paused ORDER BY attempt DESC LIMIT 1",
    )
    if not found:
        return None
    row = found[0]
    return {
        "activity": row["activity"],
        "mark_ns": row["mark_ns"],
        "still_s": _s(row["still_ns"]),
        "missing": missing_ranks(signs.get(row["attempt"], [])),
    }


def _waited_for(
    con: duckdb.DuckDBPyConnection, ledger: Ledger, settings: Settings, signs: dict[int, list[Sign]]
) -> dict[str, Any] | None:
    """Who has not come to where most others wait, in a live attempt that has made no step; None where nobody waits, or
    not for long."""
    query = (
        "SELECT a.attempt, a.gpus FROM gp_attempts a ANTI JOIN gp_tails t ON t.attempt = a.attempt "
        "WHERE a.outcome = 'live' ORDER BY a.attempt DESC LIMIT 1"
    )
    for attempt, gpus in con.execute(query).fetchall():
        missing = missing_ranks(signs.get(attempt, []))
        waited_ns = ledger.as_of_ns - missing.since_ns
        if missing.ranks and missing.since_ns and waited_ns > settings.hang_floor_ns:
            return {"missing": missing, "waited_s": _s(waited_ns), "gpu_s": _s(waited_ns * gpus)}
    return None


def _step_change(con: duckdb.DuckDBPyConnection, floor_gpu_s: float) -> StepChange | None:
    """The change to longer steps that cost most, if it cost that much. Where the number of ranks changed with it, a
    step is another thing, and it is none."""
    if con.execute("SELECT count(*) FROM gp_window_parts").fetchall()[0][0] < LEAST_WINDOWS:
        return None
    # Only here: a short run's report needs no numpy.
    from goodput_analytics.step_changes import find_changes, name_slowest

    found = find_changes(con)
    begun: list[int | None] = [None, *(change.since_ns for change in found)]
    slower = [
        (change, from_ns)
        for change, from_ns in zip(found, begun, strict=False)
        if change.ranks == change.ranks_before and change.extra_gpu_s >= floor_gpu_s and change.change_ratio > 0
    ]
    if not slower:
        return None
    change, from_ns = max(slower, key=lambda one: one[0].extra_gpu_s)
    return name_slowest(con, change, from_ns)


def _named_again(con: duckdb.DuckDBPyConnection) -> bool:
    """Whether ranks of one node were named in more than one attempt."""
    query = (
        "SELECT 1 FROM gp_named_ranks n JOIN gp_members m ON m.attempt = n.attempt AND m.rank = n.rank "
        "WHERE m.node IS NOT NULL GROUP BY m.node HAVING count(DISTINCT n.attempt) > 1 LIMIT 1"
    )
    return bool(con.execute(query).fetchall())


def _slow_node(con: duckdb.DuckDBPyConnection) -> dict[str, Any] | None:
    """The node that was the slowest in more than one attempt and cost most; `one_device`: the device of it that was
    nearly always the one."""
    from goodput_analytics.slow_suspects import steady_suspects

    told: list[dict[str, Any]] = steady_suspects(con, ranks=False).to_pylist()
    nodes = [row for row in told if row["grain"] == "node" and row["lasting"] and row["attempts"] > 1]
    if not nodes:
        return None
    devices = [row["device"] for row in told if row["grain"] == "device" and row["node"] == nodes[0]["node"]]
    alone = devices and (nodes[0]["one_device_ratio"] or 0) >= ONE_DEVICE_RATIO
    return nodes[0] | {"one_device": devices[0] if alone else None}


def _state(con: duckdb.DuckDBPyConnection, ledger: Ledger, settings: Settings) -> RunState:
    found = rows(
        con,
        "SELECT a.outcome, a.process_ns, t.attempt IS NOT NULL AS stepped, t.hung, t.paused, "
        "(SELECT max(last_event_ns) FROM gp_attempts) AS last_event_ns "
        "FROM gp_attempts a LEFT JOIN gp_tails t USING (attempt) ORDER BY a.attempt DESC LIMIT 1",
    )
    if not found:
        # Nobody has started yet: of such a run only a scheduler or an agent can be heard.
        heard_ns = con.execute("SELECT ts_ns FROM gp_others").fetchall()[0][0]
        silent_ns = ledger.as_of_ns - (ledger.as_of_ns if heard_ns is None else heard_ns)
        return RunState.LOST if ledger.clocked and silent_ns > settings.lost_ns else RunState.RUNNING
    last = found[0]
    if last["outcome"] == "finished":
        return RunState.FINISHED
    if last["outcome"] == "aborted":
        return RunState.FAILED
    if ledger.clocked and ledger.as_of_ns - last["last_event_ns"] > settings.lost_ns:
        return RunState.LOST
    if not last["stepped"]:
        return RunState.HUNG if ledger.as_of_ns - last["process_ns"] > settings.stepless_ns else RunState.RUNNING
    if last["hung"]:
        return RunState.PAUSED if last["paused"] else RunState.HUNG
    return RunState.RUNNING
