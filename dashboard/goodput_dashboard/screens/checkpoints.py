"""Saves: what they cost, what they protect, and how often to save."""

from __future__ import annotations

import streamlit as st

from goodput_analytics import Report
from goodput_analytics.saving import failure_rate, saving
from goodput_dashboard import charts, context, parts, words
from goodput_dashboard.figures import duration, moment, percent, unit_for

POINTS = 400
MOST_SAVES = 2_000


def body(report: Report) -> None:
    """The page below the run's head."""
    saves = report.checkpoints
    unit = unit_for(report.allocated_gpu_s)
    with st.grid(min_column_width=150):
        st.metric("Saves", f"{saves.count:,}", border=True)
        st.metric("Failed or never durable", f"{saves.failed:,}", border=True)
        st.metric("Each blocks", duration(saves.mean_blocking_s), border=True)
        st.metric("One every", duration(saves.mean_interval_s), border=True)
        st.metric(f"Blocked in all, {unit.short}", unit.number(report.gpu_s["checkpoint"]), border=True,
                  help=words.CATEGORIES["checkpoint"])  # fmt: skip
        st.metric(f"At risk now, {unit.short}", unit.number(report.at_risk_gpu_s), help=words.AT_RISK, border=True)
    if saves.count == 0 and saves.failed == 0:
        st.info(
            "No save was reported, so nobody knows what a failure would lose. Wrap the save in "
            "`with rec.checkpoint(step):`, and it is seen."
        )
        return
    _interval(report)
    rows = parts.rows("saves", report, most=MOST_SAVES)
    zone = context.zone()
    if any(row["begin_ns"] is not None for row in rows):
        st.markdown("#### How long each save blocks")
        parts.chart(charts.blocking(rows, zone=zone, revision=report.run), "blocking", "Seconds that each save blocked")
    risk = parts.rows("view_at_risk", report, most=POINTS)
    if risk:
        st.markdown("#### Work at risk over time", help=words.AT_RISK)
        figure = charts.lines(risk, "at_risk_gpu_s", zone=zone, title=unit.short, revision=report.run, scale=unit.gpu_s)
        parts.chart(figure, "risk", "Work that a failure would have lost, over time")
    if rows:
        st.markdown("#### All saves")
        parts.table(
            [
                {
                    "attempt": row["attempt"],
                    "step": row["step"],
                    "began": None if row["begin_ns"] is None else moment(row["begin_ns"], zone),
                    "blocked, s": row["blocking_ns"] / 1e9,
                    "in the background": row["async"],
                    "durable": None if row["durable_ns"] is None else moment(row["durable_ns"], zone),
                    "failed": row["failed"],
                }
                for row in rows
            ],
            "saves",
            alt="The run's saves",
            config={
                "began": st.column_config.DatetimeColumn(format="YYYY-MM-DD HH:mm:ss", help=parts.zone_name()),
                "durable": st.column_config.DatetimeColumn(format="YYYY-MM-DD HH:mm:ss", help=parts.zone_name()),
                "blocked, s": st.column_config.NumberColumn(format="%,.2f"),
                "step": st.column_config.NumberColumn(format="%,d"),
            },
        )


def _interval(report: Report) -> None:
    """How often to save, by the run's own saves and failures."""
    unit = unit_for(report.allocated_gpu_s)
    saves = report.checkpoints
    observed = failure_rate(report)
    st.markdown("#### How often to save")
    if observed is None:
        st.info("No interval can be advised: that takes a save and an unplanned failure, and there was none of these.")
        return
    sure = "" if observed.low_s is None or observed.high_s is None else (
        f" With so few the true time between them lies anywhere from {duration(observed.low_s)} to "
        f"{duration(observed.high_s)} ({observed.confidence_ratio:.0%} sure)."
    )  # fmt: skip
    st.markdown(
        f"{observed.count:,} unplanned {'failure' if observed.count == 1 else 'failures'}: one in "
        f"**{duration(saves.mtbf_s)}** of running.{sure}",
        help=words.MTBF,
    )
    curve = saving(report)
    with st.grid(min_column_width=150):
        st.metric("Young advises", duration(saves.young_s), help=words.YOUNG, border=True)
        st.metric("Daly advises", duration(saves.daly_s), help=words.DALY, border=True)
        if curve is not None:
            st.metric("The best by the model", duration(curve.advice.optimal_s), border=True,
                      help="The minimum of the curve below: saves, rework, restarts and hangs together.")  # fmt: skip
            st.metric(f"It would have saved, {unit.short}", unit.number(curve.saved_gpu_s), border=True)
    if curve is None:
        return
    parts.chart(charts.saving_curve(curve), "saving", "Expected loss over the interval between saves")
    low, high = duration(curve.advice.flat_low_s), duration(curve.advice.flat_high_s)
    used = curve.advice.at_actual
    now = "" if used is None else f" The interval in use is expected to lose {percent(used.waste_ratio)}."
    st.caption(f"From {low} to {high} it costs less than one point of goodput more than at the best.{now}")


parts.page(body, context.SELDOM_S)
