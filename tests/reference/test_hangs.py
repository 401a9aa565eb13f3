"""Small runs worked out by hand: when nothing moves, and who may be at fault."""

from __future__ import annotations

import pytest

from .stories import Story, at, gpu_s


@pytest.mark.parametrize(
    ("phases", "state", "category"),
    [(["between", "between"], "paused", "unattributed"), (["between", "step"], "hung", "hang")],
)
def test_a_live_run_that_stands_still_between_steps_may_be_saving(phases: list[str], state: str, category: str) -> None:
    story = Story()
    g = story.group(start=0, ranks=2, token="one")
    g.steps(1, 10, 10)
    for rank, phase in enumerate(phases):
        g.tell("heartbeat", 50, ranks=[rank], step=10, phase=phase)
    report = story.report()
    assert report["state"] == state
    assert gpu_s(report) == {"startup": 20, "productive": 20, category: 60}


def test_a_live_run_is_lost_when_the_collector_has_not_heard_of_it_for_long() -> None:
    story = Story()
    g = story.group(start=0, token="one")
    g.steps(1, 10, 10)
    assert story.report()["state"] == "running"
    assert story.report(now_ns=at(620))["state"] == "hung"
    report = story.report(now_ns=at(621))
    assert (report["state"], report["as_of_ns"]) == ("lost", at(621))
    assert gpu_s(report) == {"startup": 10, "productive": 10, "hang": 601}


def test_who_had_not_reached_the_phase_of_the_others_is_suspect() -> None:
    """All speak up to the abort of a hang; rank 1 alone is still waiting for input."""
    story = Story()
    g = story.group(start=0, ranks=3, token="one")
    g.steps(1, 10, 10)
    for n in range(5):
        for rank in range(3):
            phase = "between" if rank == 1 else "step"
            g.tell("heartbeat", 25 + 5 * n, ranks=[rank], step=10, phase=phase)
    g.stop(48, "exception")
    report = story.report()
    assert report["incidents"][0]["cause"] == "hang"
    assert report["incidents"][0]["suspect_ranks"] == [1]
    assert gpu_s(report) == {"startup": 30, "productive": 30, "hang": 84}


def test_a_heartbeat_whose_step_has_advanced_is_a_mark() -> None:
    """The event of step 11 never came, but a heartbeat at 25 s knows of it: only 15 s were without progress."""
    story = Story()
    g = story.group(start=0, token="one")
    g.steps(1, 10, 10)
    g.tell("heartbeat", 22, step=10, phase="step")
    g.tell("heartbeat", 25, step=11, phase="step")
    g.tell("heartbeat", 30, step=11, phase="step")
    g.stop(40, "exception")
    report = story.report()
    assert report["incidents"][0]["detection_s"] == 15
    assert gpu_s(report) == {"startup": 10, "productive": 10, "unattributed": 5, "hang": 15}


@pytest.mark.parametrize(("dies_after_s", "category"), [(90, "checkpoint"), (91, "hang")])
def test_an_open_span_is_measured_by_its_like(dies_after_s: int, category: str) -> None:
    """A save took 30 s before; the next is no hang up to three times that."""
    story = Story()
    g = story.group(start=0, token="one")
    g.steps(1, 10, 10)
    g.span("checkpoint", 20, 50, step=10)
    g.steps(11, 20, 50)
    g.span("checkpoint", 60, None, step=20)
    g.stop(60 + dies_after_s, "signal")
    report = story.report()
    expected = {"startup": 10, "productive": 10, "rework": 10, "checkpoint": 30, category: float(dies_after_s)}
    if category == "checkpoint":
        expected["checkpoint"] = 30 + dies_after_s
    assert gpu_s(report) == expected
    assert report["incidents"][0]["cause"] == ("hang" if category == "hang" else "crash")


@pytest.mark.parametrize(("waits", "category"), [(15, "rework"), (16, "hang")])
def test_a_wait_at_an_abort_is_a_hang_beyond_three_typical_steps(waits: int, category: str) -> None:
    story = Story()
    g = story.group(start=0, token="one")
    end = g.steps(1, 10, 10, 5.0)
    g.stop(end + waits, "exception")
    assert gpu_s(story.report()) == {"startup": 10, "productive": 50, category: waits}


def test_typical_is_of_the_last_twenty_five_windows() -> None:
    """Twenty steps of 1 s and five of 8 s: 1 s is typical, so 15 s without progress are a hang."""
    story = Story()
    g = story.group(start=0, token="one")
    end = g.steps(1, 21, 10, 1.0)
    end = g.steps(22, 26, end, 8.0)
    g.stop(end + 15, "exception")
    assert gpu_s(story.report()) == {"startup": 10, "productive": 61, "hang": 15}


@pytest.mark.parametrize(("last_beat", "suspects"), [(90, []), (89, [1])])
def test_who_fell_silent_by_more_than_two_heartbeats_is_suspect(last_beat: int, suspects: list[int]) -> None:
    """Heartbeats every 5 s, those of ranks 0 and 2 up to the abort at 100 s."""
    story = Story()
    g = story.group(start=0, ranks=3, token="one")
    g.steps(1, 10, 10)
    for n in range(16):
        g.tell("heartbeat", 25 + 5 * n, ranks=[0, 2], step=10, phase="step")
    g.tell("heartbeat", last_beat - 5, ranks=[1], step=10, phase="step")
    g.tell("heartbeat", last_beat, ranks=[1], step=10, phase="step")
    g.stop(100, "exception", ranks=[0, 2])
    report = story.report()
    assert report["incidents"][0]["cause"] == "hang"
    assert report["incidents"][0]["suspect_ranks"] == suspects


@pytest.mark.parametrize(("silent_s", "category", "cause"), [(60, "startup", "lost"), (61, "hang", "hang")])
def test_silence_beyond_a_minute_is_a_hang(silent_s: int, category: str, cause: str) -> None:
    """Nobody says that the first attempt ended, at 20 s."""
    story = Story()
    g = story.group(start=0, token="one")
    g.steps(1, 10, 10)
    g = story.group(start=20 + silent_s, token="two")
    g.resume(25 + silent_s, 10)
    end = g.steps(11, 15, 30 + silent_s)
    g.stop(end, "finished")
    report = story.report()
    [row] = report["incidents"]
    assert (row["cause"], row["hang_gpu_s"]) == (cause, silent_s if category == "hang" else 0)
    assert row["detection_s"] == (silent_s if category == "hang" else 0)
    assert report["gpu_s"]["startup"] == 20 + (silent_s if category == "startup" else 0)
    assert report["quality"]["assumed_gpu_s"] == silent_s
