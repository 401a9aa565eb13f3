"""Ranks that tell of different rollbacks: the others go by where the rank that tells most began a life."""

from __future__ import annotations

import pytest
from agreeing import told

from reference.stories import Group, Story, gpu_s


def pair(*, then: float, follower: dict[int, tuple[float, float]]) -> tuple[Story, Group]:
    """Rank 0 makes steps 1 to 4 from 10 s on, falls back, and makes 3 to 6; step 3 the second time from `then` to 16 s.
    Rank 1 tells of no rollback, and of these steps."""
    story = Story()
    g = story.group(start=0, ranks=2, token="one")
    g.steps(1, 4, 10, ranks=[0])
    g.step(3, then, 16, ranks=[0])
    g.steps(4, 6, 16, ranks=[0])
    for step, (start, end) in follower.items():
        g.step(step, start, end, ranks=[1])
    g.stop(19, "finished")
    return story, g


@pytest.mark.parametrize(("ended", "thrown"), [(14.5, 2.5), (15, 2)])
def test_a_step_that_ends_in_the_middle_between_two_of_the_leaders_is_of_the_new_life(
    ended: float, thrown: float
) -> None:
    """Rank 0's ends are 14 and 16 s; it said so at 14.2 s. Rank 1 ended its only step 3 before the middle, or in it:
    what is thrown away began at 12 s, and ended with that step, or with rank 0's own step 4."""
    follower = {1: (10, 11), 2: (11, 12), 3: (13.5, ended), 4: (16, 17), 5: (17, 18), 6: (18, 19)}
    story, _ = pair(then=14.2, follower=follower)
    report = told(story)
    assert report["incidents"][0]["lost_steps"] == 2
    assert report["gpu_s"]["rework"] == 2 * thrown


def twice_fallen_back(*, loaded: int) -> tuple[Story, Group]:
    """Rank 0 fell back to 4 and then to 2; rank 1 lost what it told from step 5 to the second time, when it had loaded
    another step."""
    story = Story()
    g = story.group(start=0, ranks=2, token="one")
    g.steps(1, 4, 10)
    g.steps(5, 6, 14, ranks=[0])
    g.resume(16.5, 4, ranks=[0])
    g.steps(5, 6, 17, ranks=[0])
    g.resume(19.5, 2, ranks=[0])
    g.resume(19.5, loaded, ranks=[1])
    return story, g


@pytest.mark.parametrize(("loaded", "lost"), [(2, (2, 4)), (1, (2, 5))])
def test_a_word_of_what_was_loaded_is_of_the_life_that_the_leader_began_by_then(
    loaded: int, lost: tuple[int, int]
) -> None:
    """It said so in the very moment in which rank 0 did: the second rollback, and no word of the first."""
    story, g = twice_fallen_back(loaded=loaded)
    g.steps(3, 7, 20)
    g.stop(25, "finished")
    assert tuple(row["lost_steps"] for row in told(story)["incidents"]) == lost


def test_a_word_of_what_was_loaded_before_a_step_that_ended_in_the_middle_begins_the_life() -> None:
    """Rank 0's ends are 19 and 21 s; rank 1's step 3 ended at 20 s."""
    story, g = twice_fallen_back(loaded=1)
    g.step(3, 20, 21, ranks=[0])
    g.step(3, 19.5, 20, ranks=[1])
    g.steps(4, 7, 21)
    g.stop(25, "finished")
    assert [row["lost_steps"] for row in told(story)["incidents"]] == [2, 5]


def test_a_word_of_what_was_loaded_counts_where_a_process_began_anew_right_after_it() -> None:
    story, g = twice_fallen_back(loaded=1)
    g.steps(3, 4, 20, ranks=[0])
    for rank in (0, 1):
        g.tell("joined", 25, ranks=[rank], attempt_token="two", rank=rank, world_size=2)
    g.resume(26, 4)
    g.steps(5, 7, 30)
    g.stop(33, "finished")
    assert [row["lost_steps"] for row in told(story)["incidents"][:2]] == [2, 5]


def test_the_last_step_before_a_process_began_anew_is_of_the_new_life_too() -> None:
    """Of the second life rank 1 told only step 6."""
    story = Story()
    g = story.group(start=0, ranks=2, token="one")
    g.steps(1, 4, 10)
    g.steps(5, 6, 14, ranks=[0])
    g.step(5, 17, 18, ranks=[0])
    g.step(6, 18, 19)
    for rank in (0, 1):
        g.tell("joined", 25, ranks=[rank], attempt_token="two", rank=rank, world_size=2)
    g.resume(26, 6)
    g.steps(7, 9, 30)
    g.stop(33, "finished")
    report = told(story)
    assert report["incidents"][0]["lost_steps"] == 2
    assert gpu_s(report)["rework"] == 2 * 2
