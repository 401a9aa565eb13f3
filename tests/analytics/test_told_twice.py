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


def raised(*, again: bool) -> Story:
    """Two of three ranks raised at 30 s, and the third made more steps after that; before, it had fallen back to step
    9, or not. At 22 s an agent heard the third say that it was at step 10."""
    story = Story()
    g = story.group(start=0, ranks=3, token="one", ahead={2: 100})
    g.steps(1, 9, 10)
    if again:
        g.step(10, 19, 20)
        g.step(9, 20, 21)
    story.other("beats").tell("heartbeat", at(122), of="source-03", step=10, phase="step")
    g.stop(30, "exception", ranks=[0, 1])
    g.steps(10, 12, 30, ranks=[2])
    g.stop(33, "exception", ranks=[2])
    return story


def test_a_first_heartbeat_advances_beyond_the_last_step_that_was_made_before_the_end() -> None:
    """What the rank made after its attempt's end does not count against it, nor what it fell back from."""
    for again in (False, True):
        assert told(raised(again=again))["incidents"][-1]["last_progress_ns"] == at(22)


def test_a_heartbeat_of_the_step_that_was_told_last_before_a_new_beginning_is_no_progress() -> None:
    """Rank 1's last word before it began anew was step 10, and so said the heartbeat; rank 2 went on after the end."""
    story = Story()
    g = story.group(start=0, ranks=3, token="one")
    g.steps(1, 10, 10)
    story.other("beats").tell("heartbeat", at(22), of="source-02", step=10, phase="step")
    g.stop(30, "exception", ranks=[0, 2])
    g.steps(11, 12, 30, ranks=[2])
    g.tell("joined", 40, ranks=[1], attempt_token="two", rank=1, world_size=3)
    g.steps(11, 12, 41, ranks=[1])
    assert told(story)["incidents"][0]["last_progress_ns"] == at(20)
