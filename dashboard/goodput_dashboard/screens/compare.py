"""Runs side by side, such as before and after a change."""

from __future__ import annotations

from typing import Any

import streamlit as st

from goodput_analytics import Report, UnknownRun
from goodput_analytics.comparison import compare
from goodput_analytics.fleet import lost_gpu_s
from goodput_dashboard import charts, context, parts, words
from goodput_dashboard.figures import duration, percent, plain, unit_for

MOST_RUNS = 6
VERDICTS = {"better": st.success, "worse": st.error, "same": st.info, "unknown": st.info}


def show() -> None:
    """The page."""
    st.markdown("### Compare")
    shelved = context.shelf().look(wait_s=1.5)
    names = context.names(shelved)
    names += [name for name in st.query_params.get_all("runs") if name not in names]
    if not names:
        parts.nothing_yet()
        return
    chosen = st.multiselect(
        "Runs, the one before the change first", names, key="runs", bind="query-params", max_selections=MOST_RUNS
    )
    if len(chosen) < 2:
        st.info("Choose two runs or more; the first is what the others are held against.")
        return
    reports = [report for report in map(_report, chosen) if report is not None]
    if len(reports) < 2:
        return
    for other in reports[1:]:
        told = compare(reports[0], other)
        reasons = "".join(f"\n- {plain(one)}" for one in told.evidence)
        VERDICTS[told.verdict](f"**{plain(told.says)}**{reasons}")
    _figures(reports)
    st.markdown("#### Of each GPU-hour")
    shares = [
        (one.run, {c: v / one.allocated_gpu_s for c, v in one.gpu_s.items()})
        for one in reports
        if one.allocated_gpu_s > 0
    ]
    parts.chart(charts.by_category(shares), "compared", "Shares of GPU time by category, run beside run")
    times = [(one.run, row[0]) for one in reports if (row := parts.rows("view_step_times", one))]
    if times:
        st.markdown("#### How long steps take", help="Whiskers: 5 and 95 of 100 steps. First steps are left out.")
        parts.chart(charts.step_times(times), "step_times", "Step times, run beside run")
    st.caption("`goodput compare RUN RUN` prints the same verdict.")


def _report(run: str) -> Report | None:
    try:
        told = context.source().report(run)
    except UnknownRun:
        st.warning(f"There is no run named **{plain(run)}** here.")
        return None
    parts.trouble(told)
    return told.value


def _figures(reports: list[Report]) -> None:
    """The figures of each run in a column of its own."""
    lines: dict[str, list[str]] = {
        "state": [one.state.value for one in reports],
        "goodput": [percent(one.goodput_ratio) for one in reports],
        "held": [unit_for(one.allocated_gpu_s).amount(one.allocated_gpu_s) for one in reports],
        "lost": [unit_for(one.allocated_gpu_s).amount(lost_gpu_s(one)) for one in reports],
        "attempts": [f"{len(one.attempts):,}" for one in reports],
        "incidents": [f"{len(one.incidents):,}" for one in reports],
        "startup": [_share(one, "startup") for one in reports],
        "saves": [f"{one.checkpoints.count:,}" for one in reports],
        "each save blocks": [duration(one.checkpoints.mean_blocking_s) for one in reports],
        "a save every": [duration(one.checkpoints.mean_interval_s) for one in reports],
        "time between failures": [duration(one.checkpoints.mtbf_s) for one in reports],
    }
    rows: list[dict[str, Any]] = [
        {"figure": name, **{one.run: value for one, value in zip(reports, values, strict=True)}}
        for name, values in lines.items()
    ]
    # As wide as its longest name.
    figure = st.column_config.TextColumn(pinned=True, width=160)
    parts.table(rows, "figures", alt="The figures of each run", config={"figure": figure})
    st.caption(f"Goodput: {words.GOODPUT}")


def _share(report: Report, category: str) -> str:
    return percent(report.gpu_s[category] / report.allocated_gpu_s) if report.allocated_gpu_s > 0 else "unknown"


show()
