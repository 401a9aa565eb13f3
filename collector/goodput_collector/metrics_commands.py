"""What the metrics add to the `goodput` command: `export`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

METRICS = typer.Typer(rich_markup_mode=None)


@METRICS.command(
    epilog="Example: goodput export --textfile /var/lib/node_exporter/goodput.prom --to http://collector:9470"
)
def export(
    textfile: Annotated[
        Path, typer.Option("--textfile", help="The file to write, whole or not at all.", metavar="PATH")
    ],
    to: Annotated[
        str | None, typer.Option("--url", "--to", help="Ask the collector at this address.", metavar="URL")
    ] = None,
    db: Annotated[
        Path, typer.Option("--db", envvar="GOODPUT_DB", help="Or read this database, which no collector holds.")
    ] = Path("goodput.duckdb"),
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", envvar="GOODPUT_TOKEN_FILE", help="File with the token.", metavar="FILE"),
    ] = None,
    metric_label: Annotated[
        list[str] | None,
        typer.Option("--metric-label", help="With --db: a label of runs that goodput_run_info has.", metavar="NAME"),
    ] = None,
) -> None:
    """Write the metrics to a file for the textfile collector of node_exporter, once, and exit."""
    from goodput_collector.commands import plain_errors

    with plain_errors(db):
        from goodput_collector.access import read_token
        from goodput_collector.metrics import MetricOptions
        from goodput_collector.metrics_export import text_of_collector, text_of_database, write_whole

        if textfile.suffix != ".prom":
            raise typer.BadParameter("node_exporter reads files that end in .prom", param_hint="--textfile")
        if to is not None:
            token = None if token_file is None else read_token(token_file)
            try:
                body = text_of_collector(to, token)
            except ValueError as error:
                raise typer.BadParameter(str(error), param_hint="--url") from error
        else:
            try:
                options = MetricOptions(labels=tuple(dict.fromkeys(metric_label or ())))
            except ValueError as error:
                raise typer.BadParameter(str(error), param_hint="--metric-label") from error
            body = text_of_database(db, time.time_ns(), options)
        write_whole(textfile, body)
