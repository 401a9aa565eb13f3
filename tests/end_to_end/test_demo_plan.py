"""What the demonstration decides before it starts, and what it refuses."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from goodput_collector.demo import DemoOptions, DemoUsageError, Fault
from goodput_collector.demo.options import make_plan, slow_steps
from goodput_collector.demo.run import command_name


def test_faults_are_played_in_their_own_order() -> None:
    plan = make_plan(DemoOptions())
    assert plan.faults == (Fault.SLOW_RANK, Fault.SLOW_SAVE, Fault.KILL, Fault.HANG)
    assert plan.restarts == 2
    assert plan.left_out == ()


@pytest.mark.parametrize("faults", [(), ("none",)])
def test_nobody_is_disturbed(faults: tuple[str, ...]) -> None:
    plan = make_plan(DemoOptions(faults=faults))
    assert plan.faults == ()
    assert plan.restarts == 0


def test_one_rank_has_no_peers_to_wait_for_it() -> None:
    plan = make_plan(DemoOptions(ranks=1))
    assert plan.faults == (Fault.SLOW_SAVE, Fault.KILL)
    assert plan.left_out == (Fault.SLOW_RANK, Fault.HANG)
    assert plan.kill_rank == 0


@pytest.mark.parametrize("ranks", range(2, 9))
def test_those_who_are_struck_exist_and_are_not_rank_zero(ranks: int) -> None:
    plan = make_plan(DemoOptions(ranks=ranks))
    assert all(0 < rank < ranks for rank in (plan.slow_rank, plan.kill_rank, plan.hang_rank))


@pytest.mark.parametrize("ranks", range(2, 9))
@pytest.mark.parametrize("other_steps", [0, 100, 800])
def test_a_slow_rank_is_slow_for_long_enough_to_be_named(ranks: int, other_steps: int) -> None:
    slow = slow_steps(ranks, other_steps)
    s = slow + other_steps
    latest = slow + other_steps / ranks
    deviation = math.sqrt(s / ranks * (1 - 1 / ranks))
    assert latest > s / ranks + 3 * deviation
    if slow < 200:  # the cap may eat the margin, never the test itself
        assert latest >= s / ranks + 5.9 * deviation


def test_a_kill_or_hang_is_far_from_saves_and_a_hang_beyond_the_hang_limit() -> None:
    for seconds in (20, 120):
        plan = make_plan(DemoOptions(seconds=seconds))
        assert 5 <= plan.fault_after_save < plan.save_every - 5
        assert plan.group_timeout_s > 10 + 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"ranks": 0},
        {"ranks": 9},
        {"seconds": 0.0},
        {"seconds": math.nan},
        {"faults": ("fire",)},
        {"faults": ("none", "kill")},
    ],
)
def test_what_cannot_be_played_is_refused_in_words(wrong: dict[str, object]) -> None:
    with pytest.raises(DemoUsageError, match="--"):
        DemoOptions(**wrong)  # type: ignore[arg-type]


def test_the_command_to_call_next_is_one_that_the_shell_finds(tmp_path: Path) -> None:
    here, other = str(tmp_path / ".venv/bin/goodput"), str(tmp_path / "bin/goodput")
    assert command_name(here, here) == "goodput"
    assert command_name(here, other) == command_name(here, None) == here
    assert command_name(".venv/bin/goodput", None) == ".venv/bin/goodput"
    assert command_name("my env/bin/goodput", None) == "'my env/bin/goodput'"
    assert command_name("-m", None) == "goodput"
