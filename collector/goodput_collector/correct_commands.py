"""`goodput correct`: what people know better than what was recorded."""

from __future__ import annotations

import json as json_text
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from goodput_collector.options import DEFAULT_DB, Archive, AsJson, Database, Url

if TYPE_CHECKING:
    from goodput_collector.corrections import Correction, Wish

CORRECT = typer.Typer(
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Rename, merge or hide runs, say why an incident came about; every correction can be undone.",
)

Run = Annotated[str, typer.Argument(help="The run.", metavar="RUN")]
TokenFile = Annotated[
    Path | None, typer.Option("--token-file", help="File with the collector's token for writing.", metavar="FILE")
]
Who = Annotated[str | None, typer.Option("--who", help="Who says so; else the name you are logged in with.")]


class _Editor(Protocol):
    def correct(self, wish: Wish) -> Correction: ...

    def undo(self, id_: str, who: str = "") -> Correction: ...


@CORRECT.command(epilog="Example: goodput correct rename llama-7b-tst llama-7b")
def rename(
    run: Run,
    name: Annotated[str, typer.Argument(help="Its new name.", metavar="NAME")],
    db: Database = DEFAULT_DB,
    archive: Archive = None,
    url: Url = None,
    token_file: TokenFile = None,
    who: Who = None,
    json: AsJson = False,
) -> None:
    """Give a run another name. What it tells from now on under its own is shown under the new one too."""
    from goodput_collector.corrections import Act, Wish

    _make(Wish(act=Act.RENAME, run=run, to=name, who=_who(who)), db, archive, url, token_file, json)


@CORRECT.command(epilog="Example: goodput correct merge llama-7b-restarted llama-7b")
def merge(
    run: Run,
    into: Annotated[str, typer.Argument(help="The run that it becomes a part of.", metavar="INTO")],
    db: Database = DEFAULT_DB,
    archive: Archive = None,
    url: Url = None,
    token_file: TokenFile = None,
    who: Who = None,
    json: AsJson = False,
) -> None:
    """Make two runs one: their attempts are put in order, and the ledger is drawn over all of them."""
    from goodput_collector.corrections import Act, Wish

    _make(Wish(act=Act.MERGE, run=run, to=into, who=_who(who)), db, archive, url, token_file, json)


@CORRECT.command(epilog="Example: goodput correct delete smoke-test-3")
def delete(
    run: Run,
    db: Database = DEFAULT_DB,
    archive: Archive = None,
    url: Url = None,
    token_file: TokenFile = None,
    who: Who = None,
    json: AsJson = False,
) -> None:
    """Hide a run from all lists and figures. Nothing is lost: undo brings it back."""
    from goodput_collector.corrections import Act, Wish

    _make(Wish(act=Act.DELETE, run=run, who=_who(who)), db, archive, url, token_file, json)


@CORRECT.command(epilog='Example: goodput correct incident llama-7b 3 --cause hardware --note "node17: ECC errors"')
def incident(
    run: Run,
    attempt: Annotated[int, typer.Argument(help="The attempt that it ended.", metavar="ATTEMPT")],
    cause: Annotated[
        str | None, typer.Option("--cause", help="planned, hardware, software or user.", metavar="CAUSE")
    ] = None,
    note: Annotated[str | None, typer.Option("--note", help="Anything else worth knowing.", metavar="TEXT")] = None,
    abort_ns: Annotated[
        int | None,
        typer.Option("--abort-ns", help="The incident's abort_ns, for a rollback inside the attempt.", metavar="NS"),
    ] = None,
    db: Database = DEFAULT_DB,
    archive: Archive = None,
    url: Url = None,
    token_file: TokenFile = None,
    who: Who = None,
    json: AsJson = False,
) -> None:
    """Say why an incident came about, beside what was recorded."""
    from goodput_collector.corrections import Act, Cause, Wish

    try:
        why = None if cause is None else Cause(cause)
    except ValueError:
        raise typer.BadParameter(f"one of {', '.join(Cause)}", param_hint="--cause") from None
    wish = Wish(act=Act.INCIDENT, run=run, attempt=attempt, abort_ns=abort_ns, cause=why, note=note, who=_who(who))
    _make(wish, db, archive, url, token_file, json)


@CORRECT.command(epilog="Example: goodput correct undo 3c9d0a71be52")
def undo(
    id: Annotated[str, typer.Argument(help="The correction, as `goodput correct list` names it.", metavar="ID")],
    db: Database = DEFAULT_DB,
    archive: Archive = None,
    url: Url = None,
    token_file: TokenFile = None,
    who: Who = None,
    json: AsJson = False,
) -> None:
    """Undo a correction."""
    with _told(url or db), _editor(db, archive, url, token_file) as editor:
        _show(editor.undo(id, _who(who)), json)


@CORRECT.command(name="list", epilog="Example: goodput correct list --db run.duckdb")
def list_(
    db: Database = DEFAULT_DB,
    url: Url = None,
    token_file: TokenFile = None,
    json: AsJson = False,
) -> None:
    """List the corrections, the latest first."""
    with _told(url or db):
        from goodput_collector.client import open_client
        from goodput_collector.commands import collector
        from goodput_collector.corrections import as_json

        if url is None:
            client = open_client(db)
            try:
                found = client.corrections(_MOST)
            finally:
                client.close()
        else:
            with collector(url, token_file) as asked:
                found = asked.corrections(_MOST)
        if json:
            typer.echo(json_text.dumps({"corrections": [as_json(one) for one in found]}, indent=2))
        elif not found:
            typer.echo("Nothing was corrected.")
        for one in [] if json else found:
            typer.echo(_words(one))


_MOST = 10_000


def _make(wish: Wish, db: Path, archive: Path | None, url: str | None, token_file: Path | None, json: bool) -> None:
    with _told(url or db), _editor(db, archive, url, token_file) as editor:
        _show(editor.correct(wish), json)


@contextmanager
def _told(where: Path | str) -> Iterator[None]:
    """Errors in one line."""
    from goodput_collector.commands import fail, plain_errors, unknown_run_words

    with plain_errors(Path(where)):
        from goodput_analytics import UnknownRun

        try:
            yield
        except UnknownRun as error:
            fail(unknown_run_words(error.run, error.known, where))


@contextmanager
def _editor(db: Path, archive: Path | None, url: str | None, token_file: Path | None) -> Iterator[_Editor]:
    from goodput_collector.commands import collector
    from goodput_collector.offline import edited

    if url is not None:
        with collector(url, token_file) as client:
            yield client
        return
    if token_file is not None:
        raise typer.BadParameter("a token is for a collector: name one with --url", param_hint="--token-file")
    with edited(db, archive or db.with_suffix(".archive")) as editor:
        yield editor


def _who(given: str | None) -> str:
    import getpass

    if given is not None:
        return given
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def _show(one: Correction, json: bool) -> None:
    from goodput_collector.corrections import as_json

    typer.echo(json_text.dumps(as_json(one), indent=2) if json else _words(one))


def _words(one: Correction) -> str:
    from goodput_collector.corrections import Act
    from goodput_collector.figures import moment, name

    run = name(one.said)
    if one.act is Act.INCIDENT:
        why = f": {one.cause}" if one.cause is not None else ""
        done = f"incident of {run}{why}" + (f" ({name(one.note)})" if one.note else "")
    else:
        done = {
            Act.RENAME: f"{run} renamed to {name(one.target or '')}",
            Act.MERGE: f"{run} merged into {name(one.target or '')}",
            Act.DELETE: f"{run} deleted",
        }[one.act]
    by = f" by {name(one.who)}" if one.who else ""
    undone = f"; undone {moment(one.undone_ns)}" if one.undone_ns is not None else ""
    return f"{one.id}  {moment(one.at_ns)}{by}  {done}{undone}"
