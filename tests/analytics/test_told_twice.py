"""What a process says twice: which of the two counts."""

from __future__ import annotations

from agreeing import told

from reference.stories import Story, at


def test_of_two_starts_of_one_source_the_first_counts() -> None:
    story = Story()
    g = story.group(start=0, only=[0], world=2, token="one")
    g.tell("start", 2, job="other", rank=1, world_size=3, node="other", process_start_ns=at(-5), attempt_token="one")
    g.steps(1, 3, 10)
    g.stop(13, "finished")
    report = told(story)
    [attempt] = report["attempts"]
    assert (attempt["start_ns"], attempt["world_size"], attempt["job"]) == (at(0), 2, "job")
    assert report["quality"]["silent_ranks"] == (1,)


def test_a_token_said_again_begins_nothing() -> None:
    story = Story()
    g = story.group(start=0, token="one")
    g.steps(1, 3, 10)
    g.tell("joined", 20, attempt_token="two", rank=0, world_size=1)
    g.steps(4, 5, 25)
    g.tell("joined", 30, attempt_token="two", rank=0, world_size=1)
    g.steps(6, 7, 31)
    g.stop(33, "finished")
    assert [a["start_ns"] for a in told(story)["attempts"]] == [at(0), at(20)]


def test_of_two_words_of_one_token_the_first_says_which_rank_it_is() -> None:
    story = Story()
    g = story.group(start=0, token=None)
    g.tell("joined", 2, attempt_token="one", rank=1, world_size=2)
    g.tell("joined", 3, attempt_token="one", rank=2, world_size=3)
    g.steps(1, 3, 10)
    g.stop(13, "finished")
    report = told(story)
    assert report["attempts"][0]["world_size"] == 2
    assert report["quality"]["silent_ranks"] == (0,)


def test_five_spans_are_enough_to_tell_one_that_was_too_long() -> None:
    """Four of 10 s and one of 70 s; one of 60 s is not beyond the minute that every span may take."""
    for length, findings in ((70, 1), (60, 0)):
        story = Story()
        g = story.group(start=0, token="one")
        now = g.steps(1, 2, 10)
        for n in range(5):
            span = length if n == 2 else 10
            g.span("tidying", now, now + span)
            now = g.steps(3 + n, 3 + n, now + span)
        g.stop(now, "finished")
        codes = [finding["code"] for finding in told(story)["findings"]]
        assert codes.count("long_span") == findings
