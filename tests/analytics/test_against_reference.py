"""The product's report held against the plain reference, and both against lives whose truth is known."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from battery import LONG_SEEDS, LOOK_SEEDS, OPEN_SEEDS, STRICT_SEEDS, WILD_SEEDS
from budget import examples
from cases import long_case, strict_case, wild_case
from comparing import differences, product_report
from hypothesis import given
from loading import loaded

from reference import reference_report
from reference.lives import planned_life
from reference.planned import Life, S
from reference.wild import make_wild

Event = dict[str, Any]


def hold(events: list[Event], run: str) -> None:
    right = reference_report(events, run)
    with loaded(events) as con:
        assert differences(product_report(con, run), right) == []


@pytest.mark.parametrize("seed", WILD_SEEDS)
def test_a_wild_life_is_reported_as_the_reference_does(seed: int) -> None:
    case = wild_case(seed, None)
    with loaded(case.events) as con:
        assert case.faults(con) == []


@pytest.mark.parametrize(("seed", "later_s"), LOOK_SEEDS)
def test_a_look_at_a_living_run_sees_what_the_reference_does(seed: int, later_s: int) -> None:
    case = wild_case(seed, later_s)
    with loaded(case.events) as con:
        assert case.faults(con) == []


@pytest.mark.parametrize("seed", STRICT_SEEDS)
def test_a_wild_life_by_strict_thresholds_is_reported_as_the_reference_does(seed: int) -> None:
    case = strict_case(seed)
    with loaded(case.events) as con:
        assert case.faults(con) == []


@pytest.mark.parametrize("seed", LONG_SEEDS)
def test_a_long_life_is_reported_as_the_reference_does(seed: int) -> None:
    case = long_case(seed)
    with loaded(case.events) as con:
        assert case.faults(con) == []


@pytest.mark.parametrize("seed", OPEN_SEEDS)
def test_a_life_that_the_rules_leave_open_still_balances(seed: int) -> None:
    with loaded(make_wild(Random(seed), disputed=True)) as con:
        told = product_report(con, "wild")
    assert min(told["_sums"].values()) > 0
    assert sum(told["_sums"].values()) == pytest.approx(told["allocated_gpu_s"] * S)


@examples(18)
@given(planned_life())
def test_the_report_tells_the_truth_of_a_planned_life(life: Life) -> None:
    with loaded(life.events) as con:
        told = product_report(con, life.run)
    truth = life.truth
    gpu_ns: Counter[str] = Counter()
    for (_, category, _), ns in told["_sums"].items():
        gpu_ns[category] += ns
    assert gpu_ns == {str(c): ns for c, ns in truth.gpu_ns.items() if ns}
    assert len(told["attempts"]) == truth.attempts
    assert told["state"] == truth.state
    assert told["queue_wait_s"] == (None if truth.queue_wait_ns is None else truth.queue_wait_ns / S)
    assert {row["rank"] for row in told["stragglers"]} == truth.named_ranks
    assert told["checkpoints"]["count"] == truth.saves
    assert told["at_risk_gpu_s"] == (None if truth.at_risk_gpu_ns is None else truth.at_risk_gpu_ns / S)
    assert len(told["incidents"]) == len(truth.incidents)
    for row, true in zip(told["incidents"], truth.incidents, strict=True):
        expected: dict[str, Any] = {
            "attempt": true.attempt,
            "cause": true.cause,
            "abort_ns": true.abort_ns,
            "detection_s": true.detection_ns / S,
            "recovered_ns": true.recovered_ns,
            "lost_steps": true.lost_steps,
            "hang_gpu_s": true.hang_gpu_ns / S,
            "rework_gpu_s": true.rework_gpu_ns / S,
            "restart_gpu_s": true.restart_gpu_ns / S,
        }
        if true.suspect_ranks is not None:
            expected["suspect_ranks"] = tuple(true.suspect_ranks)
        assert {key: row[key] for key in expected} == expected


@examples(5)
@given(planned_life())
def test_a_planned_life_is_reported_as_the_reference_does(life: Life) -> None:
    hold(life.events, life.run)
