"""What holds of every run, whatever happened in it: the ledger balances, delivery does not matter, losses cost."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

from budget import examples
from hypothesis import given
from hypothesis import strategies as st
from loading import landed, loaded
from training import Plan, plans, somewhere, train

from goodput_analytics import Category, report
from reference.lives import to_lines, wild_events
from reference.planned import S

Event = dict[str, Any]
either = st.booleans().flatmap(lambda disputed: wild_events(disputed=disputed))


def balanced(events: list[Event], now_ns: int | None = None) -> dict[str, Any]:
    """The report of a run whose ledger has been found to balance."""
    with loaded(events) as con:
        told = report(con, "wild", now_ns=now_ns).as_json()
        intervals = con.execute("SELECT attempt, category, start_ns, end_ns, gpus FROM ledger_intervals").fetchall()
        held_ns = con.execute("SELECT held_gpu_ns FROM gp_held").fetchall()[0][0]
    assert sum((end_ns - start_ns) * gpus for _, _, start_ns, end_ns, gpus in intervals) == held_ns
    assert all(end_ns >= start_ns and gpus > 0 for _, _, start_ns, end_ns, gpus in intervals)
    assert {category for _, category, *_ in intervals} <= set(Category)
    by_attempt: dict[int, list[tuple[int, int]]] = {}
    for attempt, category, start_ns, end_ns, _ in intervals:
        if attempt is not None and category != Category.IDLE and end_ns > start_ns:
            by_attempt.setdefault(attempt, []).append((start_ns, end_ns))
    for own in by_attempt.values():
        assert all(one[1] <= next_one[0] for one, next_one in pairwise(sorted(own)))
    assert abs(sum(told["gpu_s"].values()) - told["allocated_gpu_s"]) < 1e-6 * max(1, told["allocated_gpu_s"])
    return told


def figures(told: Any) -> list[float]:
    """All numbers of a report that count or measure something."""
    if isinstance(told, dict):
        return [x for key, value in told.items() if not key.endswith("_step") for x in figures(value)]
    if isinstance(told, list | tuple):
        return [x for value in told for x in figures(value)]
    return [told] if isinstance(told, int | float) and not isinstance(told, bool) else []


@examples(12)
@given(either)
def test_the_ledger_balances_and_nothing_is_negative(events: list[Event]) -> None:
    told = balanced(events)
    assert min(figures(told)) >= 0
    assert told["goodput_ratio"] is None or told["goodput_ratio"] <= 1


@examples(5)
@given(either, st.integers(0, 2000))
def test_the_ledger_balances_at_any_moment_of_looking(events: list[Event], later_s: int) -> None:
    now_ns = max(e["ts_ns"] for e in events) + later_s * S
    assert balanced(events, now_ns)["as_of_ns"] >= now_ns


@examples(5)
@given(either, st.data())
def test_the_ledger_balances_without_what_came_last(events: list[Event], data: st.DataObject) -> None:
    """The newest events are missing, of all sources or of each by itself."""
    if data.draw(st.booleans()):
        told = sorted(events, key=lambda e: (e["ts_ns"], e["source"], e["seq"]))
        balanced(told[: data.draw(st.integers(1, len(told)))])
        return
    rnd = data.draw(st.randoms(use_true_random=False))
    by_source: dict[str, list[Event]] = {}
    for event in events:
        by_source.setdefault(event["source"], []).append(event)
    kept = [e for own in by_source.values() for e in own[: rnd.randint(1, len(own))]]
    balanced(kept)


@examples(6)
@given(either, st.randoms(use_true_random=False))
def test_the_way_of_delivery_changes_nothing(events: list[Event], rnd: Random) -> None:
    lines = to_lines(events)
    with landed([lines]) as con:
        at_once = report(con, "wild").as_json()
    again = [line for line in lines if rnd.random() < 0.2]
    shuffled = [*lines, *again]
    rnd.shuffle(shuffled)
    deliveries: list[list[list[str]]] = [[[], []] for _ in range(rnd.randint(1, 3))]
    for line in shuffled:
        rnd.choice(rnd.choice(deliveries)).append(line)
    with landed(*deliveries) as con:
        in_pieces = report(con, "wild").as_json()
    assert in_pieces["quality"].pop("duplicates") == len(again)
    assert at_once["quality"].pop("duplicates") == 0
    assert in_pieces == at_once


def goodput(plan: Plan) -> float:
    life = train(plan)
    with loaded(life.events) as con:
        told = report(con, life.run)
    assert told.goodput_ratio is not None
    return told.goodput_ratio


def never_raises(before: Plan, after: Plan) -> None:
    # The ratio is one division of two sums of integers: a billionth is above all rounding and below all losses.
    assert goodput(after) <= goodput(before) + 1e-9


@examples(5)
@given(plans(), st.data())
def test_a_stall_never_raises_goodput(plan: Plan, data: st.DataObject) -> None:
    at, beyond_ns = data.draw(somewhere(plan)), data.draw(st.integers(1, 600 * S))
    never_raises(plan, replace(plan, stalls={at: beyond_ns}))


@examples(5)
@given(plans(), st.data())
def test_time_between_steps_never_raises_goodput(plan: Plan, data: st.DataObject) -> None:
    at, pause_ns = data.draw(somewhere(plan)), data.draw(st.integers(1, 600 * S))
    never_raises(plan, replace(plan, pauses={at: pause_ns}))


@examples(5)
@given(plans(), st.data())
def test_a_failure_whose_work_is_redone_never_raises_goodput(plan: Plan, data: st.DataObject) -> None:
    at = data.draw(somewhere(plan).filter(lambda n: n not in plan.crashes))
    if data.draw(st.booleans()):
        after = replace(plan, crashes={**plan.crashes, at: data.draw(st.integers(0, 9 * S))})
    else:
        after = replace(plan, hangs={at: data.draw(st.integers(1, 600 * S))})
    never_raises(plan, after)


@examples(5)
@given(plans(ranks=2), st.data())
def test_a_slow_rank_never_raises_goodput(plan: Plan, data: st.DataObject) -> None:
    first, by_ns = data.draw(somewhere(plan)), data.draw(st.integers(1, 9 * S))
    steps = range(first, min(first + data.draw(st.integers(1, 8)), plan.steps))
    never_raises(plan, replace(plan, slow=dict.fromkeys(steps, by_ns)))


@examples(5)
@given(plans())
def test_the_report_tells_the_truth_of_a_training(plan: Plan) -> None:
    """Else the four properties above would say nothing. (The truth counts on steps of one length.)"""
    life = train(replace(plan, longer={}))
    with loaded(life.events) as con:
        told = report(con, life.run)
    assert {c: s for c, s in told.gpu_s.items() if s} == {str(c): ns / S for c, ns in life.truth.gpu_ns.items() if ns}
    assert len(told.incidents) == len(plan.crashes)
