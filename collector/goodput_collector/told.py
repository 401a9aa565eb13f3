"""What is told of one run: its report, its line in the list of runs, and what preempting it would cost."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb

from goodput_analytics import Early, Report, RunState, RunSummary, Settings, report_and_summary
from goodput_collector.database import one_row
from goodput_collector.metrics_figures import RunFigures, read_figures

_NS_PER_S = 1_000_000_000
_AT_WORK = (RunState.RUNNING, RunState.HUNG, RunState.PAUSED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A run that could be preempted, and what that would cost.

    Attributes:
        run: its name.
        state: what it does now.
        at_risk_gpu_s: GPU-seconds since its last durable checkpoint; None where it never reported one.
        since_durable_s: seconds since that checkpoint became durable; None where there is none.
        gpus: GPUs that it holds.
    """

    run: str
    state: RunState
    at_risk_gpu_s: float | None
    since_durable_s: float | None
    gpus: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What is told of a run.

    Attributes:
        report, summary: as the analytics tell them.
        launches: how many launches ran side by side under its name.
        gpus: GPUs that it holds now, None where it holds none.
        durable_ns: when its latest checkpoint became durable.
        figures: what /metrics tells beside the report.
    """

    report: Report
    summary: RunSummary
    launches: int
    gpus: int | None
    durable_ns: int | None
    figures: RunFigures

    def candidate(self, now_ns: int) -> Candidate | None:
        """The run as one that could be preempted; None for one that is not at work."""
        if self.report.state not in _AT_WORK:
            return None
        since_s = None if self.durable_ns is None else max(now_ns - self.durable_ns, 0) / _NS_PER_S
        return Candidate(
            run=self.report.run,
            state=self.report.state,
            at_risk_gpu_s=self.report.at_risk_gpu_s,
            since_durable_s=since_s,
            gpus=self.gpus,
        )


def tell(
    con: duckdb.DuckDBPyConnection,
    run: str,
    now_ns: int | None,
    settings: Settings,
    windows_end_ns: int = 0,
    *,
    early: Early = Early.READ,
) -> Told:
    """Computes it; the run's relations stand in the connection afterwards. Raises UnknownRun or LedgerError.

    The windows of /metrics end at `windows_end_ns`, but not before what the report calls now. `early`: what is done
    with steps that are kept reduced.
    """
    report, summary, launches = report_and_summary(con, run, now_ns=now_ns, settings=settings, early=early)
    gpus = one_row(con, "SELECT max_by(gpus, attempt) FROM gp_attempts WHERE outcome = 'live'")
    durable = one_row(con, "SELECT max(durable_ns) FROM gp_saves")
    return Told(
        report=report,
        summary=summary,
        launches=launches,
        gpus=None if gpus is None else gpus[0],
        durable_ns=None if durable is None else durable[0],
        figures=read_figures(con, max(windows_end_ns, report.as_of_ns)),
    )


def cheapest_first(candidates: list[Candidate]) -> list[Candidate]:
    """In order of what preempting would cost; those whose price is not known come last."""
    return sorted(candidates, key=lambda one: (one.at_risk_gpu_s is None, one.at_risk_gpu_s or 0.0, one.run))
