"""What happened: each interruption, its cause and its price, and who stopped first."""

from __future__ import annotations

from typing import Any

import streamlit as st

from goodput_analytics import Incident, Report
from goodput_analytics.fleet import PLANNED_CAUSES, price_gpu_s
from goodput_dashboard import charts, context, noting, parts, words
from goodput_dashboard.figures import Unit, counted, duration, moment, percent, plain, unit_for, when

AROUND_RATIO = 0.5
LEAST_AROUND_NS = 30_000_000_000


def body(report: Report) -> None:
    """The page below the run's head."""
    if not report.incidents:
        st.success("No incident: no attempt ended without finishing, and nothing was rolled back.")
        return
    unit = unit_for(report.allocated_gpu_s)
    said = noting.said(report)
    zone = context.zone()
    with st.grid(min_column_width=150):
        st.metric("Incidents", f"{len(report.incidents):,}", border=True)
        for cause, help_ in words.CAUSES.items():
            of_it = sum(1 for one in report.incidents if one.cause == cause)
            if of_it:
                st.metric(cause, f"{of_it:,}", help=help_, border=True)
    parts.table(
        [
            {
                "attempt": one.attempt,
                "cause": one.cause,
                "kind": "planned" if one.cause in PLANNED_CAUSES else "unplanned",
                "said cause": (said.get((one.attempt, one.abort_ns)) or {}).get("said_cause"),
                "note": (said.get((one.attempt, one.abort_ns)) or {}).get("note"),
                "ended": moment(one.abort_ns, zone),
                "found in": duration(one.detection_s),
                "lost steps": one.lost_steps,
                "hang": unit.value(one.hang_gpu_s),
                "rework": unit.value(one.rework_gpu_s),
                "restart": unit.value(one.restart_gpu_s),
                unit.short: unit.value(price_gpu_s(one)),
                "suspected ranks": ", ".join(map(str, one.suspect_ranks[:16])),
            }
            for one in report.incidents
        ],
        "incidents",
        alt=f"{counted(len(report.incidents), 'incident')} with cause and price",
        config={
            "ended": st.column_config.DatetimeColumn(format="YYYY-MM-DD HH:mm:ss", help=parts.zone_name()),
            "said cause": st.column_config.TextColumn(help=words.SAID_CAUSE) if said else None,
            "note": st.column_config.TextColumn() if said else None,
            "found in": st.column_config.TextColumn(help=words.DETECTION),
            "lost steps": st.column_config.NumberColumn(format="%,d", help=words.LOST_STEPS),
            **{n: st.column_config.NumberColumn(format=unit.column) for n in ("hang", "rework", "restart")},
            unit.short: st.column_config.NumberColumn(format=unit.column, help=words.PRICE),
        },
    )
    numbers = [str(i) for i in range(len(report.incidents))]
    dearest = max(range(len(report.incidents)), key=lambda i: price_gpu_s(report.incidents[i]))
    chosen = st.selectbox(
        "Look into",
        numbers,
        index=dearest,
        key="incident",
        bind="query-params",
        format_func=lambda i: _label(report.incidents[int(i)], unit) if i in numbers else i,
    )
    if chosen in numbers:
        one = report.incidents[int(chosen)]
        _incident(report, one, unit, said.get((one.attempt, one.abort_ns)))


def _label(one: Incident, unit: Unit) -> str:
    at = when(one.abort_ns, context.zone())
    return f"{one.cause} of attempt {one.attempt}, {at}, {unit.amount(price_gpu_s(one))}"


def _incident(report: Report, one: Incident, unit: Unit, told: dict[str, Any] | None) -> None:
    st.markdown(f"#### {one.cause.capitalize()} of attempt {one.attempt}", help=words.CAUSES.get(one.cause))
    with st.grid(min_column_width=140):
        st.metric(f"Price, {unit.short}", unit.number(price_gpu_s(one)), help=words.PRICE, border=True)
        st.metric("Found in", duration(one.detection_s), help=words.DETECTION, border=True)
        st.metric(f"Hang, {unit.short}", unit.number(one.hang_gpu_s), border=True)
        st.metric(f"Rework, {unit.short}", unit.number(one.rework_gpu_s), border=True)
        st.metric(f"Restart, {unit.short}", unit.number(one.restart_gpu_s), border=True)
        st.metric("Lost steps", f"{one.lost_steps:,}", help=words.LOST_STEPS, border=True)
    _would_have_saved(one, unit)
    noting.note(report, one, told)
    _endings(report, one)
    _who(report, one)
    _around(report, one)


def _would_have_saved(one: Incident, unit: Unit) -> None:
    """Which of the three parts of the price is the largest, and what makes that part smaller."""
    ways = sorted(
        [
            (one.hang_gpu_s, "a shorter timeout: the hang before the abort"),
            (one.rework_gpu_s, "a closer checkpoint: the work done again"),
            (one.restart_gpu_s, "a faster restart: the way back to the first step"),
        ],
        reverse=True,
    )
    if ways[0][0] <= 0:
        return
    share = percent(ways[0][0] / price_gpu_s(one))
    st.markdown(f"What would have saved most is {ways[0][1]} cost {unit.amount(ways[0][0])}, {share} of the price.")


def _endings(report: Report, one: Incident) -> None:
    """What the ranks said at their end, and what was seen of it."""
    if one.cause == "rollback":
        return
    gone = [row for row in parts.rows("view_endings", report, most=20_000) if row["attempt"] == one.attempt]
    if not gone:
        st.caption("Nobody saw its ranks end, and none said a word.")
        return
    zone = context.zone()
    first = gone[0]
    exits = [
        "out of memory" if first["oom"] else "",
        f"signal {first['signal']}" if first["signal"] is not None else "",
        f"exit code {first['exit_code']}" if first["exit_code"] is not None else "",
        f"it said: {first['reason']}" if first["reason"] else "",
    ]
    told = ", ".join(word for word in exits if word)
    where = f" on {first['node']}" if first["node"] else ""
    st.markdown(
        f"First to go was rank {first['rank']}{plain(where)}, at {when(first['gone_ns'], zone)}: {plain(told)}."
    )
    if first["detail"]:
        st.code(first["detail"], language=None, wrap_lines=True)
    with st.expander(f"How all {len(gone):,} ranks went"):
        parts.table(
            [{**row, "gone_ns": moment(row["gone_ns"], zone)} for row in gone],
            "endings",
            alt="How each rank of the attempt ended, the first to go first",
            config={
                "gone_ns": st.column_config.DatetimeColumn("gone", format="HH:mm:ss.SSS", help=parts.zone_name()),
                "attempt": None,
            },
        )


def _who(report: Report, one: Incident) -> None:
    """Which rank fell silent first, and what the others were doing."""
    signs = [row for row in parts.rows("signs", report, most=20_000) if row["attempt"] == one.attempt]
    if one.suspect_ranks:
        st.markdown(
            f"Suspected: **{'rank' if len(one.suspect_ranks) == 1 else 'ranks'} "
            f"{', '.join(map(str, one.suspect_ranks[:16]))}{' …' if len(one.suspect_ranks) > 16 else ''}**."
        )
    elif one.cause != "rollback":
        st.caption("Nothing tells which rank it began with.")
    if not signs:
        return
    parts.chart(
        charts.last_signs(signs, one, zone=context.zone()), "signs", "When each rank was last heard from before the end"
    )
    phases: dict[str, int] = {}
    for row in signs:
        phases[row["phase"] or "no phase told"] = phases.get(row["phase"] or "no phase told", 0) + 1
    told = ", ".join(f"{counted(n, 'rank')} in {phase}" for phase, n in sorted(phases.items(), key=lambda p: -p[1]))
    st.caption(f"As their last heartbeats tell: {plain(told)}.")


def _around(report: Report, one: Incident) -> None:
    """The ledger around the incident."""
    end_ns = one.recovered_ns if one.recovered_ns is not None else one.abort_ns
    around = max(int((end_ns - one.last_progress_ns) * AROUND_RATIO), LEAST_AROUND_NS)
    rows = parts.rows("view_timeline", report, from_ns=one.last_progress_ns - around, to_ns=end_ns + around, most=300)
    if rows:
        st.markdown("#### What the GPUs did around it")
        figure = charts.timeline(
            rows, zone=context.zone(), revision=f"{report.run}{one.abort_ns}", attempts=report.attempts,
            incidents=[one], height=340,
        )  # fmt: skip
        parts.chart(figure, "around", "What the GPUs did around the incident")


parts.page(body)
