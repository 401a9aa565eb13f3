"""Which steps the present state descends from, and whose end the others are charged to."""

from __future__ import annotations

import pytest

from goodput_analytics.line import BEYOND, NOTHING, Life, base_step, fates, last_durable


def life(
    attempt: int,
    base: int,
    last: int | None,
    *,
    life: int = 0,
    durable: int | None = None,
    resumed: bool = True,
) -> Life:
    return Life(attempt=attempt, life=life, base=base, resumed=resumed, last_step=last, durable_step=durable)


def until(*lives: Life, aborted: bool = False, reported: bool = True) -> list[int | None]:
    """The last step that each life keeps."""
    kept: dict[int, int] = {}
    for f in fates(lives, aborted=aborted, reported=reported):
        if f.kept and f.to_step < BEYOND:
            kept[f.attempt] = f.to_step
    return [kept.get(one.attempt) for one in lives]


def charged(*lives: Life, aborted: bool = False, reported: bool = True) -> list[tuple[int, int, int, int]]:
    """(attempt, after_step, to_step, charged attempt) of the steps that are thrown away, in order."""
    found = fates(lives, aborted=aborted, reported=reported)
    return sorted(
        (f.attempt, f.after_step, f.to_step, f.charged_attempt)
        for f in found
        if f.charged_attempt is not None and f.to_step < BEYOND
    )


def test_a_plain_run_keeps_everything() -> None:
    assert until(life(0, 0, 100)) == [100]
    assert charged(life(0, 0, 100)) == []


def test_a_restart_keeps_what_it_resumed_from() -> None:
    assert until(life(0, 0, 100), life(1, 80, 150)) == [80, 150]
    assert charged(life(0, 0, 100), life(1, 80, 150)) == [(0, 80, 100, 0)]


def test_falling_back_past_an_earlier_restart_throws_that_attempt_away_too() -> None:
    lives = life(0, 0, 100), life(1, 80, 150), life(2, 40, 200)
    assert until(*lives) == [40, None, 200]
    # What the first attempt lost at its own end is its own; what fell later is the second's end's.
    assert charged(*lives) == [(0, 40, 80, 1), (0, 80, 100, 0), (1, 80, 150, 1)]


def test_steps_that_nobody_reported_are_missing_and_not_thrown_away() -> None:
    assert until(life(0, 0, 100), life(1, 120, 150)) == [100, 150]


def test_the_latest_life_that_holds_the_step_is_the_one_it_descends_from() -> None:
    assert until(life(0, 0, 100), life(1, 0, 90), life(2, 80, 120)) == [None, 80, 120]
    # The second does not reach so far.
    assert until(life(0, 0, 100), life(1, 0, 70), life(2, 80, 120)) == [80, None, 120]


def test_of_lives_that_all_end_too_early_the_furthest_counts_and_of_those_the_latest() -> None:
    assert until(life(0, 0, 50), life(1, 0, 40), life(2, 80, 120)) == [50, None, 120]
    assert until(life(0, 0, 50), life(1, 0, 50), life(2, 80, 120)) == [None, 50, 120]


@pytest.mark.parametrize(("base", "kept"), [(49, [49, 60]), (50, [50, 60]), (51, [50, 60])])
def test_the_edges_of_a_resume(base: int, kept: list[int]) -> None:
    assert until(life(0, 0, 50), life(1, base, 60)) == kept


def test_a_life_that_began_where_the_next_one_did_gives_nothing() -> None:
    assert until(life(0, 0, 10), life(1, 10, 30), life(2, 10, 40)) == [10, None, 40]


def test_a_failed_run_is_where_its_last_checkpoint_is() -> None:
    assert until(life(0, 0, 100, durable=90), aborted=True) == [90]
    assert charged(life(0, 0, 100, durable=90), aborted=True) == [(0, 90, 100, 0)]
    # It resumed and saved nothing since: back to what it resumed from.
    lives = life(0, 0, 100, durable=90), life(1, 80, 95)
    assert until(*lives, aborted=True) == [80, None]
    assert charged(*lives, aborted=True) == [(0, 80, 100, 0), (1, 80, 95, 1)]


def test_a_failed_run_that_reported_no_checkpoint_keeps_its_steps() -> None:
    assert until(life(0, 0, 100, resumed=False), aborted=True, reported=False) == [100]
    assert until(life(0, 0, 100, resumed=False), aborted=True) == [None]


def test_a_last_life_without_a_step_decides_all_the_same() -> None:
    assert until(life(0, 0, 100), life(1, 60, None)) == [60, None]
    assert charged(life(0, 0, 100), life(1, 60, None)) == [(0, 60, 100, 0)]


def test_attempts_without_a_step_are_not_charged() -> None:
    """The second attempt made nothing; what the third threw away is the first one's end's."""
    assert charged(life(0, 0, 100), life(1, 100, None), life(2, 60, 120)) == [(0, 60, 100, 0)]


def test_a_rollback_is_charged_to_the_life_it_ended() -> None:
    lives = life(0, 0, 50), life(0, 30, 80, life=1)
    found = [f for f in fates(lives, aborted=False, reported=True) if not f.kept and f.to_step < BEYOND]
    assert [(f.life, f.after_step, f.to_step, f.charged_life) for f in found] == [(0, 30, 50, 0)]


def test_what_is_said_of_a_step_whose_event_is_missing_shares_the_fate_of_those_around_it() -> None:
    """An evaluation after step 51, of which the life's own events know nothing."""

    def beyond(*lives: Life) -> list[bool]:
        return [f.kept for f in fates(lives, aborted=False, reported=True) if f.to_step == BEYOND]

    assert beyond(life(0, 0, 50)) == [True]
    assert beyond(life(0, 0, 50), life(1, 60, 80)) == [True, True]
    assert beyond(life(0, 0, 50), life(1, 50, 80)) == [False, True]
    assert beyond(life(0, 0, 50), life(1, 40, 80)) == [False, True]


def test_the_last_durable_checkpoint() -> None:
    assert last_durable([life(0, 0, 9, durable=5), life(1, 5, 20, durable=15)]) == 15
    assert last_durable([life(0, 0, 9, durable=8), life(1, 5, 20)]) == 5
    assert last_durable([life(0, 0, 9, durable=8), life(1, 8, 20, resumed=False)]) == 8
    assert last_durable([life(0, 0, 9, resumed=False)]) == NOTHING


@pytest.mark.parametrize(
    ("resumes", "every", "first", "count", "base"),
    [
        ([], False, 1, 1, 0),
        ([], False, 51, 1, 50),
        ([], False, 55, 5, 50),
        ([50, 50], True, 51, 1, 50),
        ([50, 40], True, 51, 1, 40),  # the least of what the ranks loaded
        ([60], True, 51, 1, 50),  # and no more than what comes before the first step
        ([None, None], True, 1, 1, 0),
        ([None, None], True, 51, 1, 50),  # said to begin anew, but it does not
        ([None], False, 51, 1, 50),
        ([40], True, None, 1, 40),
        ([None], True, None, 1, NOTHING),
        ([None, 30], True, 31, 1, 30),
    ],
)
def test_the_resume_step(resumes: list[int | None], every: bool, first: int | None, count: int, base: int) -> None:
    assert base_step(resumes=resumes, every_rank=every, first_step=first, count=count) == base
