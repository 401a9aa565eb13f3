"""What this room adds to the `goodput` command: `ingest`, `report` and `demo`.

The command line loads this module to list its commands, so nothing heavy is imported before one of them runs.
"""

from __future__ import annotations

import json as json_text
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from goodput_collector.advice_commands import ADVICE
from goodput_collector.allocation_commands import ALLOCATION
from goodput_collector.contract import TIME_LIMIT_NS
from goodput_collector.correct_commands import CORRECT
from goodput_collector.figures import NS_PER_S, counted, name
from goodput_collector.flight_commands import FLIGHT
from goodput_collector.metrics_commands import METRICS
from goodput_collector.options import DEFAULT_DB, AsJson, Database, ReadTokenFile, Url
from goodput_collector.service_commands import SERVICE, NoRedaction, Redact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from goodput_analytics import Report, RunSummary
    from goodput_collector.client import HttpClient
    from goodput_collector.landing import IngestSummary

COMMANDS = typer.Typer(rich_markup_mode=None)
COMMANDS.add_typer(SERVICE)
COMMANDS.add_typer(ADVICE)
COMMANDS.add_typer(FLIGHT)
COMMANDS.add_typer(METRICS)
COMMANDS.add_typer(ALLOCATION, name="allocation")
COMMANDS.add_typer(CORRECT, name="correct")

SCHEMA = 1
MOST_NAMES = 8
HTML_GROUP = "goodput.reports"
HTML_POINTS = 480
MOST_RUNS = 1_000
_WHERE_EVENTS_ARE = (
    "`goodput doctor` names the folder that the recorder writes to; what a collector took is in its own database."
)


@COMMANDS.command(epilog="Example: goodput ingest /tmp/goodput-1000 --db run.duckdb")
def ingest(
    files: Annotated[
        list[Path], typer.Argument(help="Event files (JSON Lines), or folders of them.", metavar="FILE...")
    ],
    db: Database = DEFAULT_DB,
    redact: Redact = None,
    no_redaction: NoRedaction = False,
    json: AsJson = False,
) -> None:
    """Load event files into a database, once, and exit. What was loaded before is not loaded again."""
    with plain_errors(db):
        from goodput_collector.landing import ingest_files
        from goodput_collector.redaction import Redaction

        redaction = Redaction(redact or (), usual=not no_redaction)
        with _progress_bar() as progress:
            summary = ingest_files(db, _event_files(files), progress, redaction)
        if json:
            _print_json(asdict(summary))
        else:
            typer.echo(_ingest_words(summary, db))
        if summary.rejected and not summary.events:
            # Not a line could be taken: a script that goes on from here would report nothing.
            raise typer.Exit(1)


@COMMANDS.command(epilog="Example: goodput report llama-7b --db run.duckdb")
def report(
    run: Annotated[str | None, typer.Argument(help="The run; without it, the runs are listed.", metavar="RUN")] = None,
    db: Database = DEFAULT_DB,
    url: Url = None,
    token_file: ReadTokenFile = None,
    json: AsJson = False,
    html: Annotated[
        Path | None, typer.Option("--html", help="Write the report as one HTML file, to mail.", metavar="FILE")
    ] = None,
    expected_step_s: Annotated[
        float | None,
        typer.Option(help="What a step should take, in seconds: what steps take beyond it counts as lost."),
    ] = None,
) -> None:
    """Show where the GPU time of a run went. Without RUN, list the runs."""
    if expected_step_s is not None and not 1 <= expected_step_s * NS_PER_S < TIME_LIMIT_NS:
        raise typer.BadParameter(
            "a step takes at least a nanosecond and less than 146 years", param_hint="--expected-step-s"
        )
    if html is not None and (run is None or json):
        raise typer.BadParameter("name the RUN that the file is about, and leave out --json", param_hint="--html")
    if url is not None and expected_step_s is not None:
        raise typer.BadParameter("a collector was told with which settings it computes", param_hint="--expected-step-s")
    if url is None and token_file is not None:
        raise typer.BadParameter("a token is for a collector: name one with --url", param_hint="--token-file")
    with plain_errors(db):
        from goodput_analytics import UnknownRun
        from goodput_collector import report_view

        if run is None:
            runs = _runs(db, url, token_file)
            if json:
                _print_json({"schema": SCHEMA, "runs": [asdict(one) for one in runs]})
            else:
                report_view.print_view(report_view.runs_view(runs), report_view.terminal())
            return
        points = HTML_POINTS if html is not None else 0
        try:
            if url is None:
                breakdown, timeline = _breakdown(db, run, expected_step_s, points)
            else:
                with collector(url, token_file) as client:
                    breakdown = client.report(run)
                    timeline = client.relation("view_timeline", run, limit=points).table.to_pylist() if points else []
        except UnknownRun as error:
            fail(unknown_run_words(run, error.known, db if url is None else url))
        if html is not None:
            _write_html(html, breakdown, timeline)
        elif json:
            _print_json(breakdown.as_json())
        else:
            report_view.print_view(report_view.report_view(breakdown, time.time_ns()), report_view.terminal())


def _runs(db: Path, url: str | None, token_file: Path | None) -> list[RunSummary]:
    if url is not None:
        with collector(url, token_file) as client:
            return client.runs(MOST_RUNS)
    import goodput_analytics
    from goodput_collector.database import open_database

    connection = open_database(db, read_only=True)
    try:
        return goodput_analytics.runs(connection)
    finally:
        connection.close()


def _breakdown(db: Path, run: str, expected_step_s: float | None, points: int) -> tuple[Report, list[dict[str, Any]]]:
    """A run's breakdown from a file, and its timeline in at most so many rows."""
    import goodput_analytics
    import goodput_analytics.views
    from goodput_analytics.settings import Settings
    from goodput_collector.database import open_database

    settings = Settings(expected_step_ns=None if expected_step_s is None else round(expected_step_s * NS_PER_S))
    connection = open_database(db, read_only=True)
    try:
        breakdown = goodput_analytics.report(connection, run, settings=settings)
        return breakdown, goodput_analytics.views.timeline(connection, most=points).to_pylist() if points else []
    finally:
        connection.close()


@contextmanager
def collector(url: str, token_file: Path | None) -> Iterator[HttpClient]:
    """A client of the collector at an address."""
    from goodput_collector.access import read_token
    from goodput_collector.client import HttpClient

    try:
        client = HttpClient(url, None if token_file is None else read_token(token_file))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--url") from error
    try:
        yield client
    finally:
        client.close()


def _write_html(file: Path, breakdown: Report, timeline: list[dict[str, Any]]) -> None:
    """The report as a page. The dashboard's room draws it, and offers that by an entry point, as it does commands."""
    from importlib.metadata import entry_points

    offered = [point for point in entry_points(group=HTML_GROUP) if point.name == "html"]
    if not offered:
        fail("the dashboard's room, which draws HTML, is not installed: pip install 'goodput-ledger[dashboard]'")
    file.write_text(offered[0].load()(breakdown, timeline), encoding="utf-8")
    typer.echo(f"{file} holds the report; it needs nothing else to be read.")


@COMMANDS.command(epilog="Example: goodput demo --seconds 60 --ranks 2 --faults kill,slow_save")
def demo(
    seconds: Annotated[float, typer.Option(help="About how long the training goes on.")] = 120,
    ranks: Annotated[int, typer.Option(help="Training processes, 1 to 8.")] = 4,
    faults: Annotated[
        str, typer.Option(help="What is done to the run: kill, hang, slow_rank, slow_save, with commas; or none.")
    ] = "kill,hang,slow_rank,slow_save",
    keep: Annotated[
        Path | None, typer.Option(help="Keep events, database and logs in this folder.", metavar="DIR")
    ] = None,
) -> None:
    """Train a small model, break it on purpose, show the ledger.

    The ledger is printed beside what was really done to the run, line by line; the exit status is 1 if they differ.
    """
    with plain_errors(DEFAULT_DB):
        from goodput_collector.demo import DemoOptions, run_demo

        chosen = tuple(word.strip() for word in faults.split(",") if word.strip())
        try:
            options = DemoOptions(seconds=seconds, ranks=ranks, faults=chosen, keep=keep)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error
        raise typer.Exit(run_demo(options))


@contextmanager
def plain_errors(db: Path) -> Iterator[None]:
    """Turn what a user can cause and mend into one line on stderr and exit status 1; let everything else pass."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package.startswith("goodput"):
            raise  # a part of our own is missing: that is for us to mend, not for the user
        extra = "torch" if package == "torch" else "collector"
        fail(f"{package} is not installed: pip install 'goodput-ledger[{extra}]'")
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        fail(f"{error.filename or db}: {error.strerror or error}")
    except Exception as error:
        from goodput_collector.errors import GoodputCollectorError

        if isinstance(error, GoodputCollectorError):
            fail(str(error))
        if "duckdb" in sys.modules:
            from goodput_collector.database import storage_fault

            fault = storage_fault(str(db), error)
            if fault is not None:
                fail(str(fault))
        raise


def fail(message: str) -> NoReturn:
    """Say in one line on stderr what went wrong and what to do, and end with exit status 1."""
    typer.echo(f"goodput: {' '.join(message.split())}", err=True)
    raise typer.Exit(1)


def unknown_run_words(run: str, known: Sequence[str], db: Path | str) -> str:
    """What to say to someone who asked for a run that is not there: the nearest names first."""
    from difflib import get_close_matches

    if not known:
        if isinstance(db, str):
            return f"the collector at {db} has heard of no run yet"
        return f"{db} holds no run yet: load event files with goodput ingest FILE... --db {db}"
    nearest = get_close_matches(run, known, n=1)
    listed = [*nearest, *(name for name in known if name not in nearest)]
    hint = f"did you mean {name(nearest[0])}? It" if nearest else "it"
    return f"no run {name(run)!r} in {db}; {hint} holds: {_names(listed)}"


def _ingest_words(summary: IngestSummary, db: Path) -> str:
    """What came of an ingest, in a line or two."""
    rejected = sum(summary.rejected.values())
    reasons = ", ".join(f"{why} {number:,}" for why, number in sorted(summary.rejected.items()))
    parts = [f"{counted(summary.events, 'event')} read", f"{summary.new:,} new"]
    if summary.duplicates:
        parts.append(counted(summary.duplicates, "duplicate"))
    if summary.conflicts:
        parts.append(f"{summary.conflicts:,} that came again with another content")
    if rejected:
        parts.append(f"{counted(rejected, 'line')} rejected ({reasons})")
    said = "; ".join(parts)
    if not summary.runs:
        hint = "" if summary.events else f"\nNo event was found there. {_WHERE_EVENTS_ARE}"
        return f"{said}; no run.{hint}"
    runs = f"{'run' if len(summary.runs) == 1 else 'runs'} {_names(summary.runs)}"
    # With one run the command shows it; with several, or with a name that is hard to type, it lists them.
    only = summary.runs[0] if len(summary.runs) == 1 else ""
    which = f"{shlex.quote(only)} " if only and only == name(only) and not only.startswith("-") else ""
    return f"{said}; {runs}.\nNext: goodput report {which}--db {shlex.quote(str(db))}"


def _names(names: Sequence[str]) -> str:
    """The first names of a list, and how many more there are."""
    more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
    return ", ".join(name(one) for one in names[:MOST_NAMES]) + more


@contextmanager
def _progress_bar() -> Iterator[Callable[[int, int], None] | None]:
    """A bar of bytes done on stderr, when a person is watching it; else None."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

    columns = (BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=None)
        yield lambda done_bytes, total_bytes: progress.update(task, completed=done_bytes, total=total_bytes)


def _event_files(paths: Sequence[Path]) -> list[Path]:
    """The files themselves, and for a folder the event files in it, in order of their names.

    A spool folder may hold what dead processes left in memory: it is taken up first.
    """
    from goodput.spool import recover_dead

    files: list[Path] = []
    for path in paths:
        if not path.is_dir():
            files.append(path)
            continue
        recover_dead(path)
        inside = sorted(file for file in path.iterdir() if file.name.endswith((".jsonl", ".jsonl.gz")))
        if not inside:
            fail(f"{path} is a folder without event files (*.jsonl). {_WHERE_EVENTS_ARE}")
        files += inside
    return files


def _print_json(value: Any) -> None:
    # Strict JSON: a NaN would be read by few and must not leave us.
    typer.echo(json_text.dumps(value, indent=2, allow_nan=False))
