"""Records of the archive that are no events: what was done to the database beside landing, in its place among them.

They stand in a stream of a name that no sender can use, each alone in its group, as one line of JSON; a database that
is made again from the archive has each done again after the same events.
"""

from __future__ import annotations

import json
from typing import Any

import duckdb

from goodput_collector import corrections
from goodput_collector.archive import Record
from goodput_collector.errors import ArchiveError
from goodput_collector.keeping import Retention, apply

CONTROL = "#control"


def record(what: dict[str, Any]) -> Record:
    """The record that says `what`: {"correct": …}, {"undo": …} or {"retain": …}."""
    data = json.dumps(what, separators=(",", ":")).encode() + b"\n"
    return Record(name=CONTROL, offset_bytes=0, end_bytes=len(data), data=data)


def carry_out(con: duckdb.DuckDBPyConnection, one: Record) -> None:
    """Does what a record says, within the caller's transaction. Raises ArchiveError where it is not known here."""
    what = json.loads(one.data)
    if "correct" in what:
        corrections.write(con, corrections.of_json(what["correct"]))
    elif "undo" in what:
        told = what["undo"]
        corrections.undo(con, told["id"], told["at_ns"], told["who"])
    elif "retain" in what:
        apply(con, Retention(**what["retain"]))
    else:
        raise ArchiveError("The archive holds what only a later version of Goodput knows to do; use that version.")
