"""Which ranks an interruption began with."""

from __future__ import annotations

from typing import Any

import pytest

from goodput_analytics.suspects import DEFAULT_BEAT_NS, Sign, missing_ranks, suspect_ranks

S = 1_000_000_000


def sign(rank: int, last_s: float, **more: Any) -> Sign:
    fields: dict[str, Any] = {
        "attempt": 0,
        "rank": rank,
        "last_sign_ns": round(last_s * S),
        "stop_ns": None,
        "stop_reason": None,
        "exit_ns": None,
        "exit_word": None,
        "phase": None,
        "step": None,
        "beat_ns": None,
        "abort_ns": 100 * S,
        "elsewhere_ns": 10 * S,
    }
    return Sign(**fields | more)


def raised(rank: int, at_s: float, reason: str = "exception") -> Sign:
    return sign(rank, at_s, stop_ns=round(at_s * S), stop_reason=reason)


def killed(rank: int, at_s: float, word: str = "signal 9", last_s: float = 0) -> Sign:
    return sign(rank, last_s, exit_ns=round(at_s * S), exit_word=word)


def test_in_a_hang_those_that_fell_silent_first() -> None:
    assert suspect_ranks("hang", [sign(0, 90, beat_ns=5 * S), sign(1, 30, beat_ns=5 * S), sign(2, 91)]) == (1,)
    assert suspect_ranks("hang", [sign(0, 90), sign(1, 30), sign(2, 91), sign(3, 31)]) == (1, 3)


@pytest.mark.parametrize(("beat_ns", "apart_ns"), [(5 * S, 10 * S), (2 * S, 4 * S), (None, 2 * DEFAULT_BEAT_NS)])
def test_silent_means_by_more_than_two_heartbeats(beat_ns: int | None, apart_ns: int) -> None:
    def pair(apart: int) -> list[Sign]:
        return [sign(0, 50, beat_ns=beat_ns), sign(1, 50 + apart / S, beat_ns=beat_ns)]

    assert suspect_ranks("hang", pair(apart_ns)) == ()
    assert suspect_ranks("hang", pair(apart_ns + 1000)) == (0,)


def test_where_all_spoke_those_that_are_not_where_most_are() -> None:
    there = [sign(r, 90, phase="waiting", step=7) for r in (0, 1, 3)]
    assert suspect_ranks("hang", [*there, sign(2, 90, phase="step", step=7)]) == (2,)
    assert suspect_ranks("hang", [*there, sign(2, 90, phase="waiting", step=6)]) == (2,)
    assert suspect_ranks("hang", [*there, sign(2, 90, phase="waiting", step=7)]) == ()
    # No more than half are anywhere: nothing tells.
    assert suspect_ranks("hang", [sign(0, 90, phase="waiting", step=7), sign(1, 90, phase="step", step=7)]) == ()
    assert suspect_ranks("hang", [sign(0, 90), sign(1, 90)]) == ()


def test_in_a_crash_the_one_that_raised_first() -> None:
    assert suspect_ranks("crash", [raised(0, 40.2), raised(1, 40), raised(2, 41, "signal")]) == (1,)
    assert suspect_ranks("crash", [raised(0, 40), raised(1, 40), raised(2, 41)]) == (0,)


def test_when_all_raised_together_the_lowest_is_told() -> None:
    assert suspect_ranks("crash", [raised(0, 40), raised(1, 40)]) == (0,)
    assert suspect_ranks("crash", [raised(0, 40)]) == (0,)


def test_a_killed_rank_comes_before_its_peers_that_raised() -> None:
    assert suspect_ranks("crash", [raised(0, 40), killed(1, 40.1)]) == (1,)
    # One that the launcher took down afterwards did not begin it, nor one that was seen to be gone much later.
    assert suspect_ranks("crash", [raised(0, 40), killed(1, 40.1, "signal 15")]) == (0,)
    assert suspect_ranks("crash", [raised(0, 40), killed(1, 40.1, "exit code 0")]) == (0,)
    assert suspect_ranks("crash", [raised(0, 40), killed(1, 70)]) == (0,)


def test_nobody_is_to_blame_for_a_preemption() -> None:
    assert suspect_ranks("preempted", [raised(0, 40), killed(1, 40.1)]) == ()


def test_who_is_missing_now_what_it_does_and_since_when_it_is_missed() -> None:
    there = [sign(r, 90, phase="waiting", elsewhere_ns=(20 + r) * S) for r in (0, 1, 3)]
    found = missing_ranks([*there, sign(2, 90, phase="checkpoint", elsewhere_ns=90 * S)])
    assert (found.ranks, found.phases, found.since_ns) == ((2,), ("checkpoint",), 23 * S)
    found = missing_ranks([*there, sign(2, 30, phase="waiting")])
    assert (found.ranks, found.phases, found.since_ns) == ((2,), (), 23 * S)
    assert missing_ranks([*there, sign(2, 90, phase="waiting")]).ranks == ()
    assert missing_ranks([]).ranks == ()
