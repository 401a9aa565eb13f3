"""One run: where its GPU time went, when, and what to do about it."""

from __future__ import annotations

from typing import Any

import streamlit as st

from goodput_analytics import Report
from goodput_analytics.fleet import lost_gpu_s
from goodput_dashboard import charts, context, parts, words
from goodput_dashboard.figures import counted, duration, moment, percent, plain, unit_for, when
from goodput_dashboard.html_report import html_report

STRETCHES = 480
WINDOWS = 48
MOST_FINDINGS = 3


def body(report: Report) -> None:
    """The page below the run's head."""
    if report.allocated_gpu_s <= 0:
        st.info("No GPU time was held yet: the run has said that it starts, and nothing more.")
        return
    unit = unit_for(report.allocated_gpu_s)
    with st.grid(min_column_width=150):
        st.metric("Goodput", percent(report.goodput_ratio), help=words.GOODPUT, border=True)
        st.metric(f"Held, {unit.short}", unit.number(report.allocated_gpu_s), help=words.HELD, border=True)
        st.metric(f"Lost, {unit.short}", unit.number(lost_gpu_s(report)), help=words.LOST, border=True)
        st.metric(f"At risk now, {unit.short}", unit.number(report.at_risk_gpu_s), help=words.AT_RISK, border=True)
        st.metric("Waited in the queue", duration(report.queue_wait_s), help=words.QUEUE, border=True)
    left, right = st.columns([3, 2], gap="medium")
    with left:
        st.markdown("#### From held to productive")
        parts.chart(charts.breakdown(report, unit), "breakdown", charts.alt_of_breakdown(report, unit))
    with right:
        st.markdown("#### What to do")
        _findings(report)
    _timeline(report)
    _over_time(report)
    _attempts(report)
    st.markdown("#### Take it along")
    st.download_button(
        "Report to mail (HTML)",
        data=lambda: html_report(report, parts.rows("view_timeline", report, most=STRETCHES)).encode(),
        file_name="goodput-report.html",
        mime="text/html",
        key="html",
        on_click="ignore",
        icon=":material/mail:",
        help="One file without anything to load from elsewhere. `goodput report RUN --html FILE` makes the same.",
    )


def _findings(report: Report) -> None:
    if not report.findings:
        st.caption("Nothing stands out.")
    for one in report.findings[:MOST_FINDINGS]:
        st.markdown(f"**{plain(one.says)}**  \n{plain(one.evidence)}  \n*Next:* {plain(one.next)}")
    rest = report.findings[MOST_FINDINGS:]
    if rest:
        with st.expander(f"{len(rest)} more"):
            for one in rest:
                st.markdown(f"**{plain(one.says)}**  \n{plain(one.evidence)}  \n*Next:* {plain(one.next)}")


def _timeline(report: Report) -> None:
    zone = context.zone()
    from_ns, to_ns = _stretch()
    rows = parts.rows("view_timeline", report, from_ns=from_ns, to_ns=to_ns, most=STRETCHES)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        st.markdown("#### Timeline", width="content")
        if from_ns is not None:
            st.button(
                "Whole run", key="whole", on_click=_forget_stretch, type="tertiary", icon=":material/zoom_out_map:"
            )
    if not rows:
        st.caption("Nothing was held in this stretch.")
        return
    # Another stretch is another picture, and a zoom into the old one is no use in it.
    figure = charts.timeline(
        rows, zone=zone, revision=f"{report.run}{from_ns}", attempts=report.attempts, incidents=report.incidents
    )
    stretch = duration((rows[0]["end_ns"] - rows[0]["start_ns"]) / 1e9)
    event = parts.chart(figure, "timeline", charts.alt_of_timeline(report, zone), select=True)
    st.caption(
        f"The height is GPUs, so an area is GPU time. Each stretch is {stretch}. "
        "Drag across to look closer: it is read again in more detail. "
        + (f"Shown: {when(from_ns, zone)} to {when(to_ns, zone)}." if from_ns is not None else "")
    )
    _choose_stretch(event, rows)


def _stretch() -> tuple[int | None, int | None]:
    """The stretch of time that the address names, in nanoseconds."""
    try:
        from_ns, to_ns = int(st.query_params["from"]), int(st.query_params["to"])
    except (KeyError, ValueError):
        return None, None
    return (from_ns, to_ns) if 0 < from_ns < to_ns < 2**62 else (None, None)


def _forget_stretch() -> None:
    for key in ("from", "to"):
        st.query_params.pop(key, None)


def _choose_stretch(event: Any, rows: list[dict[str, Any]]) -> None:
    """Takes what was dragged over as the stretch to look at."""
    points = event.selection.points if event is not None else []
    starts = sorted({row["start_ns"] for row in rows})
    ends = {row["start_ns"]: row["end_ns"] for row in rows}
    chosen = [
        starts[point["point_index"]] for point in points if point.get("text") and point["point_index"] < len(starts)
    ]
    if not chosen:
        return
    from_ns, to_ns = min(chosen), ends[max(chosen)]
    if (str(from_ns), str(to_ns)) != (st.query_params.get("from"), st.query_params.get("to")) and len(
        set(chosen)
    ) < len(starts):
        st.query_params["from"], st.query_params["to"] = str(from_ns), str(to_ns)
        st.rerun(scope="fragment")


def _over_time(report: Report) -> None:
    st.markdown("#### Goodput over time")
    from_ns, to_ns = _stretch()
    rows = parts.rows("view_timeline", report, from_ns=from_ns, to_ns=to_ns, most=WINDOWS)
    if not rows:
        return
    figure = charts.timeline(rows, zone=context.zone(), revision=report.run, shares=True, height=340)
    event = parts.chart(figure, "over_time", "Shares of GPU time by category, window by window", select=True)
    _choose_stretch(event, rows)


def _attempts(report: Report) -> None:
    zone = context.zone()
    st.markdown("#### Attempts", help="One attempt is one life of all ranks, numbered from 0.")
    parts.table(
        [
            {
                "attempt": one.attempt,
                "ended": one.end_cause,
                "start": moment(one.start_ns, zone),
                "end": None if one.end_ns is None else moment(one.end_ns, zone),
                "ranks": one.world_size,
                "resumed at": one.resume_step,
                "first step": one.first_step,
                "last step": one.last_step,
                "job": one.job,
            }
            for one in report.attempts
        ],
        "attempts",
        alt=f"{counted(len(report.attempts), 'attempt')} with start, end and cause",
        config={
            "start": st.column_config.DatetimeColumn(format="YYYY-MM-DD HH:mm:ss", help=parts.zone_name()),
            "end": st.column_config.DatetimeColumn(format="YYYY-MM-DD HH:mm:ss", help=parts.zone_name()),
        },
    )


parts.page(body)
