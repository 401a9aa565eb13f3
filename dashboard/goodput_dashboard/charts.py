"""The pictures: figures made of what the analytics computed. Nothing is added up here; plotly's own template stays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, tzinfo
from typing import Any

import plotly.graph_objects as go

from goodput_analytics import Attempt, Category, Incident, Report
from goodput_analytics.colours import CATEGORY_COLOURS
from goodput_analytics.saving import Saving
from goodput_dashboard.colours import ACCENT_COLOUR, HELD_COLOUR
from goodput_dashboard.figures import Unit, duration, moment, percent, when

MOST_LINES = 60
"""Attempts whose beginnings are drawn: more would be a wall."""
_MARGIN = {"l": 8, "r": 8, "t": 28, "b": 8}
_LEGEND = {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", "x": 0, "traceorder": "normal"}
_ABOVE_LEGEND = {**_MARGIN, "b": 92}
"""A legend stands at the foot, below the axis and its title, in as many lines as it takes on a narrow screen."""


def config(name: str) -> dict[str, Any]:
    """How a chart behaves: its picture can be saved as SVG under a name that says what it is."""
    return {
        "displaylogo": False,
        "scrollZoom": False,
        "toImageButtonOptions": {"format": "svg", "filename": name},
        "modeBarButtonsToRemove": ["lasso2d", "autoScale2d"],
    }


def breakdown(report: Report, unit: Unit) -> go.Figure:
    """From what was held down to what was productive: one bar a category, in their fixed order."""
    held = report.allocated_gpu_s
    names, bases, lengths, colours, texts = ["held"], [0.0], [held], [HELD_COLOUR], [unit.amount(held)]
    upper = held
    order = [*(c for c in Category if c != Category.PRODUCTIVE), Category.PRODUCTIVE]
    for category in order:
        gpu_s = report.gpu_s[category]
        if gpu_s <= 0:
            continue
        upper -= gpu_s
        names.append(category.value)
        bases.append(max(upper, 0.0))
        lengths.append(gpu_s)
        colours.append(CATEGORY_COLOURS[category])
        texts.append(f"{unit.number(gpu_s)} · {percent(gpu_s / held)}")
    figure = go.Figure(
        go.Bar(
            y=names,
            x=[unit.value(v) for v in lengths],
            base=[unit.value(v) for v in bases],
            orientation="h",
            marker={"color": colours, "line": {"width": 0}},
            text=texts,
            textposition="auto",
            insidetextanchor="middle",
            cliponaxis=False,
            hovertemplate="%{y}: %{text}<extra></extra>",
        )
    )
    figure.update_layout(
        height=64 + 34 * len(names), margin=_MARGIN, bargap=0.28, showlegend=False, uirevision=report.run
    )
    figure.update_yaxes(autorange="reversed", automargin=True, fixedrange=True)
    # Room for the words beside the upper bars.
    figure.update_xaxes(title=unit.short, range=[0, 1.3 * (unit.value(held) or 1.0)], fixedrange=True)
    return figure


def timeline(
    rows: Sequence[Mapping[str, Any]],
    *,
    zone: tzinfo,
    revision: str,
    attempts: Iterable[Attempt] = (),
    incidents: Iterable[Incident] = (),
    shares: bool = False,
    height: int = 380,
    legend: bool = True,
) -> go.Figure:
    """What the GPUs did over time: the height is GPUs (or shares of those held), so an area is GPU time.

    `rows` are those of `view_timeline`. What lies between two marks of the pointer can be selected.
    """
    key = "share_ratio" if shares else "gpus"
    starts = sorted({row["start_ns"] for row in rows})
    figure = go.Figure()
    if not starts:
        return figure
    last_ns = max(row["end_ns"] for row in rows)
    place = {ns: i for i, ns in enumerate(starts)}
    times = [*(moment(ns, zone) for ns in starts), moment(last_ns, zone)]
    for category in Category:
        heights: list[float | None] = [None] * len(times)
        for row in rows:
            if row["category"] == category:
                heights[place[row["start_ns"]]] = row[key]
        if all(one is None for one in heights):
            continue
        heights[-1] = heights[-2]
        figure.add_scatter(
            x=times,
            y=[one or 0.0 for one in heights],
            name=category.value,
            stackgroup="all",
            mode="lines",
            line={"width": 0, "shape": "hv", "color": CATEGORY_COLOURS[category]},
            fillcolor=CATEGORY_COLOURS[category],
            hoverinfo="skip",
        )
    _hover(figure, rows, starts, times, shares)
    _marks(figure, attempts, incidents, zone, (starts[0], last_ns), shares, rows)
    figure.update_layout(
        height=height,
        margin=_ABOVE_LEGEND,
        showlegend=legend,
        hovermode="closest",
        dragmode="select",
        selectdirection="h",
        uirevision=revision,
        legend=_LEGEND,
    )
    figure.update_yaxes(
        title="share of GPU time" if shares else "GPUs",
        tickformat=".0%" if shares else ",.0f" if _most(rows) >= 5 else None,
        rangemode="tozero",
        fixedrange=True,
    )
    # No range of ours: a live run's would grow, and win over the reader's own zoom.
    return figure


def _most(rows: Sequence[Mapping[str, Any]]) -> float:
    tops: dict[int, float] = {}
    for row in rows:
        tops[row["start_ns"]] = tops.get(row["start_ns"], 0.0) + row["gpus"]
    return max(tops.values(), default=0.0)


def _hover(
    figure: go.Figure,
    rows: Sequence[Mapping[str, Any]],
    starts: Sequence[int],
    times: Sequence[datetime],
    shares: bool,
) -> None:
    """One invisible point a stretch, which says what it holds, and which a selection takes."""
    texts: dict[int, list[str]] = {}
    for row in sorted(rows, key=lambda one: -one["share_ratio"]):
        texts.setdefault(row["start_ns"], []).append(f"{row['category']} {percent(row['share_ratio'])}")
    most = 1.0 if shares else _most(rows)
    figure.add_scatter(
        x=list(times[: len(starts)]),
        y=[most / 2] * len(starts),
        mode="markers",
        marker={"size": 14, "opacity": 0, "color": HELD_COLOUR},
        text=["<br>".join(texts[ns]) for ns in starts],
        hovertemplate="%{x}<br>%{text}<extra></extra>",
        showlegend=False,
        name="stretches",
    )


def _marks(
    figure: go.Figure,
    attempts: Iterable[Attempt],
    incidents: Iterable[Incident],
    zone: tzinfo,
    within: tuple[int, int],
    shares: bool,
    rows: Sequence[Mapping[str, Any]],
) -> None:
    """Where attempts begin, and where incidents ended them."""
    top = 1.0 if shares else _most(rows)
    begun = [one for one in attempts if within[0] < one.start_ns < within[1]]
    if len(begun) <= MOST_LINES:
        for one in begun:
            figure.add_vline(x=moment(one.start_ns, zone), line={"width": 1, "dash": "dot", "color": HELD_COLOUR})
    seen = [one for one in incidents if within[0] <= one.abort_ns <= within[1]]
    if seen:
        figure.add_scatter(
            x=[moment(one.abort_ns, zone) for one in seen],
            y=[top * 1.06] * len(seen),
            mode="markers",
            marker={"symbol": "triangle-down", "size": 12, "color": CATEGORY_COLOURS[Category.HANG]},
            text=[f"{one.cause} of attempt {one.attempt}" for one in seen],
            hovertemplate="%{x}<br>%{text}<extra></extra>",
            name="incident",
        )


def lines(
    rows: Sequence[Mapping[str, Any]],
    value: str,
    *,
    zone: tzinfo,
    title: str,
    revision: str,
    scale: float = 1.0,
    colour: str = ACCENT_COLOUR,
    height: int = 260,
) -> go.Figure:
    """One figure over time, from rows with `end_ns`; `scale` is what one unit of the axis stands for."""
    figure = go.Figure(
        go.Scatter(
            x=[moment(row["end_ns"], zone) for row in rows],
            y=[row[value] / scale for row in rows],
            mode="lines",
            line={"color": colour, "width": 2},
            fill="tozeroy",
            hovertemplate="%{x}<br>%{y:,.2f} " + title + "<extra></extra>",
        )
    )
    figure.update_layout(height=height, margin=_MARGIN, showlegend=False, uirevision=revision)
    figure.update_yaxes(title=title, rangemode="tozero")
    return figure


def _all_starts(rows: Sequence[Mapping[str, Any]]) -> list[int]:
    """The starts of all stretches from the first to the last, those without a row too: a gap is shown as a gap."""
    starts = {row["start_ns"] for row in rows}
    width_ns = max(row["end_ns"] - row["start_ns"] for row in rows)
    return list(range(min(starts), max(starts) + 1, width_ns))


def heat_map(rows: Sequence[Mapping[str, Any]], *, zone: tzinfo, revision: str) -> go.Figure:
    """Rank by time: how late each was; rows of `view_lateness`. What nobody reported stays empty."""
    starts = _all_starts(rows)
    ranks = sorted({(row["first_rank"], row["last_rank"]) for row in rows})
    column = {ns: i for i, ns in enumerate(starts)}
    line = {rank: i for i, rank in enumerate(ranks)}
    late: list[list[float | None]] = [[None] * len(starts) for _ in ranks]
    for row in rows:
        late[line[row["first_rank"], row["last_rank"]]][column[row["start_ns"]]] = row["late_s"]
    labels = [f"{a}" if a == b else f"{a}–{b}" for a, b in ranks]
    most = max((row["late_s"] for row in rows), default=0.0)
    figure = go.Figure(
        go.Heatmap(
            x=[moment(ns, zone) for ns in starts],
            y=labels,
            z=late,
            zmin=0,
            zmax=most if most > 0 else 1,
            colorscale="Cividis",
            colorbar={"title": {"text": "s late"}, "thickness": 12},
            hoverongaps=False,
            hovertemplate="rank %{y}<br>%{x}<br>%{z:.4f} s later than the median rank<extra></extra>",
        )
    )
    figure.update_layout(height=min(140 + 14 * max(len(ranks), 4), 640), margin=_MARGIN, uirevision=revision)
    figure.update_yaxes(title="rank", type="category", automargin=True)
    return figure


def rank_line(rows: Sequence[Mapping[str, Any]], rank: int, *, zone: tzinfo, revision: str) -> go.Figure:
    """One rank against the median rank, which is the line at 0."""
    own = {row["start_ns"]: 1000 * row["late_s"] for row in rows if row["first_rank"] <= rank <= row["last_rank"]}
    starts = _all_starts(rows)
    figure = go.Figure(
        go.Scatter(
            x=[moment(ns, zone) for ns in starts],
            y=[own.get(ns) for ns in starts],
            mode="lines+markers",
            line={"color": ACCENT_COLOUR, "width": 2},
            marker={"size": 5},
            hovertemplate="%{x}<br>%{y:.1f} ms<extra></extra>",
        )
    )
    figure.add_hline(
        y=0, line={"width": 1, "color": HELD_COLOUR}, annotation_text="median rank", annotation_position="bottom left"
    )
    figure.update_layout(height=240, margin=_MARGIN, showlegend=False, uirevision=revision)
    figure.update_yaxes(title="ms later per step")
    return figure


def saving_curve(curve: Saving) -> go.Figure:
    """Expected loss over the interval between saves, with the one in use and those that are advised."""
    advice = curve.advice
    unit_s, unit = (
        (1, "seconds") if advice.optimal_s < 120 else (60, "minutes") if advice.optimal_s < 7200 else (3600, "hours")
    )
    figure = go.Figure(
        go.Scatter(
            x=[one / unit_s for one in curve.interval_s],
            y=list(curve.waste_ratio),
            mode="lines",
            line={"color": HELD_COLOUR, "width": 2},
            name="expected loss",
            hovertemplate="%{x:.3g} " + unit + ": %{y:.1%} lost<extra></extra>",
        )
    )
    points = [
        ("Young", advice.young_s, "diamond", CATEGORY_COLOURS[Category.CHECKPOINT]),
        ("Daly", advice.daly_s, "square", CATEGORY_COLOURS[Category.STARTUP]),
        ("best", advice.optimal_s, "star", CATEGORY_COLOURS[Category.PRODUCTIVE]),
        ("in use", advice.actual_s, "circle", CATEGORY_COLOURS[Category.HANG]),
    ]
    for name, interval_s, symbol, colour in points:
        if interval_s is None or interval_s <= 0:
            continue
        figure.add_scatter(
            x=[interval_s / unit_s],
            y=[advice.model.shares(interval_s).waste_ratio],
            mode="markers",
            marker={"size": 14, "symbol": symbol, "color": colour, "line": {"width": 1, "color": "#ffffff"}},
            name=f"{name}: {duration(interval_s)}",
            hovertemplate=f"{name}: {duration(interval_s)}, %{{y:.1%}} lost<extra></extra>",
        )
    figure.update_layout(height=420, margin=_ABOVE_LEGEND, legend=_LEGEND)
    figure.update_xaxes(type="log", title=f"{unit} of work between two saves", dtick=1)
    figure.update_yaxes(title="GPU time lost", tickformat=".0%", rangemode="tozero")
    return figure


def blocking(rows: Sequence[Mapping[str, Any]], *, zone: tzinfo, revision: str) -> go.Figure:
    """How long each save blocked the loop; rows of `saves`."""
    figure = go.Figure()
    kinds = (
        ("durable", lambda row: row["durable_ns"] is not None, "circle", CATEGORY_COLOURS[Category.CHECKPOINT]),
        ("failed or never durable", lambda row: row["failed"], "x", CATEGORY_COLOURS[Category.HANG]),
    )
    for name, of_it, symbol, colour in kinds:
        chosen = [row for row in rows if row["begin_ns"] is not None and of_it(row)]
        if chosen:
            figure.add_scatter(
                x=[moment(row["begin_ns"], zone) for row in chosen],
                y=[row["blocking_ns"] / 1e9 for row in chosen],
                text=[f"step {row['step']:,}" for row in chosen],
                mode="markers",
                marker={"symbol": symbol, "size": 9, "color": colour},
                name=name,
                hovertemplate="%{text}<br>%{x}<br>%{y:.2f} s<extra></extra>",
            )
    figure.update_layout(
        height=320,
        margin=_ABOVE_LEGEND,
        uirevision=revision,
        showlegend=True,
        legend=_LEGEND,
    )
    figure.update_yaxes(title="seconds blocked", rangemode="tozero")
    return figure


def by_category(reports: Sequence[tuple[str, Mapping[str, float]]]) -> go.Figure:
    """Several runs side by side: of each GPU-hour, which share went where."""
    figure = go.Figure()
    names = [name for name, _ in reports]
    for category in Category:
        shares = [ratios.get(category.value, 0.0) for _, ratios in reports]
        if any(one > 0 for one in shares):
            figure.add_bar(
                y=names,
                x=shares,
                orientation="h",
                name=category.value,
                marker={"color": CATEGORY_COLOURS[category], "line": {"width": 0}},
                hovertemplate=f"%{{y}}<br>{category.value} %{{x:.1%}}<extra></extra>",
            )
    figure.update_layout(
        barmode="stack",
        height=190 + 44 * len(names),
        margin=_ABOVE_LEGEND | {"r": 28},  # the last label, 100%, reaches beyond the bars
        legend=_LEGEND,
    )
    figure.update_xaxes(tickformat=".0%", range=[0, 1], fixedrange=True)
    figure.update_yaxes(autorange="reversed", automargin=True, type="category", fixedrange=True)
    return figure


def step_times(rows: Sequence[tuple[str, Mapping[str, Any]]]) -> go.Figure:
    """How long steps take, run beside run; rows of `view_step_times`. The whiskers end at 5 and 95 of 100."""
    figure = go.Figure()
    for name, row in rows:
        figure.add_box(
            y=[name],
            q1=[row["p25_s"]],
            median=[row["median_s"]],
            q3=[row["p75_s"]],
            lowerfence=[row["p05_s"]],
            upperfence=[row["p95_s"]],
            orientation="h",
            name=name,
            marker={"color": ACCENT_COLOUR},
        )
    figure.update_layout(height=110 + 54 * len(rows), margin=_MARGIN, showlegend=False)
    figure.update_xaxes(title="seconds per step", rangemode="tozero")
    figure.update_yaxes(autorange="reversed", automargin=True, type="category")
    return figure


def last_signs(rows: Sequence[Mapping[str, Any]], incident: Incident, *, zone: tzinfo) -> go.Figure:
    """When each rank was last heard from before an attempt's end; rows of `signs`. Who stopped first stands out."""
    figure = go.Figure()
    suspects = set(incident.suspect_ranks)
    for name, suspected, colour in (
        ("rank", False, ACCENT_COLOUR),
        ("suspected", True, CATEGORY_COLOURS[Category.HANG]),
    ):
        chosen = [row for row in rows if (row["rank"] in suspects) == suspected and row["last_sign_ns"] is not None]
        if chosen:
            figure.add_scatter(
                x=[moment(row["last_sign_ns"], zone) for row in chosen],
                y=[row["rank"] for row in chosen],
                text=[f"rank {row['rank']}, in {row['phase'] or 'no phase told'}" for row in chosen],
                mode="markers",
                marker={"size": 9, "color": colour, "symbol": "x" if suspected else "circle"},
                name=name,
                hovertemplate="%{text}<br>last sign %{x}<extra></extra>",
            )
    for ns, word in ((incident.last_progress_ns, "last progress"), (incident.abort_ns, "end")):
        figure.add_vline(
            x=moment(ns, zone),
            line={"width": 1, "dash": "dot", "color": HELD_COLOUR},
        )
        figure.add_annotation(x=moment(ns, zone), y=1.0, yref="paper", text=word, showarrow=False, yanchor="bottom")
    figure.update_layout(
        height=min(240 + 12 * max(len(rows), 4), 520),
        margin=_ABOVE_LEGEND,
        legend=_LEGEND,
        showlegend=True,
    )
    figure.update_yaxes(title="rank", rangemode="tozero", dtick=1 if len(rows) <= 16 else None)
    return figure


def alt_of_breakdown(report: Report, unit: Unit) -> str:
    """The breakdown in words, for those who do not see it."""
    parts = [f"{c.value} {unit.amount(report.gpu_s[c])}" for c in Category if report.gpu_s[c] > 0]
    return f"Of {unit.amount(report.allocated_gpu_s)} held: {', '.join(parts)}."


def alt_of_timeline(report: Report, zone: tzinfo) -> str:
    """The timeline in words."""
    told = [f"{one.cause} at {when(one.abort_ns, zone)}" for one in report.incidents[:20]]
    return f"What the GPUs did over time. Incidents: {', '.join(told) or 'none'}."
