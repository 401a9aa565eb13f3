"""Made-up lives on which the report is held against the reference, by seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any

import duckdb
from comparing import differences, product_report

from reference import reference_report
from reference.planned import S
from reference.wild import make_wild

Event = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A run's events, and what is wrong with the report on them."""

    name: str
    events: list[Event]
    faults: Callable[[duckdb.DuckDBPyConnection], list[str]]


def wild_case(seed: int, later_s: int | None) -> Case:
    """A wild life; with `later_s`, what had been told of it when somebody looked so long after the last event."""
    events = make_wild(Random(seed), disputed=False)
    if later_s is not None:
        told = sorted(events, key=lambda e: (e["ts_ns"], e["source"], e["seq"]))
        events = told[: Random(seed).randint(1, len(told))]
    now_ns = None if later_s is None else max(e["ts_ns"] for e in events) + later_s * S

    @cache
    def right() -> dict[str, Any]:
        return reference_report(events, "wild", now_ns)

    def wrong(con: duckdb.DuckDBPyConnection) -> list[str]:
        return differences(product_report(con, "wild", now_ns=now_ns), right())

    name = f"wild-{seed}" if later_s is None else f"look-{seed}-{later_s}"
    return Case(name=name, events=events, faults=wrong)
