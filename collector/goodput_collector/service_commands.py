"""What the service adds to the `goodput` command: `collect`, `agent` and `rebuild`."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Annotated

import typer

from goodput_collector.options import DEFAULT_DB, Archive, Database, Url

SERVICE = typer.Typer(rich_markup_mode=None)


DEFAULT_LISTEN = "127.0.0.1:9470"
GOODPUT_TOKEN_FILE = "GOODPUT_TOKEN_FILE"
_GIB = 2**30

Spool = Annotated[
    Path | None,
    typer.Option(
        "--spool",
        envvar="GOODPUT_SPOOL",
        help="The spool folder; without it, where the recorder writes by default.",
        metavar="DIR",
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option("--token-file", envvar=GOODPUT_TOKEN_FILE, help="File with the token for writing.", metavar="FILE"),
]
SpoolLimit = Annotated[
    float, typer.Option("--spool-max-gib", help="Most GiB in the spool; beyond it the oldest files go.", min=0.001)
]

MetricLabel = Annotated[
    list[str] | None,
    typer.Option("--metric-label", help="A label of runs that goodput_run_info has; may be repeated.", metavar="NAME"),
]
MetricRuns = Annotated[int, typer.Option("--metric-runs", help="Most runs that /metrics tells of.", min=1)]
MetricHours = Annotated[
    float, typer.Option("--metric-hours", help="How long a run that ended stays in /metrics, in hours.", min=0)
]

Redact = Annotated[
    list[str] | None,
    typer.Option("--redact", help="A further pattern of what is blotted out; may be repeated.", metavar="REGEX"),
]
NoRedaction = Annotated[bool, typer.Option("--no-redaction", help="Keep what looks like a secret as it was told.")]

KeepRaw = Annotated[
    float,
    typer.Option("--keep-raw-days", help="Days for which the rows of single ranks are kept; 0: for ever.", min=0),
]


@SERVICE.command(epilog="Example: goodput collect --db run.duckdb --listen 127.0.0.1:9470")
def collect(
    spool: Spool = None,
    db: Database = DEFAULT_DB,
    archive: Annotated[
        Path | None,
        typer.Option("--archive", help="The archive's folder; by default beside the database.", metavar="DIR"),
    ] = None,
    listen: Annotated[str, typer.Option("--listen", help="Where to listen.", metavar="HOST:PORT")] = DEFAULT_LISTEN,
    token_file: TokenFile = None,
    read_token_file: Annotated[
        Path | None,
        typer.Option("--read-token-file", help="File with another token, for reading alone.", metavar="FILE"),
    ] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Listen beyond this machine without a token.")] = False,
    no_spool: Annotated[bool, typer.Option("--no-spool", help="Take only what is sent; watch no spool.")] = False,
    keep_spool: Annotated[bool, typer.Option("--keep-spool", help="Leave spool files where they are.")] = False,
    spool_max_gib: SpoolLimit = 8,
    metric_label: MetricLabel = None,
    metric_runs: MetricRuns = 200,
    metric_hours: MetricHours = 6,
    redact: Redact = None,
    no_redaction: NoRedaction = False,
    keep_raw_days: KeepRaw = 7,
) -> None:
    """Collect events, keep each once, and answer questions, until told to stop.

    Takes the spool of this machine and what agents send; the database is this process's alone.
    """
    from goodput_collector.commands import plain_errors

    with plain_errors(db):
        from goodput.directory import default_spool_directory
        from goodput_collector.access import Access, parse_address, read_token
        from goodput_collector.metrics import MetricOptions
        from goodput_collector.redaction import Redaction
        from goodput_collector.serve import ServeOptions, say_on_stderr, serve

        try:
            host, port = parse_address(listen)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--listen") from error
        try:
            metrics = MetricOptions(
                most_runs=metric_runs, ended_s=metric_hours * 3600, labels=tuple(dict.fromkeys(metric_label or ()))
            )
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--metric-label") from error
        access = Access(
            write=None if token_file is None else read_token(token_file),
            read=None if read_token_file is None else read_token(read_token_file),
        )
        options = ServeOptions(
            spool=None if no_spool else (spool or default_spool_directory()).absolute(),
            db=db,
            archive=archive or db.with_suffix(".archive"),
            host=host,
            port=port,
            access=access,
            insecure=insecure,
            keep_spool=keep_spool,
            spool_max_bytes=int(spool_max_gib * _GIB),
            metrics=metrics,
            keep_raw_s=keep_raw_days * 86_400 if keep_raw_days else None,
            redaction=Redaction(redact or (), usual=not no_redaction),
        )
        serve(options, say_on_stderr)


@SERVICE.command(epilog="Example: goodput agent --to http://collector:9470 --token-file /etc/goodput/token")
def agent(
    to: Annotated[str, typer.Option("--to", help="The collector's address.", metavar="URL")],
    spool: Spool = None,
    token_file: TokenFile = None,
    spool_max_gib: SpoolLimit = 8,
) -> None:
    """Ship a node's spool to a collector, and tell of processes that died, until told to stop."""
    from goodput_collector.commands import plain_errors

    directory = spool
    with plain_errors(Path(to)):
        from goodput.directory import default_spool_directory
        from goodput_collector.access import read_token
        from goodput_collector.shipping import Shipper
        from goodput_collector.sinks import HttpSink
        from goodput_collector.trust import check_spool, drop_rights
        from goodput_collector.watching import Watch

        directory = (spool or default_spool_directory()).absolute()
        token = None if token_file is None else read_token(token_file)  # perhaps only root may read it
        try:
            sink = HttpSink(to, token)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--to") from error
        owner = check_spool(directory)
        drop_rights(owner)
        told_to_stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: told_to_stop.set())
        shipper = Shipper(directory, sink, owner_uid=owner, complain=_say, max_bytes=int(spool_max_gib * _GIB))
        watch = Watch(shipper, _say)
        watch.start()
        _say(f"shipping {directory} to {to}")
        told_to_stop.wait()
        watch.stop()


@SERVICE.command(epilog="Example: goodput rebuild --archive goodput.archive --db again.duckdb")
def rebuild(
    archive: Annotated[Path, typer.Option("--archive", help="The collector's archive.", metavar="DIR")],
    db: Annotated[Path, typer.Option("--db", help="The database to make.", metavar="FILE")],
    redact: Redact = None,
    no_redaction: NoRedaction = False,
) -> None:
    """Make a database again from a collector's archive alone.

    Give it the --redact and --no-redaction that the collector had: they hold for the beginnings of rejected lines.
    """
    from goodput_collector.commands import plain_errors

    with plain_errors(db):
        from goodput_collector.figures import counted
        from goodput_collector.rebuild import rebuild as make_again
        from goodput_collector.redaction import Redaction

        done = make_again(archive, db, Redaction(redact or (), usual=not no_redaction))
        words = f"{counted(done.events, 'event')} of {counted(done.streams, 'stream')} in {db}."
        if done.damaged_bytes:
            words += f" {done.damaged_bytes:,} bytes of the archive were damaged and are left out."
        typer.echo(words)


@SERVICE.command(epilog="Example: goodput compact --db goodput.duckdb")
def compact(
    db: Database = DEFAULT_DB,
    archive: Archive = None,
    url: Url = None,
    token_file: TokenFile = None,
    keep_raw_days: Annotated[
        float | None,
        typer.Option(
            "--keep-raw-days", help="First close the rows of single ranks that are older than so many days.", min=0.01
        ),
    ] = None,
) -> None:
    """Copy a database into a new file without the room that nobody uses, and put that in its place.

    A collector goes on taking events meanwhile.
    """
    from goodput_collector.commands import plain_errors

    with plain_errors(db):
        import time

        from goodput_collector.commands import collector
        from goodput_collector.figures import counted
        from goodput_collector.offline import edited

        keep_ns = None if keep_raw_days is None else int(keep_raw_days * 86_400 * 10**9)
        before_ns = None if keep_ns is None else time.time_ns() - keep_ns
        if url is not None:
            with collector(url, token_file) as client:
                closed, done = client.compact(before_ns)
        else:
            with edited(db, archive or db.with_suffix(".archive")) as editor:
                closed, done = editor.compact(before_ns)
        if closed is not None:
            typer.echo(f"{counted(closed.rows, 'row')} of ranks closed in {counted(closed.runs, 'run')}.")
        typer.echo(f"{done.before_bytes / 2**20:,.1f} MiB before, {done.after_bytes / 2**20:,.1f} MiB now.")


def _say(sentence: str) -> None:
    typer.echo(f"goodput: {' '.join(sentence.split())}", err=True)
