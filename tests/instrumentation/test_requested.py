"""`rec.checkpoint_requested`: a small file in the spool reaches every rank, and a save answers it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from recorder_made import EPOCH_NS, make
from recorder_scripts import run_script

from goodput.firsttime import run_key
from goodput.recorder import LiveRecorder
from goodput.request import (
    CheckpointRequest,
    RequestWatch,
    read_request,
    request_path,
    withdraw_request,
    write_request,
)


def watched(spool: Path) -> tuple[LiveRecorder, RequestWatch]:
    made = make(spool)
    made.rec.requests = RequestWatch(spool=spool, run="run")
    return made.rec, made.rec.requests


def test_the_file_is_as_documented(spool: Path) -> None:
    spool.mkdir()
    request = CheckpointRequest(id="m-1", run="llama 7b/é", step=1250, until_ns=7)
    path = write_request(spool, request)
    assert path == request_path(spool, request.run) == spool / f"checkpoint-{run_key('llama 7b/é')}.request"
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_request(spool, request.run) == request
    assert read_request(spool, "another") is None
    path.write_text('{"v": 1, "id": "by-hand", "run": "llama 7b/é", "more": true}\n')
    assert read_request(spool, request.run) == CheckpointRequest(id="by-hand", run=request.run)
    assert [file.name for file in spool.iterdir()] == [path.name], "no draft is left"


@pytest.mark.parametrize("content", ["", "{", "[]", '{"id": "x"}', '{"id": "x", "run": "run", "step": "soon"}'])
def test_a_file_that_is_no_request_is_refused(spool: Path, content: str) -> None:
    spool.mkdir()
    request_path(spool, "run").write_text(content)
    with pytest.raises(ValueError, match="is not a request"):
        read_request(spool, "run")


def test_a_save_that_began_after_the_request_answers_it(spool: Path) -> None:
    rec, requests = watched(spool)
    early = rec.begin_span("checkpoint", step=1)
    assert not rec.checkpoint_requested()
    write_request(spool, CheckpointRequest(id="a", run="run"))
    requests.poll(EPOCH_NS)
    assert rec.checkpoint_requested()
    rec.end_span(early)
    assert rec.checkpoint_requested(), "that save began before it was asked for"
    with pytest.raises(OSError, match="full"), rec.checkpoint(2):
        raise OSError("disk is full")
    assert rec.checkpoint_requested(), "a save that failed is none"
    with rec.checkpoint(3):
        pass
    requests.poll(EPOCH_NS)
    assert not rec.checkpoint_requested()
    write_request(spool, CheckpointRequest(id="a", run="run", step=0))
    requests.poll(EPOCH_NS)
    assert not rec.checkpoint_requested(), "the same request again"
    write_request(spool, CheckpointRequest(id="b", run="run"))
    requests.poll(EPOCH_NS)
    assert rec.checkpoint_requested()
    withdraw_request(spool, "run")
    requests.poll(EPOCH_NS)
    assert not rec.checkpoint_requested()


def test_with_a_step_all_ranks_answer_after_the_same_one(spool: Path) -> None:
    rec, requests = watched(spool)
    write_request(spool, CheckpointRequest(id="a", run="run", step=3))
    requests.poll(EPOCH_NS)
    assert not rec.checkpoint_requested(), "no step is done yet"
    answers = []
    for step in range(1, 6):
        with rec.step(step):
            pass
        answers.append(rec.checkpoint_requested())
    assert answers == [False, False, True, True, True]


def test_a_request_ends_when_its_time_is_over(spool: Path) -> None:
    rec, requests = watched(spool)
    write_request(spool, CheckpointRequest(id="a", run="run", until_ns=EPOCH_NS + 10))
    requests.poll(EPOCH_NS)
    assert rec.checkpoint_requested()
    requests.poll(EPOCH_NS + 11)
    assert not rec.checkpoint_requested()


def test_a_damaged_request_is_told_once_and_a_later_one_is_heard(spool: Path, swallowed: list[str]) -> None:
    made = make(spool)
    made.rec.requests = RequestWatch(spool=spool, run="run")
    request_path(spool, "run").write_text("what?")
    for _ in range(3):
        made.worker.tick()
    assert swallowed == ["request for a checkpoint could not be read"]
    swallowed.clear()
    os.utime(request_path(spool, "run"), ns=(1, 1))
    write_request(spool, CheckpointRequest(id="a", run="run"))
    made.time.advance(ms=500)
    made.worker.tick()
    assert made.rec.checkpoint_requested()


def test_a_real_loop_hears_it_within_a_second(spool: Path) -> None:
    script = f"""
    from goodput.request import CheckpointRequest, write_request
    rec = goodput.start(run="asked")
    asked_s = None
    for step in range(1, 500):
        with rec.step(step):
            time.sleep(0.01)
        if step == 10:
            assert not rec.checkpoint_requested()
            write_request({str(spool)!r}, CheckpointRequest(id="x", run="asked"))
            asked_s = time.monotonic()
        if rec.checkpoint_requested():
            heard_s = time.monotonic() - asked_s
            with rec.checkpoint(step):
                pass
            break
    print(heard_s, rec.checkpoint_requested())
    rec.finish()
    """
    began_s = time.monotonic()
    done = run_script(script, spool)
    assert done.returncode == 0, done.stderr
    heard_s, still = done.stdout.split()
    assert 0 < float(heard_s) < min(1.0, time.monotonic() - began_s) and still == "False"
