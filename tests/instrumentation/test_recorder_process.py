"""Real processes: how they end, fork, are killed, and what importing costs them."""

from __future__ import annotations

import itertools
import json
import mmap
import os
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from recorder_reading import done_steps, kinds, of_rank, read_events
from recorder_scripts import begin_script, environment, run_script

from goodput.directory import is_tmpfs
from goodput.spool import list_sources, recover_dead

needs_tmpfs = pytest.mark.skipif(not is_tmpfs("/dev/shm"), reason="events outlive a SIGKILL on tmpfs only")


def stop_of(spool: Path) -> dict[str, Any]:
    (stop,) = [event for event in read_events(spool) if event["kind"] == "stop"]
    assert of_rank(read_events(spool))[-1] == stop
    return stop


def test_the_five_lines_make_a_whole_record(spool: Path) -> None:
    before_ns = time.time_ns()
    done = run_script(
        """
        rec = goodput.start(run="llama", labels={"team": "nlp"}, devices=2, group="stage-1", meta={"note": "x"})
        rec.resumed(step=250)
        for step, batch in enumerate(rec.data([1, 2, 3]), start=251):
            with rec.step(step):
                time.sleep(0.06)
                rec.own_work_done()
            if step == 252:
                with rec.checkpoint(step):
                    pass
        rec.finish()
        """,
        spool,
        GOODPUT_LABELS="project=atlas,team=ignored",
        RANK="3",
        LOCAL_RANK="1",
        WORLD_SIZE="4",
        TORCHELASTIC_RUN_ID="abc",
        TORCHELASTIC_RESTART_COUNT="2",
    )
    assert (done.returncode, done.stderr) == (0, "")
    events = of_rank(read_events(spool))
    assert kinds(events) == ["start", "resume", "step", "step", "begin", "end", "step", "stop"]
    start = events[0]
    expected = {
        "v": 1,
        "job": "torchrun:abc",
        "restart_count": 2,
        "rank": 3,
        "local_rank": 1,
        "world_size": 4,
        "devices": 2,
        "device_kind": "cpu",
        "group": "stage-1",
        "labels": {"team": "nlp", "project": "atlas"},
        "run": "llama",
    }
    assert {name: start[name] for name in expected} == expected
    assert start["meta"]["note"] == "x" and start["meta"]["python"].startswith("3.")
    assert before_ns - 20_000_000 <= start["process_start_ns"] < start["ts_ns"] < time.time_ns()
    assert [event["ts_ns"] for event in events] == sorted(event["ts_ns"] for event in events)
    assert list(spool.glob("*.lock")) == []
    assert stat.S_IMODE(spool.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("last_lines", "code", "reason", "detail"),
    [
        ("rec.finish()", 0, "finished", None),
        ("pass", 0, "exited", None),
        ("rec.preempted()", 0, "preempted", None),
        ("rec.preempted(); sys.exit(1)", 1, "preempted", None),
        ("raise ValueError('secret')", 1, "exception", "ValueError"),
        ("raise KeyboardInterrupt", -signal.SIGINT, "signal", "SIGINT"),
        ("rec.finish(); os._exit(0)", 0, "finished", None),
        ("with rec.step(2): sys.exit(4)", 4, "exception", "SystemExit: 4"),
        ("with rec.step(2): sys.exit(0)", 0, "exited", None),
        ("with rec.span('x'): raise __import__('queue').Empty", 1, "exception", "_queue.Empty"),
    ],
)
def test_every_way_to_end(spool: Path, last_lines: str, code: int, reason: str, detail: str | None) -> None:
    done = run_script(
        f"""
        rec = goodput.start(run="r")
        with rec.step(1):
            time.sleep(0.06)
        {last_lines}
        """,
        spool,
    )
    assert done.returncode == code, done.stderr
    stop = stop_of(spool)
    assert (stop["reason"], stop.get("detail")) == (reason, detail)
    assert done_steps(read_events(spool)) == [1]


def test_an_uncaught_exception_is_printed_by_whoever_printed_it_before(spool: Path) -> None:
    done = run_script(
        """
        def mine(kind, error, trace):
            print("mine:", kind.__name__)
        sys.excepthook = mine
        rec = goodput.start(run="r")
        raise LookupError
        """,
        spool,
    )
    assert (done.returncode, done.stdout, done.stderr) == (1, "mine: LookupError\n", "")
    assert stop_of(spool)["detail"] == "LookupError"


@needs_tmpfs
def test_no_event_is_lost_by_sigkill(spool: Path, tmp_path: Path) -> None:
    """The process counts its finished steps in memory that outlives it; each kill falls at another moment."""
    for number in range(6):
        counter = tmp_path / f"counter{number}"
        counter.write_bytes(bytes(4096))
        directory = spool / str(number)
        process = begin_script(
            f"""
            import mmap, struct
            counter = mmap.mmap(os.open({str(counter)!r}, os.O_RDWR), 4096)
            rec = goodput.start(run="r")
            print("ready", flush=True)
            step = 0
            while True:
                step += 1
                with rec.step(step):
                    {"time.sleep(0.001)" if number % 2 else "pass"}
                counter[:8] = struct.pack("@Q", step)
            """,
            directory,
        )
        try:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            time.sleep(0.05 + 0.037 * number)
        finally:
            process.kill()
            process.communicate()
        with counter.open("rb") as file, mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ) as memory:
            (told,) = struct.unpack_from("@Q", memory)
        assert told > 10
        (dead,) = recover_dead(directory)
        assert not dead.lost_memory
        steps = done_steps(read_events(directory))
        assert steps == list(range(1, len(steps) + 1))
        assert told <= len(steps) <= told + 1, "the last step may have been handed over before it was counted"
        assert list_sources(directory) == {}


@needs_tmpfs
def test_the_next_recorder_on_the_node_takes_up_what_the_dead_left(spool: Path) -> None:
    script = """
        rec = goodput.start(run="r")
        with rec.step(1):
            time.sleep(0.06)
        {}
        """
    dead = run_script(script.format("os.kill(os.getpid(), 9)"), spool)
    assert dead.returncode == -signal.SIGKILL
    assert run_script(script.format("time.sleep(0.3); rec.finish()"), spool).returncode == 0
    events = read_events(spool)
    assert len({event["source"] for event in events}) == 2
    assert sorted(kinds(events)) == ["start", "start", "step", "step", "stop"]
    assert list_sources(spool) == {}


def test_a_forked_child_records_nothing_and_the_parent_goes_on(spool: Path) -> None:
    done = run_script(
        """
        import gc, multiprocessing
        rec = goodput.start(run="r")
        for step in range(1, 200):
            with rec.step(step):
                pass

        def work(number):
            for step in range(1000, 3000):
                with rec.step(step):
                    pass
            with rec.checkpoint(7), rec.span("child"):
                rec.progress()
            rec.resumed(5)
            rec.preempted()
            rec.finish()
            return rec.active

        with multiprocessing.get_context("fork").Pool(2) as pool:
            assert pool.map(work, range(4)) == [False] * 4
        child = os.fork()
        if not child:
            raise RuntimeError("a child's own end")
        os.waitpid(child, 0)
        for step in range(200, 400):
            with rec.step(step):
                pass
        rec.finish()
        """,
        spool,
    )
    assert done.returncode == 0, done.stderr
    assert done_steps(read_events(spool)) == list(range(1, 400))
    assert stop_of(spool)["reason"] == "finished"
    assert set(kinds(read_events(spool))) == {"start", "step", "stop"}


def test_a_forked_child_may_record_for_itself(spool: Path) -> None:
    done = run_script(
        """
        rec = goodput.start(run="parent")
        child = os.fork()
        if not child:
            own = goodput.start(run="child")
            with own.step(1), rec.step(7), rec.span("inherited"):
                time.sleep(0.06)
            rec.progress()
            rec.finish()
            own.finish()
            os._exit(0)
        os.waitpid(child, 0)
        rec.finish()
        """,
        spool,
    )
    assert done.returncode == 0, done.stderr
    events = read_events(spool)
    assert len({event["source"] for event in events}) == 2, "the child is a source of its own"
    assert sorted((e["run"], e["kind"]) for e in events) == [
        ("child", "start"),
        ("child", "step"),
        ("child", "stop"),
        ("parent", "start"),
        ("parent", "stop"),
    ]


def test_two_runs_and_many_runs_in_one_process(spool: Path) -> None:
    done = run_script(
        """
        import threading
        a, b = goodput.start(run="a"), goodput.start(run="b")
        with a.step(1), b.step(5):
            time.sleep(0.06)
        a.finish()
        with b.step(6):
            time.sleep(0.06)
        b.finish()
        time.sleep(0.2)
        before = len(os.listdir("/proc/self/fd")), threading.active_count()
        for number in range(30):
            rec = goodput.start(run=f"many-{number}")
            rec.finish()
        time.sleep(0.2)
        print(before == (len(os.listdir("/proc/self/fd")), threading.active_count()))
        """,
        spool,
    )
    assert (done.stdout, done.stderr) == ("True\n", "")
    events = read_events(spool)
    assert done_steps([e for e in events if e["run"] == "a"]) == [1]
    assert done_steps([e for e in events if e["run"] == "b"]) == [5, 6]
    starts = sorted((e for e in events if e["kind"] == "start"), key=lambda e: e["ts_ns"])
    stops = {e["run"]: e["ts_ns"] for e in events if e["kind"] == "stop"}
    assert len(starts) == 32
    for before, after in itertools.pairwise(starts[2:]):
        assert after["process_start_ns"] >= stops[before["run"]] - 1_000_000, "GPUs are held once, not once a run"


def test_disabled_or_unnamed_it_does_nothing(spool: Path) -> None:
    script = """
        import threading
        rec = goodput.start({})
        with rec.step(1) as step, rec.checkpoint(1), rec.span("x"), rec.evaluation():
            step.note(loss=1.0)
        batches = [1]
        assert rec.data(batches) is batches
        rec.end_span(rec.begin_span("x"))
        rec.begin_step(2), rec.end_step(), rec.own_work_done(), rec.resumed(None), rec.durable(1), rec.progress()
        rec.preempted(), rec.finish()
        print(rec.active, rec.run == rec.source == "", threading.active_count())
        """
    for argument, more, said in (("", {}, 1), ("run='r'", {"GOODPUT_DISABLED": "1"}, 0), ("run='  '", {}, 1)):
        done = run_script(script.format(argument), spool, **more)
        assert (done.stdout, done.stderr.count("\n")) == ("False True 1\n", said)
        assert done.stderr == "" or done.stderr.startswith("goodput: nothing is recorded, for the run has no name")
    assert not spool.exists()
    assert run_script("goodput.start().finish()", spool, GOODPUT_RUN="named").returncode == 0
    assert {event["run"] for event in read_events(spool)} == {"named"}


@pytest.mark.parametrize("trouble", ["a file", "a link", "unreachable", "no tmpfs", "nonsense"])
def test_a_place_that_cannot_be_used_does_not_stop_training(spool: Path, trouble: str) -> None:
    more = {"GOODPUT_SPOOL": str(spool)}
    if trouble == "a file":
        spool.write_text("in the way")
    elif trouble == "a link":
        spool.symlink_to(tempfile.mkdtemp())
    elif trouble == "unreachable":
        more["GOODPUT_SPOOL"] = "/proc/nowhere/spool"
    elif trouble == "no tmpfs":
        more["GOODPUT_MEMORY"] = "/proc"
    else:
        more |= {"GOODPUT_HEARTBEAT_S": "often", "GOODPUT_SPOOL_MAX_BYTES": "-1", "GOODPUT_LABELS": "x,=y"}
    done = run_script(
        """
        rec = goodput.start(run="r")
        for step in range(10):
            with rec.step(step):
                time.sleep(0.001)
        rec.finish()
        print("trained")
        """,
        spool,
        **more,
    )
    assert (done.returncode, done.stdout) == (0, "trained\n")
    assert "goodput:" in done.stderr and "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) <= 4, "each reason is told once"
    if trouble in ("no tmpfs", "nonsense"):
        assert done_steps(read_events(spool)) == list(range(10))


def test_another_users_directory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from goodput.directory import prepare_directory

    (tmp_path / "spool").mkdir()
    prepare_directory(tmp_path / "spool")
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    if (tmp_path / "spool").stat().st_uid == 0:
        os.chown(tmp_path / "spool", 4711, -1)
    with pytest.raises(PermissionError, match="belongs to another user"):
        prepare_directory(tmp_path / "spool")


def test_importing_does_nothing(spool: Path) -> None:
    script = """
import sys, threading, os
before = set(sys.modules)
opened = []
sys.addaudithook(lambda name, args: opened.append(args[0]) if name == "open" else None)
import goodput, goodput.spool
loaded = {name.partition(".")[0] for name in set(sys.modules) - before}
import json
print(json.dumps({
    "foreign": sorted(loaded - set(sys.stdlib_module_names) - {"goodput"}),
    "threads": threading.active_count(),
    "opened": [str(path) for path in opened if not str(path).endswith((".py", ".pyc", ".so"))
               and not str(path).rstrip("/").endswith("goodput") and ".pyc." not in str(path)],
}))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment(spool), capture_output=True, text=True, timeout=60
    )
    assert json.loads(done.stdout) == {"foreign": [], "threads": 1, "opened": []}, done.stderr


def test_a_program_that_replaces_itself_begins_when_it_says_so(spool: Path) -> None:
    script = """
        rec = goodput.start(run="again")
        with rec.step(1):
            time.sleep(0.05)
        if "again" not in sys.argv:
            code = sys.orig_argv[sys.orig_argv.index("-c") + 1]
            os.execv(sys.executable, [sys.executable, "-c", code, "again"])
        rec.finish()
        # A second record of the same program goes on from the first.
        rec = goodput.start(run="other")
        rec.finish()
        import subprocess
        child = "import goodput; goodput.start(run='child').finish()"
        subprocess.run([sys.executable, "-c", child], check=True)
        """
    done = run_script(script, spool)
    assert (done.returncode, done.stderr) == (0, "")
    events = read_events(spool)
    first, second = sorted((e for e in by_run(events, "again") if e["kind"] == "start"), key=lambda e: e["ts_ns"])
    assert first["pid"] == second["pid"] and first["job"] == second["job"]
    assert first["process_start_ns"] < first["ts_ns"]
    done_ns = next(e["end_ns"] for e in events if e["kind"] == "step" and e["source"] == first["source"])
    assert done_ns < second["process_start_ns"] <= second["ts_ns"]
    finished_ns = next(e["ts_ns"] for e in by_run(events, "again") if e["kind"] == "stop")
    (other,) = (e for e in by_run(events, "other") if e["kind"] == "start")
    assert abs(other["process_start_ns"] - finished_ns) < 20_000_000
    (child,) = (e for e in by_run(events, "child") if e["kind"] == "start")
    assert child["process_start_ns"] < child["ts_ns"], "a child has a start of its own"


def by_run(events: list[dict[str, Any]], run: str) -> list[dict[str, Any]]:
    return [event for event in events if event["run"] == run]
