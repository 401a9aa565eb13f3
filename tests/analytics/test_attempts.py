"""Which processes are one attempt, and which attempts one launch."""

from __future__ import annotations

from typing import Any

import pytest

from goodput_analytics.attempts import PartFacts, ended_ns, group_attempts, split_launches

NOBODY: dict[str, Any] = {
    "token": None,
    "node": None,
    "grp": None,
    "job": "job",
    "first_step_ns": None,
    "last_step_ns": None,
    "first_done_ns": None,
    "last_told_ns": 0,
    "stop_ns": None,
    "stop_reason": None,
    "exit_ns": None,
}


def process(number: int, at: int, *, rank: int = 0, world: int = 2, **facts: Any) -> PartFacts:
    """A process that started at `at`; in these tests a nanosecond is as good as a second."""
    return PartFacts(
        source_id=number,
        part=facts.pop("part", 0),
        source=f"source-{number}",
        from_seq=0,
        to_seq=99,
        rank=rank,
        world_size=world,
        devices=1,
        process_ns=at,
        told_ns=at + 1,
        **NOBODY | facts,
    )


def steps(first: int, last: int) -> dict[str, int]:
    return {"first_step_ns": first, "first_done_ns": first + 1, "last_step_ns": last}


def grouped(*parts: PartFacts) -> list[list[int]]:
    return [[part.source_id for part in members] for members in group_attempts(parts)]


def test_one_token_is_one_attempt() -> None:
    assert grouped(process(1, 0, token="a"), process(2, 5, rank=1, token="a"), process(3, 9, token="b")) == [
        [1, 2],
        [3],
    ]


def test_a_token_joins_its_attempt_though_another_began_meanwhile() -> None:
    parts = process(1, 0, token="a"), process(2, 5, token="b"), process(3, 9, rank=1, token="a")
    assert grouped(*parts) == [[1, 3], [2]]


def test_processes_without_a_token_follow_the_one_before() -> None:
    assert grouped(process(1, 0), process(2, 1, rank=1)) == [[1, 2]]


def test_a_new_token_is_given_to_an_attempt_that_has_none() -> None:
    parts = process(1, 0), process(2, 1, rank=1, token="a", world=3), process(3, 2, rank=2, world=3)
    assert grouped(process(1, 0, world=3), *parts[1:]) == [[1, 2, 3]]
    # From then on it has one: another token is another attempt, though the rank is free.
    assert grouped(process(1, 0, world=3), parts[1], process(3, 2, rank=2, token="b", world=3)) == [[1, 2], [3]]


def test_a_rank_that_is_there_begins_a_new_attempt() -> None:
    assert grouped(process(1, 0), process(2, 1)) == [[1], [2]]


def test_another_world_size_begins_a_new_attempt() -> None:
    assert grouped(process(1, 0), process(2, 1, rank=1, world=3)) == [[1], [2]]


@pytest.mark.parametrize(("started", "attempts"), [(10, [[1, 2]]), (11, [[1], [2]]), (12, [[1], [2]])])
def test_after_a_step_was_done_nobody_joins(started: int, attempts: list[list[int]]) -> None:
    first = process(1, 0, **steps(10, 50))
    assert grouped(first, process(2, started, rank=1)) == attempts


@pytest.mark.parametrize(("started", "attempts"), [(19, [[1, 2]]), (20, [[1], [2]]), (21, [[1], [2]])])
def test_after_its_end_nobody_joins(started: int, attempts: list[list[int]]) -> None:
    first = process(1, 0, world=2, stop_ns=20, stop_reason="exception")
    assert grouped(first, process(2, started, rank=1)) == attempts


def test_a_second_token_in_a_source_is_a_second_attempt() -> None:
    parts = (
        process(1, 0, token="a"),
        process(2, 0, rank=1, token="a"),
        process(1, 50, part=1, token="b"),
        process(2, 51, rank=1, part=1, token="b"),
    )
    assert [[(p.source_id, p.part) for p in own] for own in group_attempts(parts)] == [
        [(1, 0), (2, 0)],
        [(1, 1), (2, 1)],
    ]


def how(reason: str | None, at: int) -> dict[str, Any]:
    return {"stop_ns": at, "stop_reason": reason} if reason else {"exit_ns": at or None}


def stopped(*ends: tuple[str | None, int]) -> list[PartFacts]:
    """Ranks with the reason and the time of their stop; no reason: it was seen to be gone; time 0: still there."""
    return [process(i, 0, rank=i, world=len(ends), **how(reason, at)) for i, (reason, at) in enumerate(ends)]


def test_more_than_half_must_say_that_it_is_finished() -> None:
    assert ended_ns(stopped(("finished", 10), ("exited", 12), ("exception", 9))) == 12
    # Two of four are not more than half; the abort is when both of the others had said so and three had gone.
    assert ended_ns(stopped(("finished", 10), ("finished", 12), ("exception", 9), ("signal", 11))) == 11


def test_an_abort_waits_for_most_of_those_who_say_so_and_for_most_of_all() -> None:
    assert ended_ns(stopped(("exception", 10), ("signal", 30), ("signal", 31), (None, 0))) == 31
    # One raised at 10 and the others went without a word much later.
    assert ended_ns(stopped(("exception", 10), (None, 60), (None, 61), (None, 62))) == 61
    # One raised, the others are still there: that is its end as far as anybody knows.
    assert ended_ns(stopped(("exception", 10), (None, 0), (None, 0))) == 10


def test_nobody_said_anything_but_some_were_seen_to_go() -> None:
    assert ended_ns(stopped((None, 20), (None, 0), (None, 0))) == 20
    assert ended_ns(stopped((None, 0), (None, 0))) is None


def launches(*attempts: list[PartFacts], overlap: int = 60) -> list[list[list[int]]]:
    return [
        [[part.source_id for part in members] for members in launch] for launch in split_launches(attempts, overlap)
    ]


def test_attempts_that_progress_side_by_side_for_long_are_two_launches() -> None:
    one = [process(1, 0, job="one", **steps(10, 500))]
    assert launches(one, [process(2, 5, job="two", **steps(20, 80))]) == [[[1], [2]]]
    assert launches(one, [process(2, 5, job="two", **steps(20, 81))]) == [[[1]], [[2]]]


def test_progress_after_an_attempts_end_does_not_count() -> None:
    """A zombie that goes on beside its successor is no launch of its own."""
    zombie = [process(1, 0, **steps(10, 500), stop_ns=50, stop_reason="exception")]
    assert launches(zombie, [process(2, 60, **steps(70, 400))]) == [[[1], [2]]]


def test_a_launch_goes_on_with_the_attempts_of_its_job() -> None:
    one = [process(1, 0, job="one", **steps(10, 500))]
    two = [process(2, 5, job="two", **steps(20, 300))]
    again = [process(3, 600, job="two", **steps(610, 900))]
    assert launches(one, two, again) == [[[1]], [[2], [3]]]


def test_an_attempt_without_a_step_is_beside_nothing() -> None:
    one = [process(1, 0, job="one", **steps(10, 500))]
    assert launches(one, [process(2, 5, job="two")]) == [[[1], [2]]]
