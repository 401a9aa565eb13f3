"""All runs: how much was lost, to what, and which run needs a look first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st

from goodput_analytics import Category
from goodput_analytics.fleet import TROUBLED, Fleet, budget, fleet, lost_gpu_s
from goodput_dashboard import charts, context, parts, words
from goodput_dashboard.figures import Unit, counted, moment, money, percent, plain, unit_for
from goodput_dashboard.shelf import LIVE, Entry

RANGES = {"all time": None, "24 hours": 86_400, "7 days": 7 * 86_400, "30 days": 30 * 86_400}
DEFAULT_TARGET_PERCENT = 90


def show() -> None:
    """The page; by itself again every few seconds, for runs come and go."""
    st.markdown("### Fleet")
    with st.expander("What is goodput?", icon=":material/help:"):
        st.markdown(words.FIRST_VISIT)
    _filters()
    seen = context.shelf().look(wait_s=1.2)
    again = not context.source().is_file or seen.missing > 0 or not seen.whole

    @st.fragment(run_every=context.REFRESH_S / 2 if again else None)
    def body() -> None:
        shelved = context.shelf().look()
        if shelved.trouble is not None:
            st.info(plain(shelved.trouble), icon=":material/cloud_off:")
        if not shelved.entries and not shelved.missing:
            if shelved.trouble is None:
                parts.nothing_yet(by_itself=True)
            return
        if shelved.missing or not shelved.whole:
            st.caption(f"{counted(shelved.missing, 'run') if shelved.missing else 'More runs are'} still being read …")
        if shelved.entries:
            _show([one for one in shelved.entries if _wanted(one, shelved.entries)], len(shelved.entries))

    body()


def _filters() -> None:
    with st.expander("Filter, price and target", icon=":material/tune:"), st.grid(min_column_width=210):
        st.text_input("Run", key="name", bind="query-params", placeholder="part of a name")
        st.multiselect("State", sorted(words.STATES), key="state", bind="query-params")
        st.text_input("Node", key="node", bind="query-params", placeholder="part of a name")
        st.text_input("Job", key="job", bind="query-params", placeholder="part of a name")
        st.text_input("Label", key="label", bind="query-params", placeholder="team=nlp")
        st.selectbox(
            "Seen in the last",
            list(RANGES),
            key="range",
            bind="query-params",
            help="Runs at work then, before the newest event of all. Their figures are those of the whole run.",
        )
        st.number_input(
            "Price of a GPU-hour", min_value=0.0, value=0.0, step=0.1, key="price", bind="query-params",
            help="To tell the loss in money. 0: not told.",
        )  # fmt: skip
        st.number_input(
            "Target goodput, %", min_value=0, max_value=99, value=DEFAULT_TARGET_PERCENT, key="target",
            bind="query-params", help=words.BUDGET,
        )  # fmt: skip


def _wanted(entry: Entry, everything: Sequence[Entry]) -> bool:
    """Whether a run passes the filters."""
    asked = st.session_state
    name, node, job = (str(asked.get(key) or "").strip().lower() for key in ("name", "node", "job"))
    label = str(asked.get("label") or "").strip()
    key, _, value = label.partition("=")
    within_s = RANGES[asked.get("range") or "all time"]
    newest_ns = max(one.last_ns for one in everything)
    return (
        name in entry.report.run.lower()
        and (not asked.get("state") or entry.report.state in asked["state"])
        and (not node or any(node in one.lower() for one in entry.nodes))
        and (not job or any(job in one.lower() for one in entry.jobs))
        and (not label or (key in entry.labels and value in entry.labels[key]))
        and (within_s is None or entry.last_ns >= newest_ns - within_s * 1_000_000_000)
    )


def _show(entries: Sequence[Entry], of: int) -> None:
    if not entries:
        st.info(f"None of the {of:,} runs passes the filters.")
        return
    whole = fleet([one.report for one in entries])
    unit = unit_for(whole.allocated_gpu_s)
    price = float(st.session_state.get("price") or 0.0)
    target = float(st.session_state.get("target") or 0) / 100
    burned = budget(whole.allocated_gpu_s, whole.productive_gpu_s, target)
    with st.grid(min_column_width=150):
        st.metric("Goodput", percent(whole.goodput_ratio), help=words.GOODPUT, border=True)
        st.metric(f"Held, {unit.short}", unit.number(whole.allocated_gpu_s), help=words.HELD, border=True)
        st.metric(f"Lost, {unit.short}", unit.number(whole.lost_gpu_s), help=words.LOST, border=True)
        st.metric(f"At risk, {unit.short}", unit.number(whole.at_risk_gpu_s), help=words.AT_RISK, border=True)
        st.metric(f"Budget used ({target:.0%})", percent(burned.burned_ratio), help=words.BUDGET, border=True)
        if price > 0:
            st.metric("Cost of the loss", money(whole.lost_gpu_s, price), border=True)
    troubled = [one for one in entries if one.report.state in TROUBLED]
    if troubled:
        told = ", ".join(f"**{plain(one.report.run)}** ({one.report.state.value})" for one in troubled[:8])
        more = f" and {len(troubled) - 8:,} more" if len(troubled) > 8 else ""
        st.warning(f"{counted(len(troubled), 'run')} to look at first: {told}{more}.", icon=":material/priority_high:")
    _runs(entries, unit, price)
    _losses(whole, unit)


def _runs(entries: Sequence[Entry], unit: Unit, price: float) -> None:
    ordered = sorted(
        entries, key=lambda one: (one.report.state not in TROUBLED, one.report.state not in LIVE, -one.last_ns)
    )
    zone = context.zone()
    rows: list[dict[str, Any]] = [
        {
            "run": one.report.run,
            "state": one.report.state.value,
            "goodput": one.report.goodput_ratio,
            "over time": [0.0 if ratio is None else ratio for ratio in one.goodput],
            f"held, {unit.short}": unit.value(one.report.allocated_gpu_s),
            f"lost, {unit.short}": unit.value(lost_gpu_s(one.report)),
            **({"cost of the loss": lost_gpu_s(one.report) / 3600 * price} if price > 0 else {}),
            f"at risk, {unit.short}": unit.value(one.report.at_risk_gpu_s),
            "attempts": len(one.report.attempts),
            "incidents": len(one.report.incidents),
            "last heard": moment(one.last_ns, zone),
            "labels": " ".join(f"{key}={value}" for key, value in one.labels.items()),
        }
        for one in ordered
    ]
    number = st.column_config.NumberColumn
    clicked = parts.table(
        rows,
        "runs",
        alt=f"{len(rows)} runs with state, goodput, GPU-hours held and lost",
        select=True,
        config={
            "run": st.column_config.TextColumn(pinned=True, width="medium"),
            "goodput": number(format="percent", help=words.GOODPUT),
            "over time": st.column_config.LineChartColumn(y_min=0, y_max=1, help="Goodput over the run's time."),
            f"held, {unit.short}": number(format=unit.column, help=words.HELD),
            f"lost, {unit.short}": number(format=unit.column, help=words.LOST),
            f"at risk, {unit.short}": number(format=unit.column, help=words.AT_RISK),
            "cost of the loss": number(format="%,.2f"),
            "last heard": st.column_config.DatetimeColumn(format="YYYY-MM-DD HH:mm:ss", help=parts.zone_name()),
        },
    )
    st.caption("Choose a row to open its run.")
    row = parts.selected_row(clicked)
    if row is not None and row < len(ordered):
        st.switch_page("screens/run.py", query_params=context.carried(run=ordered[row].report.run))


def _losses(whole: Fleet, unit: Unit) -> None:
    left, right = st.columns(2, gap="medium")
    with left:
        st.markdown("#### Lost to what")
        shares = {c: gpu_s / whole.allocated_gpu_s for c, gpu_s in whole.gpu_s.items() if whole.allocated_gpu_s > 0}
        parts.chart(charts.by_category([("all runs", shares)]), "fleet_categories", "Shares of GPU time by category")
        parts.table(
            [
                {"category": c.value, unit.short: unit.value(whole.gpu_s[c]), "means": words.CATEGORIES[c]}
                for c in Category
                if whole.gpu_s[c] > 0
            ],
            "categories",
            alt="GPU time by category",
            config={
                unit.short: st.column_config.NumberColumn(format=unit.column),
                "means": st.column_config.TextColumn(width=235),
            },
            lines=3,
        )
    with right:
        st.markdown("#### Lost to incidents, by cause")
        if not whole.causes:
            st.caption("No incident: nothing was interrupted.")
            return
        parts.table(
            [
                {
                    "cause": one.cause,
                    "kind": "planned" if one.planned else "unplanned",
                    "incidents": one.incidents,
                    unit.short: unit.value(one.gpu_s),
                    "hang": unit.value(one.hang_gpu_s),
                    "rework": unit.value(one.rework_gpu_s),
                    "restart": unit.value(one.restart_gpu_s),
                }
                for one in whole.causes
            ],
            "causes",
            alt="GPU time lost to incidents by cause, planned and unplanned apart",
            config={
                name: st.column_config.NumberColumn(format=unit.column)
                for name in (unit.short, "hang", "rework", "restart")
            },
        )


show()
