"""Options that several commands have, in the same words."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

DEFAULT_DB = Path("goodput.duckdb")

Database = Annotated[
    Path, typer.Option("--db", envvar="GOODPUT_DB", help="The database file.", metavar="FILE", show_default=True)
]
Archive = Annotated[
    Path | None,
    typer.Option("--archive", help="A collector's archive; by default beside the database.", metavar="DIR"),
]
Url = Annotated[
    str | None,
    typer.Option("--url", envvar="GOODPUT_URL", help="A collector's address, instead of a file.", metavar="URL"),
]
ReadTokenFile = Annotated[
    Path | None, typer.Option("--token-file", help="File with the collector's token for reading.", metavar="FILE")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
