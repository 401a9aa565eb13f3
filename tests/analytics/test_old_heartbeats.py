"""Heartbeats are many: those long before a process's last step are not read again, and tell nothing more."""

from __future__ import annotations

from typing import Any

from loading import loaded

from goodput_analytics import report
from made_runs import Made

S = 1_000_000_000
Event = dict[str, Any]


def two_hours() -> Made:
    """Two hours of steps, then a hang: rank 1 stays in its step, the others wait for it until somebody gives up."""
    made = Made("long", ranks=3).start(resume=None).steps(1, 720, step_s=10)
    beats: list[Event] = []
    until_ns = made.now_ns + 900 * S
    begun_ns = made.events[0]["ts_ns"]
    for rank in range(3):
        for seq, at_ns in enumerate(range(begun_ns, until_ns, 10 * S)):
            step = min((at_ns - begun_ns) // (10 * S), 720)
            waits = at_ns >= made.now_ns and rank != 1
            beats.append(
                {"kind": "heartbeat", "run": "long", "source": f"long-0-{rank}-beat", "seq": seq, "ts_ns": at_ns,
                 "of": f"long-0-{rank}", "step": step, "phase": "waiting" if waits else "step"}
            )  # fmt: skip
    made.now_ns = until_ns
    made.stop("exception", "timed out")
    made.events += beats
    return made


def test_of_a_long_run_few_are_read_and_the_hang_is_told_as_ever() -> None:
    made = two_hours()
    with loaded(made.events) as con:
        told = report(con, "long").as_json()
        beats = con.execute("SELECT count(*), min(ts_ns) FROM gp_events WHERE kind = 'heartbeat'").fetchall()
    read, least_ns = beats[0]
    steps_end_ns = max(event["end_ns"] for event in made.events if event["kind"] == "step")
    assert least_ns >= steps_end_ns - 1800 * S
    assert read == 3 * sum(
        event["ts_ns"] >= steps_end_ns - 1800 * S for event in made.events if event["source"] == "long-0-0-beat"
    )
    (incident,) = told["incidents"]
    assert incident["cause"] == "hang" and list(incident["suspect_ranks"]) == [1]
    # As if they had never been sent, but for how many events there are.
    recent = [
        {**event, "seq": event["seq"] - 541} if event["kind"] == "heartbeat" else event
        for event in made.events
        if event["kind"] != "heartbeat" or event["ts_ns"] >= steps_end_ns - 1800 * S
    ]
    assert min(event["seq"] for event in recent if event["kind"] == "heartbeat") == 0
    with loaded(recent) as con:
        alone = report(con, "long").as_json()
    assert {**told, "quality": None} == {**alone, "quality": None}


def test_one_that_knows_of_a_later_step_counts_whenever_it_came() -> None:
    """Its steps were lost on the way, and the clock of its sender may be off."""
    made = two_hours()
    early = next(event for event in made.events if event["source"] == "long-0-2-beat" and event["seq"] == 5)
    early["step"] = 725
    with loaded(made.events) as con:
        report(con, "long")
        assert con.execute("SELECT count(*) FROM gp_events WHERE kind = 'heartbeat' AND step = 725").fetchone() == (1,)


def test_where_ranks_went_on_after_their_attempts_end_all_are_read() -> None:
    """Rank 2 outlives its job by an hour of steps: what tells of the end lies long before its last step."""
    made = two_hours()
    end_ns = made.now_ns
    last = max(event["seq"] for event in made.events if event["source"] == "long-0-2")
    for n in range(400):
        at_ns = end_ns + n * 10 * S
        made.events.append(
            {"kind": "step", "run": "long", "source": "long-0-2", "seq": last + 1 + n, "ts_ns": at_ns + 10 * S,
             "step": 721 + n, "start_ns": at_ns, "end_ns": at_ns + 10 * S}
        )  # fmt: skip
    with loaded(made.events) as con:
        told = report(con, "long").as_json()
        beats = con.execute("SELECT count(*) FROM gp_events WHERE kind = 'heartbeat'").fetchone()
    assert beats == (sum(event["kind"] == "heartbeat" for event in made.events),)
    assert list(told["incidents"][0]["suspect_ranks"]) == [1]
