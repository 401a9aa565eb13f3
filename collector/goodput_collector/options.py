"""Options that several commands have, in the same words."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

DEFAULT_DB = Path("goodput.duckdb")


def _unless_a_file_was_named(context: typer.Context, url: str | None) -> str | None:
    """The collector that the environment names is not asked by who names a file: an option beats the environment.

    What stands on the command line is read before what does not, so `--db` is known here.
    """
    sources = {name: context.get_parameter_source(name) for name in ("url", "db")}
    told = {name: None if source is None else source.name for name, source in sources.items()}
    return None if told == {"url": "ENVIRONMENT", "db": "COMMANDLINE"} else url


Database = Annotated[
    Path, typer.Option("--db", envvar="GOODPUT_DB", help="The database file.", metavar="FILE", show_default=True)
]
Archive = Annotated[
    Path | None,
    typer.Option("--archive", help="A collector's archive; by default beside the database.", metavar="DIR"),
]
Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="GOODPUT_URL",
        help="A collector's address, instead of a file.",
        metavar="URL",
        callback=_unless_a_file_was_named,
    ),
]
ReadTokenFile = Annotated[
    Path | None, typer.Option("--token-file", help="File with the collector's token for reading.", metavar="FILE")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
