"""`rec.first_time`: a side effect happens once, across kills and restarts on one node."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from recorder_made import make as make_recorder
from recorder_scripts import begin_script, run_script

from goodput import NoopRecorder
from goodput.directory import is_tmpfs, user_directory_name
from goodput.firsttime import FOLDER, KEEP_S, FirstTimes, known_step, run_key, sweep_steps
from goodput.guard import Guard


def make(tmp_path: Path, *, rank: int = 0, run: str = "run", memory: bool = True) -> FirstTimes:
    (tmp_path / "spool").mkdir(exist_ok=True)
    (tmp_path / "memory").mkdir(exist_ok=True)
    return FirstTimes(
        run=run, rank=rank, memory=tmp_path / "memory" if memory else None, spool=tmp_path / "spool", guard=Guard()
    )


def test_a_step_is_new_once_and_again_within_the_same_pass(tmp_path: Path) -> None:
    known = make(tmp_path)
    assert [known.first(step, step - 1 if step else None) for step in range(4)] == [True] * 4
    assert known.first(3, 2) and known.first(3, 3)
    assert not known.first(2, 3), "an older step was computed before"


def test_what_was_answered_outlives_a_kill_without_any_write_to_disk(tmp_path: Path) -> None:
    make(tmp_path).first(7, 6)
    assert not (tmp_path / "spool" / FOLDER).exists()
    after = make(tmp_path)
    assert [after.first(step, None) for step in (6, 7, 8)] == [False, False, True]


@pytest.mark.parametrize("memory", [True, False])
def test_what_was_done_is_known_without_having_been_asked(tmp_path: Path, memory: bool) -> None:
    make(tmp_path, memory=memory).note_done(41)
    after = make(tmp_path, memory=memory)
    assert [after.first(step, None) for step in (41, 42)] == [False, True]


def test_the_spool_remembers_when_tmpfs_is_gone(tmp_path: Path) -> None:
    made = make(tmp_path)
    made.first(9, 8)
    made.note_done(9)
    made.close()
    assert list((tmp_path / "memory" / FOLDER).iterdir()) == [], "closed: the spool has it"
    (content,) = (tmp_path / "spool" / FOLDER).iterdir()
    assert json.loads(content.read_text()) == {"run": "run", "step": 9}
    assert not make(tmp_path).first(9, None)


def test_all_ranks_of_the_run_on_the_node_count_and_no_other_run(tmp_path: Path) -> None:
    make(tmp_path, rank=3).note_done(100)
    make(tmp_path, rank=0, run="other").note_done(500)
    after = make(tmp_path, rank=0)
    assert [after.first(step, None) for step in (100, 101)] == [False, True]


def test_a_reload_makes_what_was_reached_old(tmp_path: Path) -> None:
    known = make(tmp_path)
    known.note_done(20)
    known.resumed(10)
    assert [known.first(step, step - 1) for step in (11, 20, 21)] == [False, False, True]


def test_a_reload_right_after_the_steps_makes_them_old(tmp_path: Path) -> None:
    made = make_recorder(tmp_path)
    # No round of the recorder's thread lies between: it has not heard of these steps.
    made.rec.first_times = FirstTimes(run="run", rank=0, memory=None, spool=None, guard=Guard())
    for step in range(1, 26):
        with made.rec.step(step):
            pass
    made.rec.resumed(10)
    assert [made.rec.first_time(step) for step in (12, 25, 26)] == [False, False, True]


def test_a_number_that_falls_back_is_noticed_without_being_told(tmp_path: Path) -> None:
    known = make(tmp_path)
    for step in range(1, 21):
        assert known.first(step, step - 1)
    assert [known.first(step, step - 1) for step in range(11, 22)] == [False] * 10 + [True]
    quiet = make(tmp_path, run="quiet")
    quiet.note_done(20)
    quiet.note_done(12)
    assert [quiet.first(step, 13) for step in (14, 20, 21)] == [False, False, True]


def test_a_node_that_has_not_seen_the_run_knows_the_steps_of_the_checkpoint(tmp_path: Path) -> None:
    known = make(tmp_path)
    known.resumed(250)
    assert [known.first(step, None) for step in (250, 251)] == [False, True]


def test_foreign_and_damaged_files_count_for_nothing(tmp_path: Path) -> None:
    for root in ("memory", "spool"):
        (tmp_path / root / FOLDER).mkdir(parents=True)
        key = run_key("run" if root == "spool" else f"run\0{tmp_path / 'spool'}")
        (tmp_path / root / FOLDER / f"{key}-r0").write_bytes(b"\xff not ours")
        (tmp_path / root / FOLDER / f"{key}-r1").write_text('{"run": "another", "step": 900}')
        (tmp_path / root / FOLDER / f"{key}-r2").symlink_to("/etc/passwd")
    assert known_step("run", tmp_path / "memory", tmp_path / "spool") == -1


def test_old_files_go(tmp_path: Path) -> None:
    make(tmp_path).note_done(1)
    make(tmp_path, run="old").note_done(1)
    old = tmp_path / "spool" / FOLDER / f"{run_key('old')}-r0"
    os.utime(old, (1, old.stat().st_mtime - KEEP_S - 1))
    sweep_steps(tmp_path / "spool")
    assert [path.name for path in (tmp_path / "spool" / FOLDER).iterdir()] == [f"{run_key('run')}-r0"]


def test_a_recorder_that_does_nothing_says_yes_and_asks_for_nothing() -> None:
    assert NoopRecorder().first_time(3) is True
    assert NoopRecorder().checkpoint_requested() is False


LOOP = """
rec = goodput.start(run="once")
rec.resumed(None if {begin} == 1 else {begin} - 1)
for step in range({begin}, {end} + 1):
    with rec.step(step):
        time.sleep(0.002)
    if rec.first_time(step):
        print(step, flush=True)
    if step == {kill}:
        os.kill(os.getpid(), 9)
rec.finish()
"""


@pytest.mark.skipif(not is_tmpfs("/dev/shm"), reason="answers outlive a SIGKILL on tmpfs only")
def test_real_processes_that_are_killed_do_nothing_twice(spool: Path) -> None:
    # Each life resumes from a checkpoint that lies before what the life before it had done.
    said: list[int] = []
    for begin, end, kill in ((1, 60, 37), (21, 60, 38), (21, 80, 80), (71, 90, 0)):
        done = run_script(LOOP.format(begin=begin, end=end, kill=kill), spool)
        assert done.returncode == (-signal.SIGKILL if kill else 0), done.stderr
        said += map(int, done.stdout.split())
    assert said == list(range(1, 91))
    key = run_key(f"once\0{spool}")
    left = Path("/dev/shm") / user_directory_name() / FOLDER / f"{key}-r0"
    assert not left.exists(), "a record that was closed leaves its mark in the spool alone"
    fresh = run_script(LOOP.format(begin=1, end=2, kill=0), spool.with_name("another"))
    assert fresh.stdout.split() == ["1", "2"], "a new spool is a new beginning"


def test_a_forked_child_leaves_the_files_alone(spool: Path) -> None:
    script = """
    rec = goodput.start(run="fork")
    with rec.step(1):
        pass
    rec.first_time(1)
    if os.fork() == 0:
        rec.first_time(500)
        os._exit(0)
    os.wait()
    rec.finish()
    """
    assert run_script(script, spool).returncode == 0
    after: subprocess.Popen[str] = begin_script('print(goodput.start(run="fork").first_time(2), flush=True)', spool)
    assert after.communicate(timeout=30)[0] == "True\n"
