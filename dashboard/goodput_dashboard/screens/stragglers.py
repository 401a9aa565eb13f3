"""Who was slow: what waiting for slow ranks cost, whose fault it was, and when nobody can be named."""

from __future__ import annotations

import streamlit as st

from goodput_analytics import Category, Report
from goodput_analytics.colours import CATEGORY_COLOURS
from goodput_dashboard import charts, context, parts, words
from goodput_dashboard.figures import percent, plain, unit_for

STRETCHES = 120
WORST = 8
MOST_SUSPECTS = 30
MOST_CHANGES = 5


def body(report: Report) -> None:
    """The page below the run's head."""
    lost = report.gpu_s[Category.STRAGGLER]
    unit = unit_for(report.allocated_gpu_s)
    phases = report.phases_gpu_s.get(Category.STRAGGLER, {})
    with st.grid(min_column_width=150):
        st.metric(
            f"Waited for slow ranks, {unit.short}", unit.number(lost), help=words.CATEGORIES["straggler"], border=True
        )
        st.metric(f"For a rank that can be named, {unit.short}", unit.number(phases.get("rank", 0.0)), border=True)
        st.metric(f"For jitter, {unit.short}", unit.number(phases.get("jitter", 0.0)), border=True,
                  help="Now this rank, now that one was the latest, no more often than chance.")  # fmt: skip
        st.metric("Ranks named", f"{len(report.stragglers):,}", border=True)
    _changes(report)
    if lost <= 0:
        st.success("No step waited for a slow rank, as far as ranks tell when their own work was done.")
        return
    if not report.stragglers:
        st.info(
            "No rank can be named: none was the latest more often than chance, or ranks do not tell when their own "
            "work was done. After an all-reduce all steps are equally long; "
            "`rec.own_work_done()` in a step tells them apart."
        )
    else:
        _named(report)
    _suspects(report)
    rows = _waiting(report)
    if rows:
        st.markdown("#### Loss over time")
        figure = charts.lines(
            rows, "gpus", zone=context.zone(), title="GPUs waiting", revision=report.run,
            colour=CATEGORY_COLOURS[Category.STRAGGLER],
        )  # fmt: skip
        parts.chart(figure, "loss", "GPUs that waited for slow ranks, over time")
    _lateness(report)
    _what_if(report)


def _changes(report: Report) -> None:
    """From when on steps took longer or shorter, in words."""
    for row in parts.rows("view_step_changes", report, most=MOST_CHANGES):
        st.markdown(plain(words.change(row)), help=words.STEP_CHANGE)


def _suspects(report: Report) -> None:
    """Who was the slowest for how long: ranks, devices, nodes."""
    rows = parts.rows("view_suspects", report, most=MOST_SUSPECTS)
    if not rows:
        return
    unit = unit_for(report.allocated_gpu_s)
    st.markdown("#### Who was slow, and for how long", help=words.SUSPECTS)
    parts.table(
        [
            {
                "what": row["grain"],
                "attempt": row["attempt"],
                "rank": row["rank"],
                "node": row["node"],
                "device": row["device"],
                "it": "a few great waits" if row["severe"] else "persists" if row["lasting"] else "passed",
                "from step": row["first_step"],
                "to step": row["last_step"],
                "the slowest in": row["slowest_ratio"],
                "by chance": row["expected_ratio"],
                "attempts": row["attempts"],
                f"waited for, {unit.short}": unit.value(row["waited_gpu_s"]),
            }
            for row in rows
        ],
        "suspects",
        alt="Ranks, devices and nodes that were the slowest more often than chance has it",
        config={
            "from step": st.column_config.NumberColumn(format="%,d"),
            "to step": st.column_config.NumberColumn(format="%,d"),
            "the slowest in": st.column_config.NumberColumn(format="percent"),
            "by chance": st.column_config.NumberColumn(format="percent"),
            f"waited for, {unit.short}": st.column_config.NumberColumn(format=unit.column),
        },
        absent="–",  # a node has no rank, and that is not unknown
    )


def _waiting(report: Report) -> parts.Rows:
    """The GPUs that waited, stretch by stretch; none where the ledger has none."""
    rows = parts.rows("view_timeline", report, most=STRETCHES)
    waiting = {row["start_ns"]: row["gpus"] for row in rows if row["category"] == Category.STRAGGLER}
    ends = {row["start_ns"]: row["end_ns"] for row in rows}
    return [{"end_ns": ends[ns], "gpus": waiting.get(ns, 0.0)} for ns in sorted(ends)]


def _named(report: Report) -> None:
    unit = unit_for(report.allocated_gpu_s)
    st.markdown("#### Ranks by loss charged")
    parts.table(
        [
            {
                "rank": one.rank,
                "node": one.node,
                unit.short: unit.value(one.loss_gpu_s),
                "steps as the latest": one.slowest_steps,
                "beside the median": one.slowdown_ratio,
            }
            for one in report.stragglers
        ],
        "stragglers",
        alt="Slow ranks by the loss charged to them",
        config={
            unit.short: st.column_config.NumberColumn(format=unit.column),
            "steps as the latest": st.column_config.NumberColumn(format="%,d"),
            "beside the median": st.column_config.NumberColumn(format="%.2f ×", help=words.SLOWDOWN),
        },
    )


def _lateness(report: Report) -> None:
    zone = context.zone()
    rows = parts.rows("view_lateness", report, most=STRETCHES)
    if not rows:
        st.caption("Ranks do not tell when their own work was done, so nothing can be said rank by rank.")
        return
    st.markdown("#### Rank by rank over time", help=words.LATENESS)
    parts.chart(charts.heat_map(rows, zone=zone, revision=report.run), "lateness", "How late each rank was over time")
    looked = max(row["steps"] for row in rows)
    st.caption(f"Of each stretch up to {looked:,} steps are looked at. What nobody reported stays empty.")
    lowest = sorted({row["first_rank"] for row in rows})
    named = [one.rank for one in report.stragglers if one.rank in lowest]
    ranks = [str(rank) for rank in lowest]
    chosen = st.selectbox(
        "One rank against the median", ranks, index=ranks.index(str(named[0])) if named else 0, key="rank",
        bind="query-params",
    )  # fmt: skip
    if chosen in ranks:
        figure = charts.rank_line(rows, int(chosen), zone=zone, revision=f"{report.run}{chosen}")
        parts.chart(figure, "one_rank", f"How much later than the median rank {chosen} was, over time")


def _what_if(report: Report) -> None:
    rows = parts.rows("view_worst_ranks", report, most=WORST)
    worst = [row for row in rows if row["k"] > 0]
    if not worst:
        return
    unit = unit_for(report.allocated_gpu_s)
    st.markdown("#### If the worst few ranks were like the rest", help=words.WHAT_IF)
    parts.table(
        [
            {
                "without the worst": row["k"],
                "the last of them": row["rank"],
                "node": row["node"],
                "of the waiting would go": row["saved_ratio"],
                unit.short: unit.value(row["saved_gpu_s"]),
                "steps would take": row["slowdown_ratio"],
                "with it alone": row["alone_ratio"],
            }
            for row in worst
        ],
        "what_if",
        alt="What would be saved if the worst few ranks were typical",
        config={
            "of the waiting would go": st.column_config.NumberColumn(format="percent"),
            unit.short: st.column_config.NumberColumn(format=unit.column),
            "steps would take": st.column_config.NumberColumn(format="%.3f ×"),
            "with it alone": st.column_config.NumberColumn(format="%.3f ×"),
        },
    )
    now, best = rows[0], worst[0]
    st.caption(
        plain(
            f"Steps take {now['slowdown_ratio']:.3f} times the ideal: {percent(now['waste_ratio'])} of their time is "
            f"waiting. Without rank {best['rank']} alone, {percent(best['saved_ratio'])} of it would go: "
        )
        + "each step then waits for the latest of the others. From a sample of the run's steps."
    )


parts.page(body, context.SELDOM_S)
