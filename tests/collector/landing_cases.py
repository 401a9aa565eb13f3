"""Events, dirt and a way to look at a landed database, for the tests of the landing."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from goodput_collector.contract import KINDS
from goodput_collector.database import open_database
from goodput_collector.landing import IngestSummary, Landing

T0_NS = 1_700_000_000_000_000_000


def line(event: dict[str, Any]) -> bytes:
    return json.dumps(event, separators=(",", ":")).encode()


def step(seq: int, source: str | None = "s0", run: str | None = "r", **more: Any) -> dict[str, Any]:
    who = {name: value for name, value in (("run", run), ("source", source)) if value is not None}
    start_ns = T0_NS + seq * 1_000
    event = {"kind": "step", **who, "seq": seq, "ts_ns": start_ns + 900, "step": seq + 1}
    return {**event, "start_ns": start_ns, "end_ns": start_ns + 900, **more}


def land(
    *deliveries: Sequence[bytes], slice_bytes: int = 64 * 2**20, fast: bool = True
) -> tuple[list[IngestSummary], dict[str, Any]]:
    """Loads files of the given contents, one ingest for each delivery; the summaries and what the database holds."""
    with tempfile.TemporaryDirectory() as folder:
        con = open_database(":memory:")
        summaries = []
        for number, contents in enumerate(deliveries):
            paths = [Path(folder, f"{number}-{index}.jsonl") for index in range(len(contents))]
            for path, content in zip(paths, contents, strict=True):
                path.write_bytes(content)
            summaries.append(Landing(con, slice_bytes=slice_bytes, fast=fast).take(paths))
        try:
            return summaries, state(con.execute)
        finally:
            con.close()


def state(execute: Callable[..., Any]) -> dict[str, Any]:
    """All tables' rows, with names for keys, in an order that says nothing."""
    found: dict[str, Any] = {}
    for kind in KINDS.values():
        found[kind.name] = _rows(
            execute,
            f"SELECT r.run, s.source, e.* EXCLUDE (run_id, source_id) FROM {kind.table} e "
            "LEFT JOIN runs r USING (run_id) JOIN sources s USING (source_id)",
        )
    found["delivery"] = _rows(
        execute, "SELECT r.run, duplicates, conflicts FROM delivery LEFT JOIN runs r USING (run_id)"
    )
    found["displaced"] = _rows(execute, "SELECT source, seq, line FROM displaced JOIN sources USING (source_id)")
    found["ranges"] = _rows(
        execute, "SELECT source, min_seq, max_seq FROM source_ranges JOIN sources USING (source_id)"
    )
    found["names"] = _rows(execute, "SELECT run FROM runs UNION ALL SELECT source FROM sources")
    found["rejected"] = _rows(execute, "SELECT reason, head, pending FROM rejected")
    return found


def _rows(execute: Callable[..., Any], query: str) -> list[tuple[Any, ...]]:
    return sorted(execute(query).fetchall(), key=repr)
