"""What people correct: a run's name, that two runs are one, that a run is of no interest, why an incident came about.

A correction stands beside what was recorded, which stays as it is, with who made it and when, and can be undone. In a
collector it is a record of the archive like any other, so a database made again from there has it too.
"""

from __future__ import annotations

import re
import unicodedata
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from enum import StrEnum
from typing import Any

import duckdb

from goodput_analytics import UnknownRun
from goodput_analytics.ledger import names_of
from goodput_analytics.notes import IncidentPlace
from goodput_collector import shown
from goodput_collector.database import one_row
from goodput_collector.errors import BadRequestError

NAME_MOST = 500
WHO_MOST = 200
NOTE_MOST = 10_000
_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")


class Act(StrEnum):
    """What a correction does."""

    RENAME = "rename"
    MERGE = "merge"
    DELETE = "delete"
    INCIDENT = "incident"


class Cause(StrEnum):
    """Why an incident came about, as people say."""

    PLANNED = "planned"
    HARDWARE = "hardware"
    SOFTWARE = "software"
    USER = "user"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What somebody wants corrected.

    Attributes:
        act: what to do.
        run: the run, as it is called now.
        to: rename: the new name; merge: the run that it becomes a part of.
        attempt, abort_ns: incident: which; without `abort_ns` the end of the attempt.
        cause, note: incident: why it came about, and anything else; one of the two at least.
        who: who says so.
        id: the same id again is the same wish, and has no further effect.
    """

    act: Act
    run: str
    to: str | None = None
    attempt: int | None = None
    abort_ns: int | None = None
    cause: Cause | None = None
    note: str | None = None
    who: str = ""
    id: str = ""

    def checked(self) -> Wish:
        """The wish, if it makes sense in itself, with an id. Raises BadRequestError."""
        for what, text, most in (
            ("name", self.run, NAME_MOST),
            ("name", self.to, NAME_MOST),
            ("who", self.who, WHO_MOST),
        ):
            if text is not None and (len(text) > most or any(unicodedata.category(c)[0] == "C" for c in text)):
                raise BadRequestError(f"A {what} has at most {most} characters, and none that cannot be printed.")
        if self.note is not None and len(self.note) > NOTE_MOST:
            raise BadRequestError(f"A note has at most {NOTE_MOST:,} characters.")
        if self.id and _ID.fullmatch(self.id) is None:
            raise BadRequestError("An id has 1 to 100 letters, digits and signs of _-.")
        if self.act in (Act.RENAME, Act.MERGE) and not self.to:
            raise BadRequestError('Say what to: "to" is a name.')
        if self.act is Act.RENAME and self.to is not None and names_of(self.to) != [self.to]:
            raise BadRequestError("A name that ends in ~ and a number stands for a second launch; choose another.")
        if self.act is Act.INCIDENT and self.attempt is None:
            raise BadRequestError('Say which incident: "attempt" is the number of the attempt that it ended.')
        if self.act is Act.INCIDENT and self.cause is None and not self.note:
            raise BadRequestError('Say what to correct: a "cause", a "note", or both.')
        return self if self.id else Wish(**{**asdict(self), "id": uuid.uuid4().hex[:12]})


def wish_of(told: dict[str, Any]) -> Wish:
    """The wish that a request says, with the names of Wish's attributes. Raises BadRequestError."""
    names = {field.name for field in fields(Wish)}
    odd = sorted(set(told) - names)
    if odd:
        raise BadRequestError(f"A correction has no {odd[0]!r}; it has {', '.join(sorted(names))}.")
    for name, value in told.items():
        whole = name in ("attempt", "abort_ns")
        good = isinstance(value, int) and not isinstance(value, bool) if whole else isinstance(value, str)
        if not good and not (value is None and name not in ("act", "run", "who", "id")):
            raise BadRequestError(f"{name!r} is {'a whole number' if whole else 'a text'}.")
        if whole and value is not None and abs(value) >= 2**63:
            raise BadRequestError(f"{name!r} is a whole number below 2^63.")
    given = {name: value for name, value in told.items() if name not in ("act", "cause", "run")}
    if not told.get("run"):
        raise BadRequestError('Say of which run: "run" is its name.')
    try:
        act = Act(told.get("act") or "")
    except ValueError:
        raise BadRequestError(f"'act' is one of {', '.join(Act)}.") from None
    try:
        cause = None if told.get("cause") is None else Cause(told["cause"])
    except ValueError:
        raise BadRequestError(f"'cause' is one of {', '.join(Cause)}.") from None
    return Wish(act=act, run=told["run"], cause=cause, **given)


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """A correction that was made.

    Attributes:
        id, at_ns, who: its id, when it was made (nanoseconds since the epoch), and who says that it was they.
        act: what it does.
        run: the run, by its recorded name; said: as it was called then.
        target: the new name; or the recorded name of the run that it became a part of.
        source, part, life, inside: which incident: a process of its attempt, and which of that one's ends.
        cause, note: what was said of the incident.
        undone_ns, undone_by: when and by whom it was undone; None while it holds.
    """

    id: str
    at_ns: int
    who: str
    act: Act
    run: str
    said: str
    target: str | None = None
    source: str | None = None
    part: int | None = None
    life: int | None = None
    inside: bool | None = None
    cause: Cause | None = None
    note: str | None = None
    undone_ns: int | None = None
    undone_by: str | None = None


_COLUMNS = tuple(field.name for field in fields(Correction))
_ALL = ", ".join(_COLUMNS)


def read(con: duckdb.DuckDBPyConnection, limit: int) -> list[Correction]:
    """The corrections, the latest first, those that were undone too."""
    return [
        _of(row)
        for row in con.execute(f"SELECT {_ALL} FROM corrections ORDER BY place DESC LIMIT ?", [limit]).fetchall()
    ]


def find(con: duckdb.DuckDBPyConnection, id_: str) -> Correction:
    """One of them. Raises BadRequestError (404)."""
    row = one_row(con, f"SELECT {_ALL} FROM corrections WHERE id = ?", [id_])
    if row is None:
        raise BadRequestError("There is no correction of that id.", status=404)
    return _of(row)


def plan(
    con: duckdb.DuckDBPyConnection, wish: Wish, place: IncidentPlace | None, at_ns: int
) -> tuple[Correction, bool]:
    """The correction that a checked wish comes to, and whether it is there already. `place`: of the incident.

    Raises UnknownRun, or BadRequestError for what cannot be.
    """
    row = one_row(con, f"SELECT {_ALL} FROM corrections WHERE id = ?", [wish.id])
    if row is not None:
        return _of(row), True
    run = _recorded(con, wish.run)
    if run is None:
        # What was asked for twice, without an id: the name is gone because it was done.
        done = _same(con, wish)
        if done is not None:
            return done, True
        raise UnknownRun(wish.run, _names(con))
    target = wish.to
    if wish.act is Act.RENAME and target is not None:
        other = _recorded(con, target)
        if other == run:
            done = _same(con, Wish(act=Act.RENAME, run=wish.run, to=target))
            if done is not None:
                return done, True
            raise BadRequestError(f"The run is called {target!r} already.")
        if other is not None or one_row(con, "SELECT 1 FROM runs WHERE run = ? AND run <> ?", [target, run]):
            raise BadRequestError(f"There is a run {target!r} already; merge the two if they are one.")
    elif wish.act is Act.MERGE and target is not None:
        target = _recorded(con, target)
        if target is None:
            raise UnknownRun(str(wish.to), _names(con))
        if target == run:
            raise BadRequestError("A run cannot be merged into itself.")
    else:
        target = None
    made = Correction(id=wish.id, at_ns=at_ns, who=wish.who, act=wish.act, run=run, said=wish.run, target=target)
    if wish.act is Act.INCIDENT:
        if place is None:
            raise BadRequestError("There is no such incident in this run.", status=404)
        made = replace(made, **asdict(place), cause=wish.cause, note=wish.note)
    return made, False


def write(con: duckdb.DuckDBPyConnection, made: Correction) -> None:
    """Puts a correction down, within the caller's transaction; one that is there already stays as it is."""
    values = [getattr(made, name) for name in _COLUMNS]
    con.execute(
        f"INSERT INTO corrections (place, {_ALL}) SELECT (SELECT coalesce(max(place), 0) + 1 FROM corrections), "
        f"{', '.join('?' for _ in values)} WHERE NOT EXISTS (FROM corrections WHERE id = ?)",
        [*values, made.id],
    )
    shown.refresh(con)


def undo(con: duckdb.DuckDBPyConnection, id_: str, at_ns: int, who: str) -> None:
    """Undoes a correction, within the caller's transaction; one that is undone already stays as it is."""
    con.execute(
        "UPDATE corrections SET undone_ns = ?, undone_by = ? WHERE id = ? AND undone_ns IS NULL", [at_ns, who, id_]
    )
    shown.refresh(con)


def as_json(one: Correction) -> dict[str, Any]:
    """As it stands in answers and in the archive."""
    return asdict(one)


def of_json(told: dict[str, Any]) -> Correction:
    """From an answer or the archive; fields that this version does not know are left out."""
    return _of([told.get(name) for name in _COLUMNS])


def _of(values: Sequence[Any]) -> Correction:
    told = dict(zip(_COLUMNS, values, strict=True))
    told["act"] = Act(told["act"])
    told["cause"] = None if told["cause"] is None else Cause(told["cause"])
    return Correction(**told)


def _recorded(con: duckdb.DuckDBPyConnection, name: str) -> str | None:
    """The recorded name of the run that is called so now."""
    parts = shown.parts_of(con, name)
    row = None if parts is None else one_row(con, "SELECT run FROM runs WHERE run_id = ?", [parts[0]])
    return None if row is None else str(row[0])


def _same(con: duckdb.DuckDBPyConnection, wish: Wish) -> Correction | None:
    """A correction that holds and says the same, made when the run was still called as the wish says, or is called so
    by its recorded name."""
    if wish.act is Act.INCIDENT:
        return None
    row = one_row(
        con,
        f"SELECT {_ALL} FROM corrections c WHERE act = ? AND undone_ns IS NULL AND (said = ? OR run = ? OR "
        "(act = 'rename' AND target = ?)) AND (act = 'delete' OR target = ? OR (act = 'merge' AND target IN ("
        "SELECT r.run FROM shown_runs s JOIN runs r ON r.run_id = s.root_id WHERE s.run = ?))) "
        "ORDER BY place DESC LIMIT 1",
        [wish.act, wish.run, wish.run, wish.run, wish.to, wish.to],
    )
    return None if row is None else _of(row)


def _names(con: duckdb.DuckDBPyConnection) -> list[str]:
    return [
        run
        for (run,) in con.execute(
            "SELECT DISTINCT run FROM shown_runs WHERE NOT hidden ORDER BY run LIMIT 1000"
        ).fetchall()
    ]
