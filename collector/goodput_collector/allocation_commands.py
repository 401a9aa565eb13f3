"""`goodput allocation`: what a scheduler knows, as events."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from goodput_collector.allocation import Grants

ALLOCATION = typer.Typer(rich_markup_mode=None, no_args_is_help=True, help="Turn what a scheduler granted into events.")

Source = Annotated[
    Path | None, typer.Argument(help="The scheduler's output; - or nothing reads standard input.", metavar="FILE")
]
To = Annotated[str | None, typer.Option("--to", help="Send the events to this collector.", metavar="URL")]
TokenFile = Annotated[
    Path | None, typer.Option("--token-file", envvar="GOODPUT_TOKEN_FILE", help="File with the token.", metavar="FILE")
]
Run = Annotated[
    str | None,
    typer.Option("--run", envvar="GOODPUT_RUN", help="With --environment: the run; else it is found through the job."),
]


@ALLOCATION.command(
    epilog="Example: sacct -D --json -S now-1days | goodput allocation slurm --to http://collector:9470"
)
def slurm(
    file: Source = None,
    environment: Annotated[
        bool, typer.Option("--environment", help="Read the environment of the job that this runs in instead.")
    ] = False,
    gpus: Annotated[
        int | None, typer.Option("--gpus", help="GPUs of a job to which Slurm says it gave none.", min=1)
    ] = None,
    run: Run = None,
    to: To = None,
    token_file: TokenFile = None,
) -> None:
    """Grants from `sacct -D --json`, from `sacct -D -P`, or from a job's environment."""
    from goodput_collector.commands import plain_errors

    with plain_errors(file or Path("-")):
        import os

        from goodput_collector.allocation import Grants
        from goodput_collector.allocation_slurm import grant_of_environment, grants_of_sacct

        if environment:
            found = Grants(grants=(grant_of_environment(os.environ, run=run, gpus=gpus),))
        else:
            found = grants_of_sacct(_text(file), gpus=gpus)
        _give(found, to, token_file, "give --gpus N if Slurm does not manage them")


@ALLOCATION.command(
    epilog="Example: kubectl get pods -A -o json | goodput allocation kubernetes --to http://collector:9470"
)
def kubernetes(
    file: Source = None,
    resource: Annotated[
        list[str] | None, typer.Option("--resource", help="A resource that counts as a GPU.", metavar="NAME")
    ] = None,
    to: To = None,
    token_file: TokenFile = None,
) -> None:
    """Grants from pod objects, as `kubectl get pods -o json` prints them."""
    from goodput_collector.commands import plain_errors

    with plain_errors(file or Path("-")):
        from goodput_collector.allocation_kubernetes import RESOURCES, grants_of_pods

        found = grants_of_pods(_text(file), resources=tuple(resource or RESOURCES))
        _give(found, to, token_file, "name what counts as a GPU with --resource")


def _text(file: Path | None) -> str:
    if file is None or str(file) == "-":
        if sys.stdin.isatty():
            raise typer.BadParameter("name a file, or pipe the scheduler's output in", param_hint="FILE")
        return sys.stdin.buffer.read().decode("utf-8", "replace")
    return file.read_text(encoding="utf-8", errors="replace")


def _give(found: Grants, to: str | None, token_file: Path | None, hint: str) -> None:
    """Sends the events, or prints them; says what was left out."""
    from goodput_collector.allocation import lines
    from goodput_collector.figures import counted

    body = lines(found.grants)
    left = []
    if found.waiting:
        left.append(f"{counted(found.waiting, 'job')} that wait")
    if found.without_gpus:
        left.append(f"{counted(found.without_gpus, 'job')} without GPUs ({hint})")
    said = f"{counted(len(found.grants), 'grant')}" + (f"; left out: {' and '.join(left)}" if left else "")
    if to is None:
        typer.echo(body.decode(), nl=False)
    elif body:
        _send(body, to, token_file)
        said += f"; sent to {to}"
    typer.echo(f"goodput: {said}", err=True)


def _send(body: bytes, to: str, token_file: Path | None) -> None:
    from goodput_collector.access import read_token
    from goodput_collector.chunks import Chunk
    from goodput_collector.errors import CollectorUnreachableError
    from goodput_collector.shipping import NotNowError
    from goodput_collector.sinks import HttpSink

    try:
        sink = HttpSink(to, None if token_file is None else read_token(token_file))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--to") from error
    # The same events are the same stream: sent again, they are there already.
    name = f"allocation-{hashlib.sha256(body).hexdigest()[:32]}"
    try:
        receipt = sink.send([Chunk(stream=name, offset_bytes=0, data=body)])
    except NotNowError as error:
        raise CollectorUnreachableError(f"{error}.") from error
    finally:
        sink.close()
    if [one.offset_bytes for one in receipt.taken] != [len(body)]:
        raise CollectorUnreachableError(f"{to} takes no more just now; try again.")
