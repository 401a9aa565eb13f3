"""Which runs there are to see, and what they are called: the recorded ones, and what people corrected about them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import duckdb

from goodput_analytics.ledger import names_of
from goodput_collector.database import sql_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What becomes of a recorded run: the one that it is a part of, what that is called, whether it is hidden."""

    root: str
    name: str
    hidden: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRun:
    """A run to see, with the keys of the recorded runs that it is made of (the first is its own), and when any of them
    told of something last, 0 where none did."""

    run: str
    parts: tuple[int, ...]
    told_ns: int


def resolve(
    recorded: Iterable[str],
    *,
    merged: Mapping[str, str],
    renamed: Mapping[str, str],
    deleted: Iterable[str],
) -> dict[str, Shown]:
    """What becomes of every recorded run that is not just shown as it is.

    Args:
        recorded: the names of all recorded runs.
        merged: the run that each was merged into; renamed: the new name of each; deleted: those to hide. All by
            recorded names; what names a run that is not there has no effect.

    A name belongs to the run that recorded it, or else to who was given it first: a new name that clashes with that
    has no effect as long as it does.
    """
    known = set(recorded)
    roots = {run: _root(run, merged, known) for run in known}
    hidden = {run for run in deleted if run in known}
    wanted = {run: name for run, name in renamed.items() if run in known and roots[run] == run}
    plain = {run for run in known if roots[run] == run and run not in hidden}
    names: dict[str, str] = {}
    while True:
        taken = {run for run in plain if run not in wanted}
        names, clash = {}, None
        for run, name in wanted.items():
            if run in hidden:
                continue
            if name in taken:
                clash = run
                break
            taken.add(name)
            names[run] = name
        if clash is None:
            break
        del wanted[clash]
    return {
        run: Shown(root=root, name=names.get(root, root), hidden=root in hidden)
        for run, root in roots.items()
        if root != run or root in names or root in hidden
    }


def _root(run: str, merged: Mapping[str, str], known: set[str]) -> str:
    seen = {run}
    while (other := merged.get(run)) is not None and other in known and other not in seen:
        seen.add(other)
        run = other
    return run


def refresh(con: duckdb.DuckDBPyConnection) -> None:
    """Brings the table `shown` up to date with `corrections` and `runs`, within the caller's transaction."""
    live = con.execute(
        "SELECT act, run, target FROM corrections WHERE undone_ns IS NULL AND act <> 'incident' ORDER BY place"
    ).fetchall()
    con.execute("DELETE FROM shown")
    if not live:
        return
    keys: dict[str, int] = dict(con.execute("SELECT run, run_id FROM runs").fetchall())
    found = resolve(
        keys,
        merged={run: target for act, run, target in live if act == "merge"},
        renamed={run: target for act, run, target in live if act == "rename"},
        deleted=[run for act, run, _ in live if act == "delete"],
    )
    for run, one in found.items():
        con.execute("INSERT INTO shown VALUES (?, ?, ?, ?)", [keys[run], keys[one.root], one.name, one.hidden])


def last_told(con: duckdb.DuckDBPyConnection) -> dict[int, int]:
    """For every recorded run, by key, when it told of something last (nanoseconds since the epoch)."""
    return dict(con.execute(sql_text("last_told")).fetchall())


def to_see(con: duckdb.DuckDBPyConnection, told_ns: Mapping[int, int]) -> list[ShownRun]:
    """All runs to see, the one heard from last first."""
    parts: dict[str, list[int]] = {}
    for run, run_id in con.execute(
        "SELECT run, run_id FROM shown_runs WHERE NOT hidden ORDER BY run_id <> root_id, run_id"
    ).fetchall():
        parts.setdefault(run, []).append(run_id)
    found = [
        ShownRun(run=run, parts=tuple(keys), told_ns=max(told_ns.get(key, 0) for key in keys))
        for run, keys in parts.items()
    ]
    return sorted(found, key=lambda one: (-one.told_ns, one.run))


def parts_of(con: duckdb.DuckDBPyConnection, name: str) -> tuple[int, ...] | None:
    """The keys of the recorded runs that a name stands for, of those that can be seen (a second launch is a part of its
    run); None where it stands for none."""
    names = names_of(name)
    found: dict[str, tuple[int, ...]] = {}
    for run, run_id in con.execute(
        "SELECT run, run_id FROM shown_runs WHERE NOT hidden AND run IN (SELECT unnest(?)) "
        "ORDER BY run_id <> root_id, run_id",
        [names],
    ).fetchall():
        found[run] = (*found.get(run, ()), run_id)
    return next((found[one] for one in names if one in found), None)
