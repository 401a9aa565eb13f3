"""What the dumps of torch's flight recorder add to the `goodput` command: `flight`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

FLIGHT = typer.Typer(rich_markup_mode=None)


@FLIGHT.command(epilog="Example: goodput flight /tmp/nccl_trace_rank_*")
def flight(
    files: Annotated[
        list[Path], typer.Argument(help="The dumps, one of each rank, or a folder with them.", metavar="FILE…")
    ],
) -> None:
    """Name the ranks that did not reach the collective that the others wait in, from torch's flight recorder."""
    from goodput_analytics.flight import FlightError, read_dump, waiting

    found = [one for path in files for one in (sorted(path.iterdir()) if path.is_dir() else [path])]
    dumps = []
    for path in found:
        try:
            dumps.append(read_dump(path))
        except FlightError as error:
            typer.echo(f"goodput: {error}; left out", err=True)
        except OSError as error:
            typer.echo(f"goodput: {path} cannot be read ({error.strerror})", err=True)
    if not dumps:
        typer.echo("goodput: no dump was read; torch writes them where TORCH_NCCL_DEBUG_INFO_TEMP_FILE says", err=True)
        raise typer.Exit(1)
    groups = waiting(dumps)
    for one in groups:
        typer.echo(f"group {one.group}: {_ranks(one.waiting)} in {one.operation} (collective {one.number})")
        for rank, last in one.missing:
            typer.echo(f"  missing: rank {rank}, which last entered collective {last}")
        if one.unknown:
            typer.echo(f"  left no dump: {_ranks(one.unknown)}")
    if not groups:
        typer.echo(f"{len(dumps)} ranks entered the same collectives: none is missing.")


def _ranks(ranks: tuple[int, ...]) -> str:
    shown = ", ".join(str(rank) for rank in ranks[:16]) + (f" and {len(ranks) - 16} more" if len(ranks) > 16 else "")
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {shown or 'none'}"
