"""Where an incident lies, so that what people say of it stays with it whatever is learnt later."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb

from goodput_analytics.relations import rows


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentPlace:
    """An incident, told by what does not move when attempts are numbered anew.

    Attributes:
        source, part: the process of the lowest rank of its attempt.
        life, inside: which of the attempt's ends it is.
    """

    source: str
    part: int
    life: int
    inside: bool


def incident_place(con: duckdb.DuckDBPyConnection, attempt: int, abort_ns: int | None) -> IncidentPlace | None:
    """The place of an incident of the run whose relations stand in the connection; None where there is none.

    Args:
        con: the connection.
        attempt: the attempt that it ended, or that it lies in.
        abort_ns: its `abort_ns`; None for the end of the attempt.
    """
    found = rows(
        con,
        "SELECT m.source, m.part, i.life, i.inside FROM gp_incidents i JOIN gp_members m USING (attempt) "
        "WHERE attempt = $attempt AND coalesce(i.abort_ns = $abort_ns, NOT i.inside) "
        "ORDER BY i.inside, i.life DESC, m.rank, m.source, m.part LIMIT 1",
        {"attempt": attempt, "abort_ns": abort_ns},
    )
    return IncidentPlace(**found[0]) if found else None
