"""What must hold of every ledger, whatever the events say."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from goodput_analytics.model import Category

from .events import Event, from_lines
from .lives import to_lines, wild_events
from .planned import S
from .report import reference_report

wild = settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
either = st.booleans().flatmap(lambda disputed: wild_events(disputed=disputed))


@wild
@given(either)
def test_it_balances_and_nothing_is_negative(events: list[Event]) -> None:
    report = reference_report(events, "wild")
    intervals = report["_intervals"]
    assert all(end > start and gpus > 0 for *_, start, end, gpus, _ in intervals)
    assert sum((end - start) * gpus for *_, start, end, gpus, _ in intervals) == sum(report["_gpu_ns"].values())
    assert set(report["_gpu_ns"]) == {str(c) for c in Category}
    assert all(i[2] in report["_gpu_ns"] for i in intervals)
    assert all(ns >= 0 for ns in report["_gpu_ns"].values())
    for incident in report["incidents"]:
        assert all(incident[k] >= 0 for k in incident if k.endswith("_s") or k == "lost_steps")
    for categories in report["phases_gpu_s"].values():
        assert all(v > 0 for v in categories.values())


@wild
@given(either)
def test_no_attempt_is_in_two_places_at_once(events: list[Event]) -> None:
    """An attempt's own intervals never overlap: its GPU-seconds are counted once."""
    by_attempt: dict[int, list[tuple[int, int]]] = {}
    for _, attempt, _, _, start, end, _, _ in reference_report(events, "wild")["_intervals"]:
        if attempt is not None:
            by_attempt.setdefault(attempt, []).append((start, end))
    for own in by_attempt.values():
        ordered = sorted(own)
        assert all(a[1] <= b[0] for a, b in pairwise(ordered))


@wild
@given(either, st.integers(0, 1 << 30))
def test_the_order_of_delivery_changes_nothing(events: list[Event], seed: int) -> None:
    shuffled = list(events)
    Random(seed).shuffle(shuffled)
    assert reference_report(shuffled, "wild") == reference_report(events, "wild")


@wild
@given(either)
def test_lines_carry_all_that_an_event_says(events: list[Event]) -> None:
    def by_key(e: dict[str, Any]) -> tuple[str, int]:
        return (e["source"], e["seq"])

    twice = [*to_lines(events), *reversed(to_lines(events))]
    assert sorted(from_lines(twice), key=by_key) == sorted(events, key=by_key)


@wild
@given(either, st.integers(0, 2000))
def test_any_moment_of_a_look_balances(events: list[Event], later_s: int) -> None:
    last = max(e["ts_ns"] for e in events)
    report = reference_report(events, "wild", now_ns=last + later_s * S)
    assert report["as_of_ns"] >= last
    assert abs(sum(report["gpu_s"].values()) - report["allocated_gpu_s"]) < 1e-6 * max(1, report["allocated_gpu_s"])


@wild
@given(either, st.data())
def test_any_beginning_of_the_story_balances(events: list[Event], data: st.DataObject) -> None:
    told = sorted(events, key=lambda e: (e["ts_ns"], e["source"], e["seq"]))
    told = told[: data.draw(st.integers(1, len(told)))]
    report = reference_report(told, "wild")
    assert sum((end - start) * gpus for *_, start, end, gpus, _ in report["_intervals"]) == sum(
        report["_gpu_ns"].values()
    )
