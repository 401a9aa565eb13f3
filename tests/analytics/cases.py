"""Made-up lives on which the report is held against the reference, by seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any

import duckdb
from comparing import differences, product_report
from long_lives import long_life

from goodput_analytics import Settings
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
    if later_s is None:
        return _case(f"wild-{seed}", events, None)
    told = sorted(events, key=lambda e: (e["ts_ns"], e["source"], e["seq"]))
    told = told[: Random(seed).randint(1, len(told))]
    return _case(f"look-{seed}-{later_s}", told, max(e["ts_ns"] for e in told) + later_s * S)


def strict_case(seed: int) -> Case:
    """A wild life by thresholds that a few seconds cross, and with a step time to expect."""
    rnd = Random(seed)
    settings = Settings(
        hang_floor_ns=rnd.choice((0, S, 2 * S, 3 * S)),
        span_floor_ns=rnd.choice((0, S, 2 * S, 14 * S)),
        silence_ns=rnd.choice((0, S, 5 * S, 20 * S)),
        overlap_ns=rnd.choice((S, 5 * S, 60 * S)),
        expected_step_ns=rnd.choice((None, S // 2, S, S * 3 // 2)),
    )
    return _case(f"strict-{seed}", make_wild(Random(seed), disputed=False), None, settings)


def long_case(seed: int) -> Case:
    """A long life, told to its end."""
    return _case(f"long-{seed}", long_life(seed), None)


def _case(name: str, events: list[Event], now_ns: int | None, settings: Settings | None = None) -> Case:
    run = events[0]["run"]

    @cache
    def right() -> dict[str, Any]:
        return reference_report(events, run, now_ns, settings)

    def wrong(con: duckdb.DuckDBPyConnection) -> list[str]:
        return differences(product_report(con, run, now_ns=now_ns, settings=settings), right())

    return Case(name=name, events=events, faults=wrong)
