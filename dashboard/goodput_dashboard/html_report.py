"""A run's report as one HTML file to mail: no script, nothing to load, light and dark by the reader's own setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from goodput_analytics import Category, Report
from goodput_analytics.colours import CATEGORY_COLOURS
from goodput_analytics.fleet import lost_gpu_s, price_gpu_s
from goodput_dashboard import words
from goodput_dashboard.figures import Unit, counted, duration, percent, unit_for, when

MOST_INCIDENTS = 100
_WIDTH, _HEIGHT = 1000, 160

_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.45 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: 0; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .25rem .6rem .25rem 0; border-bottom: 1px solid #8884; vertical-align: top; }
th { font-weight: 600; } td.n, th.n { text-align: right; }
.wide { overflow-x: auto; } .dim { opacity: .75; } svg { width: 100%; height: auto; }
.figures { display: flex; flex-wrap: wrap; gap: .5rem 2rem; margin: 1rem 0; }
.figures b { font-size: 1.35rem; display: block; }
.bar { height: .8rem; border-radius: 2px; }
.key { display: inline-block; width: .8rem; height: .8rem; margin: 0 .3rem 0 .8rem; }
"""


def html_report(report: Report, timeline: Sequence[Mapping[str, Any]]) -> str:
    """The whole page. `timeline` are rows of `view_timeline`."""
    unit = unit_for(report.allocated_gpu_s)
    parts = [
        f"<h1>{escape(report.run)}</h1>",
        f"<p class=dim>{report.state.value}, as of {when(report.as_of_ns)} UTC. Times are UTC.</p>",
        _figures(report, unit),
        _breakdown(report, unit),
        _timeline(timeline),
        _findings(report),
        _incidents(report, unit),
        _stragglers(report, unit),
        _checkpoints(report),
        _quality(report, unit),
    ]
    return (
        "<!doctype html><html lang=en><head><meta charset=utf-8>"
        "<meta name=viewport content='width=device-width, initial-scale=1'>"
        f"<title>Goodput of {escape(report.run)}</title><style>{_STYLE}</style></head>"
        f"<body>{''.join(parts)}</body></html>\n"
    )


def _figures(report: Report, unit: Unit) -> str:
    told = [
        ("Goodput", percent(report.goodput_ratio), words.GOODPUT),
        ("Held", unit.amount(report.allocated_gpu_s), words.HELD),
        ("Lost", unit.amount(lost_gpu_s(report)), words.LOST),
        ("At risk", unit.amount(report.at_risk_gpu_s), words.AT_RISK),
        ("Waited in the queue", duration(report.queue_wait_s), words.QUEUE),
    ]
    return (
        "<div class=figures>"
        + "".join(f"<div title='{escape(help_)}'>{name}<b>{escape(value)}</b></div>" for name, value, help_ in told)
        + "</div>"
    )


def _breakdown(report: Report, unit: Unit) -> str:
    if report.allocated_gpu_s <= 0:
        return "<p>No GPU time was held yet.</p>"
    lines = []
    for category in Category:
        gpu_s = report.gpu_s[category]
        if gpu_s <= 0:
            continue
        share = gpu_s / report.allocated_gpu_s
        bar = (
            f"<div class=bar style='width:{max(100 * share, 0.3):.2f}%;background:{CATEGORY_COLOURS[category]}'></div>"
        )
        lines.append(
            f"<tr title='{escape(words.CATEGORIES[category])}'><td>{category.value}</td>"
            f"<td style='width:45%'>{bar}</td>"
            f"<td class=n>{unit.amount(gpu_s)}</td><td class=n>{escape(percent(share))}</td></tr>"
        )
    return f"<h2>Where the GPU time went</h2><table>{''.join(lines)}</table>"


def _timeline(rows: Sequence[Mapping[str, Any]]) -> str:
    """The stretches as columns of coloured boxes, in a picture that is part of the page."""
    if not rows:
        return ""
    first, last = min(row["start_ns"] for row in rows), max(row["end_ns"] for row in rows)
    tops: dict[int, float] = {}
    for row in rows:
        tops[row["start_ns"]] = tops.get(row["start_ns"], 0.0) + row["gpus"]
    most = max(tops.values())
    order = {category.value: place for place, category in enumerate(Category)}
    paths: dict[str, list[str]] = {}
    below: dict[int, float] = {}
    for row in sorted(rows, key=lambda one: (one["start_ns"], order[one["category"]])):
        base = below.get(row["start_ns"], 0.0)
        below[row["start_ns"]] = base + row["gpus"]
        x, end = (_WIDTH * (row[key] - first) / (last - first) for key in ("start_ns", "end_ns"))
        y, height = _HEIGHT * (1 - below[row["start_ns"]] / most), _HEIGHT * row["gpus"] / most
        paths.setdefault(row["category"], []).append(f"M{x:.2f} {y:.2f}h{end - x:.2f}v{height:.2f}h{x - end:.2f}z")
    drawn = "".join(f"<path fill='{CATEGORY_COLOURS[name]}' d='{''.join(path)}'/>" for name, path in paths.items())
    key = "".join(
        f"<span class=key style='background:{CATEGORY_COLOURS[c]}'></span>{c.value}" for c in Category if c in paths
    )
    return (
        "<h2>Over time</h2>"
        f"<svg viewBox='0 0 {_WIDTH} {_HEIGHT}' preserveAspectRatio=none role=img shape-rendering=crispEdges "
        f"aria-label='What up to {most:,.0f} GPUs did over time'>{drawn}</svg>"
        f"<p class=dim>{when(first)} to {when(last)}; the height is {most:,.0f} GPUs.</p><p>{key}</p>"
    )


def _findings(report: Report) -> str:
    if not report.findings:
        return ""
    told = "".join(
        f"<li><b>{escape(one.says)}</b><br>{escape(one.evidence)}<br><i>Next:</i> {escape(one.next)}</li>"
        for one in report.findings
    )
    return f"<h2>What to do</h2><ol>{told}</ol>"


def _table(heads: Sequence[tuple[str, bool]], lines: Sequence[Sequence[str]]) -> str:
    """A table; of each head, whether its column holds figures."""
    top = "".join(f"<th{' class=n' if figure else ''}>{escape(head)}</th>" for head, figure in heads)
    body = "".join(
        "<tr>"
        + "".join(
            f"<td{' class=n' if figure else ''}>{escape(cell)}</td>"
            for cell, (_, figure) in zip(line, heads, strict=True)
        )
        + "</tr>"
        for line in lines
    )
    return f"<div class=wide><table><tr>{top}</tr>{body}</table></div>"


def _incidents(report: Report, unit: Unit) -> str:
    if not report.incidents:
        return "<h2>Incidents</h2><p>None.</p>"
    dearest = sorted(report.incidents, key=price_gpu_s, reverse=True)[:MOST_INCIDENTS]
    shown = [one for one in report.incidents if one in dearest]
    lines = [
        [
            str(one.attempt),
            one.cause,
            when(one.abort_ns),
            duration(one.detection_s),
            f"{one.lost_steps:,}",
            unit.number(one.hang_gpu_s),
            unit.number(one.rework_gpu_s),
            unit.number(one.restart_gpu_s),
            unit.number(price_gpu_s(one)),
            ", ".join(map(str, one.suspect_ranks[:8])) or "–",
        ]
        for one in shown
    ]
    heads = [("attempt", True), ("cause", False), ("ended", False), ("found in", True), ("lost steps", True)]
    heads += [(word, True) for word in ("hang", "rework", "restart", unit.short)] + [("suspected ranks", False)]
    rest = len(report.incidents) - len(shown)
    more = f"<p class=dim>and {counted(rest, 'cheaper one')}</p>" if rest else ""
    return f"<h2>Incidents ({len(report.incidents):,})</h2>{_table(heads, lines)}{more}"


def _stragglers(report: Report, unit: Unit) -> str:
    if not report.stragglers:
        return ""
    lines = [
        [
            str(one.rank),
            one.node or "unknown",
            unit.number(one.loss_gpu_s),
            f"{one.slowest_steps:,}",
            "unknown" if one.slowdown_ratio is None else f"{one.slowdown_ratio:.2f} ×",
        ]
        for one in report.stragglers[:MOST_INCIDENTS]
    ]
    heads = [
        ("rank", True),
        ("node", False),
        (unit.short, True),
        ("steps as the latest", True),
        ("beside the median", True),
    ]
    return f"<h2>Slow ranks</h2>{_table(heads, lines)}"


def _checkpoints(report: Report) -> str:
    saves = report.checkpoints
    lines = [
        ["saves", f"{saves.count:,}"],
        ["failed or never durable", f"{saves.failed:,}"],
        ["each blocks", duration(saves.mean_blocking_s)],
        ["one every", duration(saves.mean_interval_s)],
        ["time between unplanned failures", duration(saves.mtbf_s)],
        ["advised by Young", duration(saves.young_s)],
        ["advised by Daly", duration(saves.daly_s)],
    ]
    return f"<h2>Checkpoints</h2>{_table([('', False), ('', True)], lines)}"


def _quality(report: Report, unit: Unit) -> str:
    quality = report.quality
    told: list[tuple[str, str]] = [("events", f"{quality.events:,}")]
    for key in ("duplicates", "conflicts", "gaps", "dropped", "sources_without_start", "missing_steps"):
        count = getattr(quality, key)
        if count:
            told.append((key, f"{count:,}"))
    if quality.rejected:
        reasons = ", ".join(f"{why} {count:,}" for why, count in sorted(quality.rejected.items()))
        told.append(("rejected", f"{sum(quality.rejected.values()):,} ({reasons})"))
    if quality.silent_ranks:
        told.append(("silent_ranks", f"{len(quality.silent_ranks):,}"))
    told.append(("max_skew_s", duration(quality.max_skew_s)))
    told.append(("assumed_gpu_s", unit.amount(quality.assumed_gpu_s)))
    lines = [
        [key.replace("_", " ").removesuffix(" s").removesuffix(" gpu"), figure, words.QUALITY[key]]
        for key, figure in told
    ]
    return f"<h2>What this rests on</h2>{_table([('', False), ('', True), ('', False)], lines)}"
