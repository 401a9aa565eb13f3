"""What this room adds to the `goodput` command: `dashboard` and `compare`."""

from __future__ import annotations

import importlib.util
import json as json_text
import os
import signal
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from goodput_collector.client import FileClient, HttpClient

COMMANDS = typer.Typer(rich_markup_mode=None)

DEFAULT_DB = Path("goodput.duckdb")
DEFAULT_LISTEN = "127.0.0.1:8501"
NEEDED = ("streamlit", "plotly", "pandas")

Database = Annotated[
    Path, typer.Option("--db", envvar="GOODPUT_DB", help="The database file.", metavar="FILE", show_default=True)
]
Url = Annotated[
    str | None,
    typer.Option("--url", help="A collector's address, instead of a file.", metavar="URL", show_default=False),
]
TokenFile = Annotated[
    Path | None, typer.Option("--token-file", help="File with the collector's token for reading.", metavar="FILE")
]


@COMMANDS.command(
    epilog="Example: goodput dashboard --url http://127.0.0.1:9470; or: goodput dashboard --db run.duckdb"
)
def dashboard(
    db: Database = DEFAULT_DB,
    url: Url = None,
    token_file: TokenFile = None,
    listen: Annotated[
        str, typer.Option("--listen", help="Where to serve the pages.", metavar="HOST:PORT")
    ] = DEFAULT_LISTEN,
    base_path: Annotated[
        str, typer.Option("--base-path", help="The path behind a reverse proxy, such as /goodput.", metavar="PATH")
    ] = "",
    open_: Annotated[bool, typer.Option("--open", help="Open a browser on it.")] = False,
) -> None:
    """Serve pages that show where the GPU time went, from a running collector or from a file, until told to stop."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        _fail(f"{missing[0]} is not installed: pip install 'goodput-ledger[dashboard]'")
    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise typer.BadParameter("give a host and a port, such as 127.0.0.1:8501", param_hint="--listen")
    if url is not None:
        _check_url(url)
    elif not db.is_file():
        _fail(
            f"there is no database at {db}; load events with goodput ingest FILE... --db {db}, "
            "or name a collector with --url"
        )
    if token_file is not None and not token_file.is_file():
        _fail(f"{token_file}: there is no such file; it holds the collector's token for reading")
    from goodput_dashboard.launching import environment, server_command

    where = url if url is not None else str(db.absolute())
    place = f"http://{host}:{port}/{base_path.strip('/')}"
    typer.echo(f"goodput: {where} is shown at {place} (end with Ctrl-C)", err=True)
    process = subprocess.Popen(
        server_command(host, int(port), base_path, browse=open_),
        stdout=subprocess.DEVNULL,  # Streamlit's own greeting; what goes wrong it says on stderr
        env=os.environ | environment(where, None if token_file is None else str(token_file.absolute())),
    )
    # Told to stop, we pass it on and wait: the server must not outlive the command.
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    while True:
        try:
            raise typer.Exit(max(process.wait(), 0))
        except KeyboardInterrupt:
            process.terminate()


@COMMANDS.command(epilog="Example: goodput compare before-the-change after-the-change --db run.duckdb")
def compare(
    before: Annotated[str, typer.Argument(help="The run that is held against.", metavar="RUN")],
    after: Annotated[str, typer.Argument(help="The run in question.", metavar="RUN")],
    db: Database = DEFAULT_DB,
    url: Url = None,
    token_file: TokenFile = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Tell which of two runs did better, by how much, and what made the difference."""
    from goodput_analytics import AnalyticsError, comparison
    from goodput_collector.client import GoodputCollectorError

    try:
        client = _client(db, url, token_file)
        try:
            told = comparison.compare(client.report(before), client.report(after))
        finally:
            client.close()
    except (GoodputCollectorError, AnalyticsError, OSError) as error:
        _fail(str(error))
    if json:
        typer.echo(json_text.dumps({"schema": 1, **asdict(told)}, indent=2, allow_nan=False))
        return
    typer.echo(told.says)
    for one in told.evidence:
        typer.echo(f"  {one}")


def _client(db: Path, url: str | None, token_file: Path | None) -> HttpClient | FileClient:
    from goodput_collector.client import open_client

    if url is None:
        return open_client(db)
    _check_url(url)
    return open_client(url, None if token_file is None else token_file.read_text(encoding="utf-8").strip())


def _check_url(url: str) -> None:
    if not url.startswith(("http://", "https://")) or not url.partition("//")[2]:
        raise typer.BadParameter("give a collector's address, such as http://127.0.0.1:9470", param_hint="--url")


def _fail(message: str) -> NoReturn:
    typer.echo(f"goodput: {' '.join(message.split())}", err=True)
    raise typer.Exit(1)
