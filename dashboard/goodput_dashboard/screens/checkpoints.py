"""Saves: what they cost, what they protect, and how often to save."""

from __future__ import annotations

import streamlit as st

from goodput_analytics import Report
from goodput_analytics.advice_cost import CostModel
from goodput_analytics.advice_interval import IntervalAdvice, cost
from goodput_analytics.advice_run import RunAdvice
from goodput_analytics.advice_saves import RECENT, SaveTimes
from goodput_analytics.saving import saving
from goodput_analytics.scale import Noise
from goodput_analytics.simulate import Outcome, simulate
from goodput_analytics.simulate_job import Job
from goodput_analytics.timeouts import TimeoutAdvice
from goodput_dashboard import charts, context, parts, words
from goodput_dashboard.figures import counted, duration, moment, percent, unit_for

POINTS = 400
MOST_SAVES = 2_000
SIMULATED_RUNS = 200
FAILURES = 100  # in a simulated job, about (as a string below the name Streamlit would write this on the page)


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
    """How often to save, how long to wait, and what slow ranks would cost at scale, by the run's own record."""
    told = context.source().advice(report.run)
    advice = told.value
    st.markdown("#### How often to save")
    if advice is None:
        st.info(f"There is no advice now: {told.trouble}")
        return
    if advice.saves is not None:
        _blocked(advice.saves)
    _failures(advice)
    _restarts(advice)
    if advice.interval is None:
        st.info(_no_interval(advice))
    else:
        _best(report, advice, advice.interval)
    if advice.timeout is not None:
        _timeout(report, advice, advice.timeout)
    if advice.noise is None:
        st.caption(
            "What noise would cost at more ranks is not known: ranks do not tell their own work, or too few steps do."
        )
    else:
        _scale(advice.noise)


def _blocked(saves: SaveTimes) -> None:
    """How long saves block, by quantile, and where that goes."""
    trend = ""
    if saves.trend_ratio is not None:
        counts = ", beyond chance, and they alone count below" if saves.trending else ", which may be chance"
        trend = f" The last {RECENT} take {saves.trend_ratio:.2f} times those before{counts}."
    background = ""
    if saves.async_ratio > 0:
        background = (
            f" {percent(saves.async_ratio)} of them go on in the background, and are durable {duration(saves.write_s)} "
            "later."
        )
    st.markdown(
        f"{counted(saves.count, 'durable save')}: each blocks **{duration(saves.mean_s)}** on average, half of them no "
        f"more than {duration(saves.p50_s)}, nine in ten no more than {duration(saves.p90_s)}, 99 in a hundred no more "
        f"than {duration(saves.p99_s)}, the longest {duration(saves.max_s)}.{trend}{background}"
    )


def _restarts(advice: RunAdvice) -> None:
    restart = "No restart was seen" if advice.restart_s is None else f"A restart takes {duration(advice.restart_s)}"
    hangs = counted(advice.hangs, "hang")
    st.markdown(f"{restart}. {hangs}: {duration(advice.hang_s)} for each failure until somebody acts.")


def _failures(advice: RunAdvice) -> None:
    seen = advice.interruptions
    apart = (
        f"{counted(advice.planned_stops, 'planned stop')}, {counted(advice.rollbacks, 'rollback')}, "
        f"{counted(advice.startup_failures, 'failure')} before a first step"
    )
    if seen.mean_s is None:
        least = "" if seen.low_s is None else f"; the true time between two is {duration(seen.low_s)} or more"
        st.markdown(f"No unplanned failure in {duration(seen.exposed_s)} of running{least}. Apart: {apart}.")
        return
    sure = "" if seen.low_s is None or seen.high_s is None else (
        f"{' With so few the' if seen.few else ' The'} true time between them lies anywhere from "
        f"{duration(seen.low_s)} to {duration(seen.high_s)} ({seen.confidence_ratio:.0%} sure)."
    )  # fmt: skip
    node = "" if advice.node_mtbf_s is None else f", one in {duration(advice.node_mtbf_s)} per node"
    st.markdown(
        f"{counted(seen.count, 'unplanned failure')}: one in **{duration(seen.mean_s)}** of running{node}.{sure} "
        f"Apart: {apart}.",
        help=words.MTBF,
    )


def _no_interval(advice: RunAdvice) -> str:
    if advice.saves is None:
        return "No interval can be advised without a save that became durable."
    if advice.interval_low_s is not None:
        return (
            "No interval can be advised without an unplanned failure. Nothing speaks for saving more often than every "
            f"{duration(advice.interval_low_s)} of work."
        )
    return "No interval can be advised: the saves block for no time, or the run was not running yet."


def _best(report: Report, advice: RunAdvice, best: IntervalAdvice) -> None:
    unit = unit_for(report.allocated_gpu_s)
    curve = saving(best)
    with st.grid(min_column_width=150):
        st.metric("Young advises", duration(best.young_s), help=words.YOUNG, border=True)
        st.metric("Daly advises", duration(best.daly_s), help=words.DALY, border=True)
        st.metric("The best by the model", duration(best.optimal_s), border=True,
                  help="The minimum of the curve below: saves, rework, restarts and hangs together.")  # fmt: skip
        st.metric("In use", duration(best.actual_s), border=True, help="Useful work between two saves, on average.")
        st.metric(f"It would have saved, {unit.short}", unit.number(curve.saved_gpu_s), border=True)
    parts.chart(charts.saving_curve(curve), "saving", "Expected loss over the interval between saves")
    low, high = duration(best.flat_low_s), duration(best.flat_high_s)
    used = best.at_actual
    now = "" if used is None else f" The interval in use is expected to lose {percent(used.waste_ratio)}."
    unsure = ""
    if advice.interval_low_s is not None and advice.interval_high_s is not None:
        unsure = (
            f" What is known of the failures leaves the best interval between {duration(advice.interval_low_s)} and "
            f"{duration(advice.interval_high_s)}."
        )
    st.caption(f"From {low} to {high} it costs less than one point of goodput more than at the best.{now}{unsure}")
    st.markdown("##### By the model and simulated")
    price = st.number_input("Price of a GPU-hour", min_value=0.0, value=0.0, step=0.1, key="save_price",
                            help="To tell losses in money. 0: not told.") or None  # fmt: skip
    named = [("in use", best.actual_s), ("Young", best.young_s), ("Daly", best.daly_s), ("best", best.optimal_s)]
    rows = []
    for name, interval_s in named:
        if interval_s is not None and interval_s > 0:
            tried = _simulated(best.model, interval_s)
            shares = best.model.shares(interval_s)
            lost_gpu_s = None if best.held_gpu_s is None else shares.waste_ratio * best.held_gpu_s
            rows.append(
                {
                    "interval": name,
                    "work between saves": duration(interval_s),
                    "goodput by the model, %": 100 * shares.goodput_ratio,
                    "simulated, %": 100 * tried.goodput_ratio,
                    "standard error, points": None if tried.stderr is None else 100 * tried.stderr,
                    f"lost by the model, {unit.short}": unit.value(lost_gpu_s),
                    **({} if price is None else {"lost in money": cost(lost_gpu_s, price)}),
                }
            )
    number = st.column_config.NumberColumn(format="%.1f")
    parts.table(
        rows,
        "simulated",
        alt="Goodput at some intervals, by the model and simulated",
        config={
            "goodput by the model, %": number,
            "simulated, %": number,
            "standard error, points": st.column_config.NumberColumn(format="%.2f"),
            f"lost by the model, {unit.short}": st.column_config.NumberColumn(format="%,.1f"),
            "lost in money": st.column_config.NumberColumn(format="%,.2f"),
        },
    )
    if best.what_ifs:
        st.markdown("##### What else would be worth", help=words.WHAT_IFS)
        parts.table(
            [
                {
                    "change": words.CHANGES[one.change],
                    "assumed": None if one.change == "all" else one.assumes,
                    "then save every": duration(one.optimal_s),
                    "points of goodput": 100 * one.gained_ratio,
                    unit.short: unit.value(one.gained_gpu_s),
                    **({} if price is None else {"in money": cost(one.gained_gpu_s, price)}),
                }
                for one in best.what_ifs
            ],
            "what_ifs",
            alt="What other changes would be worth",
            config={
                "points of goodput": number,
                unit.short: st.column_config.NumberColumn(format="%,.1f"),
                "in money": st.column_config.NumberColumn(format="%,.2f"),
            },
        )


@st.cache_data(max_entries=256, show_spinner=False)
def _simulated(model: CostModel, interval_s: float) -> Outcome:
    """Jobs with the run's own figures, long enough to fail a hundred times each."""
    job = Job(
        useful_s=FAILURES * model.mtbf_s,
        checkpoint_s=model.checkpoint_s,
        restart_s=model.restart_s,
        mtbf_s=model.mtbf_s,
        write_s=model.write_s,
        hang_ratio=1.0 if model.hang_s > 0 else 0.0,
        hang_timeout_s=model.hang_s,
    )
    return simulate(job, interval_s, runs=SIMULATED_RUNS, seed=1)


def _timeout(report: Report, advice: RunAdvice, timeout: TimeoutAdvice) -> None:
    unit = unit_for(report.allocated_gpu_s)
    st.markdown("#### How long to wait", help=words.TIMEOUT)
    with st.grid(min_column_width=150):
        st.metric("Collective timeout advised", duration(timeout.timeout_s), border=True)
        in_use = "hangs now last" if advice.typical_hang_s is not None else "PyTorch's default"
        st.metric(f"In use: {in_use}", duration(advice.timeout_s), border=True)
        st.metric("False aborts in 30 days",
                  "not known" if timeout.risk_ratio is None else f"{timeout.risk_ratio:.3g}", border=True)  # fmt: skip
        st.metric(f"Saved per hang, {unit.short}", unit.number(advice.saved_per_hang_gpu_s), border=True)
    seconds = st.column_config.NumberColumn(format="%,.2f")
    parts.table(
        [
            {
                "silence": one.kind,
                "seen": one.count,
                "median, s": one.median_s,
                "longest, s": one.longest_s,
                "asks for, s": one.timeout_s,
                "risk known": one.risk_known,
            }
            for one in timeout.kinds
        ],
        "silences",
        alt="Legal silences, and the timeout that each kind asks for",
        config=dict.fromkeys(("median, s", "longest, s", "asks for, s"), seconds),
    )
    if timeout.cut_stalls:
        themselves = "itself" if timeout.cut_stalls == 1 else "themselves"
        st.caption(f"{counted(timeout.cut_stalls, 'stall')} that ended by {themselves} would have been cut.")


def _scale(noise: Noise) -> None:
    st.markdown("#### What slow steps would cost at scale", help=words.SCALE)
    formula = noise.formula_by_ranks
    slow = "" if noise.slow_factor is None else f", and then takes {noise.slow_factor:.2f} times as long"
    parts.table(
        [
            {
                "ranks": ranks,
                "a step takes": f"{slowdown:.3f} ×",
                "by the formula": None if formula is None else f"{formula[ranks]:.3f} ×",
            }
            for ranks, slowdown in sorted(noise.slowdown_by_ranks.items())
        ],
        "scale",
        alt="What the same noise would make of a step at more ranks",
        config={"ranks": st.column_config.NumberColumn(format="%,d")},
    )
    st.caption(
        f"{noise.ranks:,} ranks wait for one another here, and a step takes {noise.observed_slowdown:.3f} × what it "
        f"would without noise; a rank is slow in {percent(noise.slow_ratio)} of its steps{slow}."
    )


parts.page(body, context.SELDOM_S)
