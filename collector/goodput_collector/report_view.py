"""The breakdown of a run in a terminal: one screen that tells where the GPU time went, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.columns import Columns
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

from goodput_analytics.colours import CATEGORY_COLOURS
from goodput_collector.figures import NS_PER_S, UNKNOWN, GpuTime, counted, duration, moment, name, percent, plain

if TYPE_CHECKING:
    from goodput_analytics.model import Checkpoints, Incident, Quality, Report, RunSummary, Straggler

STATE_COLOURS = {
    "running": CATEGORY_COLOURS["productive"],
    "finished": CATEGORY_COLOURS["productive"],
    "hung": CATEGORY_COLOURS["hang"],
    "failed": CATEGORY_COLOURS["hang"],
    "lost": CATEGORY_COLOURS["hang"],
    "paused": CATEGORY_COLOURS["straggler"],
}
NOT_LOST = ("productive", "evaluation")
LIVE = ("running", "hung", "paused")

MAX_WIDTH = 110  # a longer line is harder to follow from the name to the figure
WIDE = 76  # from here on the incidents' times have room
MAX_INCIDENTS = 12
MAX_PHASES = 5
SKEW_FROM_S = 0.1  # clocks of one node differ by less, and it is taken off anyway
PHASES_FROM_RATIO = 0.01  # phases are of interest only where the category is


class Bar:
    """A bar `ratio` of the cell long, in eighths of a character; in `#` where the terminal has no blocks."""

    def __init__(self, ratio: float, style: str) -> None:
        self.ratio = min(max(ratio, 0.0), 1.0)
        self.style = Style.parse(style)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        if options.ascii_only:
            text = "#" * (max(1, round(self.ratio * width)) if self.ratio > 0 else 0)
        else:
            eighths = max(1, round(self.ratio * width * 8)) if self.ratio > 0 else 0
            text = "█" * (eighths // 8) + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[eighths % 8]
        yield Segment(text, self.style)
        yield Segment(" " * (width - len(text)))


def report_view(report: Report, asked_ns: int | None = None) -> RenderableType:
    """Everything that `goodput report RUN` shows, for `print_view`.

    `asked_ns` is the wall clock of who asks about a report that knows no "now" but the run's last event: of a live run
    it then shows how long ago that was, since a run that died without a word looks live until somebody's clock counts.
    """
    unit = GpuTime.for_total(report.allocated_gpu_s)
    parts = [
        _header(report, unit, asked_ns),
        Text(),
        _breakdown(report, unit),
        *_incidents(report.incidents, unit),
        *_stragglers(report, unit),
        *_findings(report),
        *_section("Checkpoints", [Text(checkpoint_words(report.checkpoints))]),
        *_section("What this rests on", [Text(quality_words(report.quality, unit))]),
    ]
    return Group(*parts)


def runs_view(runs: Sequence[RunSummary]) -> RenderableType:
    """The list of runs, one a line."""
    if not runs:
        return Text("This database holds no run yet. Load event files with: goodput ingest FILE...")
    return _RunTable(runs)


class _RunTable:
    """The runs, each in GPU-hours with decimals to suit it; where the terminal is narrow, without the moments."""

    def __init__(self, runs: Sequence[RunSummary]) -> None:
        self.runs = runs

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        wide = options.max_width >= WIDE
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
        table.add_column("run", overflow="fold", min_width=12)
        table.add_column("state", no_wrap=True)
        for heading in ("GPU-hours", "goodput", "attempts"):
            table.add_column(heading, justify="right", no_wrap=True)
        if wide:
            table.add_column("last event (UTC)", no_wrap=True)
        for run in self.runs:
            table.add_row(
                Text(name(run.run)),
                Text(run.state or UNKNOWN, style=STATE_COLOURS.get(run.state or UNKNOWN, "")),
                GpuTime.hours(run.allocated_gpu_s or 0.0).number(run.allocated_gpu_s),
                percent(run.goodput_ratio),
                f"{run.attempts:,}",
                *([moment(run.last_event_ns)] if wide else []),
            )
        yield table


def print_view(view: RenderableType, console: Console) -> None:
    """Print a view no wider than is good to read; where no person watches, without blanks at the ends of lines."""
    width = min(console.width, MAX_WIDTH)
    if console.is_terminal:
        console.print(view, width=width)
        return
    with console.capture() as captured:
        console.print(view, width=width)
    console.file.write("\n".join(line.rstrip(" ") for line in captured.get().split("\n")))


def terminal() -> Console:
    """A console on stdout: colour for a terminal only, none with NO_COLOR, 80 columns where there is no terminal."""
    return Console(highlight=False, markup=False, emoji=False)


def _header(report: Report, unit: GpuTime, asked_ns: int | None) -> RenderableType:
    top = Table.grid(expand=True, padding=(0, 2, 0, 0))
    top.add_column(overflow="fold")
    top.add_column(justify="right", no_wrap=True)
    title = Text.assemble(
        (name(report.run), "bold"), "  ", (report.state, f"bold {STATE_COLOURS.get(report.state, '')}")
    )
    top.add_row(title, Text(f"as of {moment(report.as_of_ns)} UTC", style="dim"))
    lost_gpu_s = sum(gpu_s for category, gpu_s in report.gpu_s.items() if category not in NOT_LOST)
    figures = [
        Text.assemble(
            ("goodput ", "bold"),
            (percent(report.goodput_ratio), f"bold {CATEGORY_COLOURS['productive']}"),
        ),
        Text(f"held {unit.amount(report.allocated_gpu_s)}"),
        Text(f"lost {unit.number(lost_gpu_s)}"),
        Text(f"at risk {unit.number(report.at_risk_gpu_s)}"),
    ]
    life = Text(
        f"{counted(len(report.attempts), 'attempt')}, {counted(len(report.incidents), 'incident')}, "
        f"queue wait {duration(report.queue_wait_s)}",
        style="dim",
    )
    return Group(top, *_silence(report, asked_ns), Columns(figures, padding=(0, 3)), life)


def _silence(report: Report, asked_ns: int | None) -> list[RenderableType]:
    if asked_ns is None or report.state not in LIVE or asked_ns < report.as_of_ns:
        return []
    age = duration((asked_ns - report.as_of_ns) / NS_PER_S)
    return [Text(f"last event {age} ago, when asked at {moment(asked_ns)} UTC", style="bold")]


def _breakdown(report: Report, unit: GpuTime) -> RenderableType:
    """One bar per category that has any time: productive first, then by size; bars are drawn to the largest."""
    table = Table.grid(expand=True, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, min_width=14)
    table.add_column(ratio=1)
    for _ in range(2):
        table.add_column(justify="right", no_wrap=True)
    largest = max(report.gpu_s.values(), default=0.0)
    order = sorted(report.gpu_s, key=lambda c: (c != "productive", -report.gpu_s[c]))
    for category in order:
        gpu_s, colour = report.gpu_s[category], CATEGORY_COLOURS.get(category, "")
        if gpu_s <= 0:
            continue
        share = gpu_s / report.allocated_gpu_s
        table.add_row(
            Text(category),
            Bar(gpu_s / largest, colour),
            f"{unit.number(gpu_s)} {unit.short}",
            percent(share),
        )
        if share >= PHASES_FROM_RATIO:
            for phase, phase_gpu_s in _largest_phases(report.phases_gpu_s.get(category, {})):
                table.add_row(
                    Text(f"  {plain(phase)}", style="dim", overflow="ellipsis"),
                    Bar(phase_gpu_s / largest, f"dim {colour}"),
                    Text(f"{unit.number(phase_gpu_s)} {unit.short}", style="dim"),
                    Text(percent(phase_gpu_s / report.allocated_gpu_s), style="dim"),
                )
    empty = [category for category in report.gpu_s if report.gpu_s[category] <= 0]
    if len(empty) == len(report.gpu_s):
        return Text("No GPU time was held yet.")
    notes = [*([f"nothing in {', '.join(empty)}"] if empty else []), "the longest bar is the largest category"]
    return Group(table, *(Text(note, style="dim") for note in notes))


def _largest_phases(phases: dict[str, float]) -> list[tuple[str, float]]:
    """The phases worth a line, largest first; what would make the list long is added up as `others`."""
    held = sorted(((phase, gpu_s) for phase, gpu_s in phases.items() if gpu_s > 0), key=lambda p: (-p[1], p[0]))
    if len(held) <= MAX_PHASES:
        return held
    kept, rest = held[: MAX_PHASES - 1], held[MAX_PHASES - 1 :]
    return [*kept, (f"{len(rest)} others", sum(gpu_s for _, gpu_s in rest))]


def _incident_price(incident: Incident) -> float:
    return incident.hang_gpu_s + incident.rework_gpu_s + incident.restart_gpu_s


class _IncidentTable:
    """The incidents in order of time; where the terminal is narrow, without the moments."""

    def __init__(self, incidents: Sequence[Incident], unit: GpuTime) -> None:
        self.incidents, self.unit = incidents, unit

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        wide = options.max_width >= WIDE
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
        table.add_column("#", justify="right", no_wrap=True)
        table.add_column("cause", no_wrap=True)
        if wide:
            table.add_column("ended (UTC)", no_wrap=True)
            table.add_column("found in", justify="right", no_wrap=True)
        table.add_column("lost steps", justify="right")
        for heading in ("hang", "rework", "restart", self.unit.short):
            table.add_column(heading, justify="right", no_wrap=True)
        for incident in self.incidents:
            moments = [moment(incident.abort_ns)[5:], duration(incident.detection_s)] if wide else []
            table.add_row(
                str(incident.attempt),
                Text(plain(incident.cause)),
                *moments,
                f"{incident.lost_steps:,}",
                self.unit.number(incident.hang_gpu_s),
                self.unit.number(incident.rework_gpu_s),
                self.unit.number(incident.restart_gpu_s),
                Text(self.unit.number(_incident_price(incident)), style="bold"),
            )
        yield table
        suspected: dict[tuple[int, ...], list[int]] = {}
        for incident in self.incidents:
            if incident.suspect_ranks:
                suspected.setdefault(incident.suspect_ranks, []).append(incident.attempt)
        for ranks, attempts in suspected.items():
            yield Text(f"{_numbers('attempt', attempts)}: suspected {_numbers('rank', ranks)}")


def _incidents(incidents: Sequence[Incident], unit: GpuTime) -> list[RenderableType]:
    if not incidents:
        return []
    dearest = sorted(incidents, key=_incident_price, reverse=True)
    shown = [i for i in incidents if i in dearest[:MAX_INCIDENTS]]
    body: list[RenderableType] = [_IncidentTable(shown, unit)]
    if left := dearest[MAX_INCIDENTS:]:
        price = unit.amount(sum(map(_incident_price, left)))
        body.append(
            Text(f"and {counted(len(left), 'cheaper incident')}, {price} in all (--json has them)", style="dim")
        )
    return _section(f"Incidents ({len(incidents)})", body)


def _stragglers(report: Report, unit: GpuTime) -> list[RenderableType]:
    if report.stragglers:
        return _section("Slow ranks", [Text(straggler_words(slow, unit)) for slow in report.stragglers])
    if report.gpu_s.get("straggler", 0.0) > 0:
        return _section("Slow ranks", [Text("No rank can be named: nothing shows that the wait was for one of them.")])
    return []


def _findings(report: Report) -> list[RenderableType]:
    if not report.findings:
        return []
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for number, finding in enumerate(report.findings, start=1):
        table.add_row(f"{number}.", Text(plain(finding.says), style="bold"))
        table.add_row("", Text(plain(finding.evidence)))
        table.add_row("", Text.assemble(("Next: ", "bold"), plain(finding.next)))
    return _section("Findings", [table])


def _section(title: str, body: Iterable[RenderableType]) -> list[RenderableType]:
    return [Text(), Text(title, style="bold underline"), *body]


def _numbers(word: str, numbers: Sequence[int], most: int = 8) -> str:
    """`rank 3`, `ranks 3, 8-15`, or the first `most` of them and how many there are in all."""
    stretches: list[list[int]] = []
    for number in sorted(set(numbers)):
        if stretches and number == stretches[-1][1] + 1:
            stretches[-1][1] = number
        else:
            stretches.append([number, number])
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in stretches]
    rest = f", ... ({len(set(numbers)):,} in all)" if len(texts) > most else ""
    return f"{word if len(set(numbers)) == 1 else word + 's'} {', '.join(texts[:most])}{rest}"


def straggler_words(slow: Straggler, unit: GpuTime) -> str:
    """One slow rank in one line."""
    node = plain(slow.node) if slow.node is not None else "an unknown node"
    ratio = "by an unknown factor" if slow.slowdown_ratio is None else f"{slow.slowdown_ratio:.2f} x the median rank"
    return (
        f"rank {slow.rank} on {node}: cost {unit.amount(slow.loss_gpu_s)}, "
        f"the latest in {counted(slow.slowest_steps, 'step')}, {ratio}"
    )


def checkpoint_words(saves: Checkpoints) -> str:
    """The job's saves and the advised interval, in words."""
    if saves.count == 0 and saves.failed == 0:
        done = "No save was reported."
    else:
        failed = f" and {saves.failed:,} that failed" if saves.failed else ""
        done = f"{counted(saves.count, 'save')}{failed}; each blocks {duration(saves.mean_blocking_s)}, " + (
            "how far apart is not known."
            if saves.mean_interval_s is None
            else f"one every {duration(saves.mean_interval_s)}."
        )
    if saves.young_s is None and saves.daly_s is None:
        advice = "No interval can be advised: that takes a save and an unplanned failure."
    else:
        advice = f"Advised: every {duration(saves.young_s)} (Young) or {duration(saves.daly_s)} (Daly)."
    return f"{done} Time between unplanned failures: {duration(saves.mtbf_s)}. {advice}"


def quality_words(quality: Quality, unit: GpuTime) -> str:
    """What the figures rest on, in words: only what a reader has to know, and a plain word when all is well."""
    rejected = sum(quality.rejected.values())
    reasons = ", ".join(
        f"{plain(why)} {n:,}" for why, n in sorted(quality.rejected.items(), key=lambda r: (-r[1], r[0]))
    )
    flaws = [
        (quality.duplicates, f"{counted(quality.duplicates, 'duplicate')} dropped"),
        (quality.conflicts, f"{counted(quality.conflicts, 'event')} came again with another content"),
        (rejected, f"{counted(rejected, 'line')} rejected ({reasons})"),
        (quality.gaps, f"{counted(quality.gaps, 'sequence number')} missing"),
        (quality.dropped, f"{counted(quality.dropped, 'event')} dropped by the recorder"),
        (quality.missing_steps, f"{counted(quality.missing_steps, 'step')} without an event"),
        (quality.max_skew_s >= SKEW_FROM_S, f"clocks apart by up to {duration(quality.max_skew_s)}"),
        (quality.negative_durations, f"{counted(quality.negative_durations, 'end')} before the start"),
        (len(quality.silent_ranks), f"{_numbers('rank', quality.silent_ranks)} never reported"),
        (quality.sources_without_start, f"{counted(quality.sources_without_start, 'source')} without a start left out"),
        (quality.assumed_gpu_s, f"{unit.amount(quality.assumed_gpu_s)} assumed, not observed"),
    ]
    seen = [words for amount, words in flaws if amount]
    events = counted(quality.events, "event")
    return f"{events}; {'; '.join(seen)}." if seen else f"{events}, none missing, doubled or rejected."
