"""The summary at the end of an attempt: what it counts, and that it never holds anybody up."""

from __future__ import annotations

import io
import os
import sys
import time
from pathlib import Path

import pytest
from recorder_made import EPOCH_NS, MS, Made, make
from recorder_scripts import run_script

from goodput.events import StopReason
from goodput.saying import say, say_summary
from goodput.tally import SpanTimes, StepTimes, Summary, summarize, summary_lines

S = 1000 * MS


def seconds(summary: Summary) -> dict[str, float]:
    return {name: ns / S for name, ns in summary.by_category_ns.items() if ns}


def attempt(spool: Path) -> Made:
    """Two seconds of startup, ten steps of a second with 0.2 s of input each, a save of 3 s after step 5, one step
    that the scaler skipped, an evaluation of 4 s in which a step is open, half a second of nothing."""
    made = make(spool)
    made.rec.started_ns = EPOCH_NS - 1 * S
    made.time.advance(1000)
    with made.rec.span("load_checkpoint"):
        made.time.advance(0)
    for step in range(1, 11):
        for _ in made.rec.data([step]):
            pass
        since = made.rec.steps.fetch()
        made.time.advance(200)
        made.rec.steps.fetched(since)
        made.step(step, 800, applied=step != 7)
        if step == 5:
            with made.rec.checkpoint(step):
                made.time.advance(2000)
                with made.rec.span("inner", category="idle"):
                    made.time.advance(1000)
    made.rec.begin_step(11)
    with made.rec.evaluation():
        made.time.advance(4000)
    made.time.advance(1000)
    made.rec.end_step()
    made.time.advance(500)
    return made


def test_the_parts_are_right_and_add_up(spool: Path) -> None:
    made = attempt(spool)
    summary = made.rec.summary()
    assert seconds(summary) == {
        "startup": 2.0,
        "checkpoint": 3.0,
        "evaluation": 4.0,
        "data_wait": 2.0,
        "rework": 0.8,
        "productive": 0.8 * 9 + 1,
        "unattributed": 0.5,
    }
    assert (summary.steps, summary.saves, summary.held_ns) == (11, 1, sum(summary.by_category_ns.values()))
    assert summary.goodput_ratio == pytest.approx(8.2 / 20.5)


def test_the_lines_say_it(spool: Path) -> None:
    assert summary_lines(attempt(spool).rec.summary()) == [
        "run: goodput 40.0 % of this attempt, as rank 0 of 1 saw it: 11 steps, 1 save in 20.5 s",
        "largest losses: checkpoint 3.00 s (14.6 %), startup 2.00 s (9.8 %), data_wait 2.00 s (9.8 %)",
    ]


def test_a_loss_that_is_next_to_nothing_is_not_told() -> None:
    parts = {"productive": 995 * S, "startup": 4 * S, "data_wait": S // 2, "checkpoint": S // 2}
    summary = Summary(run="r", rank=0, world_size=1, steps=1, saves=1, held_ns=1000 * S, by_category_ns=parts)
    assert summary_lines(summary)[1:] == ["largest losses: startup 4.00 s (0.4 %)"]
    perfect = Summary(run="r", rank=0, world_size=1, steps=1, saves=1, held_ns=S, by_category_ns={"productive": S})
    assert len(summary_lines(perfect)) == 1


def test_without_a_step_all_is_startup() -> None:
    nothing = StepTimes(count=0, first_ns=None, spent_ns=0, waited_ns=0, skipped_ns=0)
    summary = summarize(run="r", rank=0, world_size=1, start_ns=5 * S, end_ns=9 * S, steps=nothing, spans=SpanTimes())
    assert (seconds(summary), summary.goodput_ratio) == ({"startup": 4.0}, 0.0)
    empty = summarize(run="r", rank=0, world_size=1, start_ns=5, end_ns=5, steps=nothing, spans=SpanTimes())
    assert empty.goodput_ratio is None
    assert summary_lines(empty) == ["r: goodput unknown of this attempt, as rank 0 of 1 saw it: 0 steps in 0.00 s"]


@pytest.mark.parametrize("spent", [0, 3 * S, 90 * S])
def test_figures_that_contradict_each_other_still_add_up(spent: int) -> None:
    spans = SpanTimes()
    spans.add("checkpoint", 7 * S, inside_step=True)
    steps = StepTimes(count=1, first_ns=-4, spent_ns=spent, waited_ns=5 * S, skipped_ns=S)
    summary = summarize(run="r", rank=0, world_size=1, start_ns=0, end_ns=10 * S, steps=steps, spans=spans)
    assert sum(summary.by_category_ns.values()) == 10 * S
    assert min(summary.by_category_ns.values()) >= 0


def test_only_rank_0_speaks_and_only_at_a_good_end(spool: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = attempt(spool)
    say_summary(made.rec.summary(), StopReason.EXCEPTION)
    made.rec.rank = 1
    say_summary(made.rec.summary(), StopReason.FINISHED)
    assert capsys.readouterr() == ("", "")
    made.rec.rank = 0
    say_summary(made.rec.summary(), StopReason.FINISHED)
    out, err = capsys.readouterr()
    assert out == "" and err.splitlines()[0].startswith("goodput: run: goodput 40.0 %")


SCRIPT = """
rec = goodput.start(run="told")
for step in range(3):
    with rec.step(step):
        time.sleep(0.05)
    with rec.checkpoint(step):
        time.sleep(0.1)
print("done")
rec.finish()
"""


def test_a_real_process_says_it_on_stderr(spool: Path) -> None:
    done = run_script(SCRIPT, spool, GOODPUT_SUMMARY="1")
    assert (done.returncode, done.stdout) == (0, "done\n")
    first, second, third = done.stderr.splitlines()
    assert first.startswith("goodput: told: goodput ") and "3 steps, 3 saves in " in first
    assert second.startswith("goodput: largest losses: ") and "checkpoint 0.3" in second
    assert third == f"goodput: the whole ledger: goodput ingest {spool}, then goodput report told"


@pytest.mark.parametrize(("name", "value"), [("GOODPUT_SUMMARY", "0"), ("GOODPUT_DISABLED", "1")])
def test_it_can_be_switched_off(spool: Path, name: str, value: str) -> None:
    done = run_script(SCRIPT, spool, **{"GOODPUT_SUMMARY": "1", name: value})
    assert (done.stdout, done.stderr) == ("done\n", "")


def test_a_reader_that_does_not_read_is_not_waited_for() -> None:
    read, write = os.pipe()
    os.set_blocking(write, False)
    try:
        while True:
            os.write(write, b"x" * 65536)
    except BlockingIOError:
        pass
    os.set_blocking(write, True)
    with os.fdopen(write, "w") as full:
        began_s = time.monotonic()
        say(["nobody hears this"], full)
        assert time.monotonic() - began_s < 1
        os.set_blocking(read, False)
        os.read(read, 1 << 20)
    os.close(read)


def test_streams_that_have_gone_are_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    say(["x"], closed)
    monkeypatch.setattr(sys, "stderr", None)
    say(["x"])
    kept = io.StringIO()
    say(["one", "two"], kept)
    assert kept.getvalue() == "goodput: one\ngoodput: two\n"


def test_a_summary_that_hangs_holds_the_process_no_longer_than_its_disk_would(spool: Path) -> None:
    began_s = time.monotonic()
    done = run_script(
        """
        rec = goodput.start(run="stuck")
        with rec.step(1):
            pass
        rec.on_end = lambda *_: time.sleep(3600)
        rec.finish()
        print("on", flush=True)
        """,
        spool,
    )
    assert (done.returncode, done.stdout) == (0, "on\n")
    assert time.monotonic() - began_s < 20
