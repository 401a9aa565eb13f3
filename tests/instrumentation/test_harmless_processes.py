"""What real training processes do: fork, die in odd ways, hold the process open, run for long, start twice."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
from harmless_places import wait_for
from harmless_training import training
from recorder_made import EPOCH_NS, MS, HandClock
from recorder_reading import done_steps, kinds, of_rank, read_events
from recorder_scripts import begin_script, environment, run_script

from goodput.clock import Clock
from goodput.directory import is_tmpfs
from goodput.spool import list_sources, recover_dead


def stop_of(spool: Path) -> tuple[str, str | None]:
    (stop,) = [event for event in read_events(spool) if event["kind"] == "stop"]
    return stop["reason"], stop.get("detail")


LOADERS = """
import sys
import torch, goodput
from torch.utils.data import DataLoader, Dataset

class Data(Dataset):
    def __init__(self, rec):
        self.rec = rec
    def __len__(self):
        return 32
    def __getitem__(self, at):
        # A dataset that leads to the recorder, as one that logs does: in a worker it does nothing.
        if self.rec is not None:
            with self.rec.step(1000 + at), self.rec.span("worker"):
                self.rec.progress()
        return torch.full((2,), float(at))

if __name__ == "__main__":
    rec = goodput.start(run="r")
    seen = step = 0
    for how, workers in (("fork", 2), ("forkserver", 1), ("spawn", 1)):
        data = Data(rec if how == "fork" else None)
        loader = DataLoader(data, batch_size=4, num_workers=workers, multiprocessing_context=how)
        for step, batch in enumerate(rec.data(loader), start=step + 1):
            with rec.step(step):
                seen += int(batch.sum())
    rec.finish()
    print(seen)
"""


def test_loader_workers_record_nothing(spool: Path, tmp_path: Path) -> None:
    """Forked, from a fork server, and spawned: in one process, as each costs an import of torch."""
    script = tmp_path / "train.py"
    script.write_text(LOADERS)
    done = subprocess.run(
        [sys.executable, str(script)], env=environment(spool), capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{3 * 2 * sum(range(32))}\n"
    events = read_events(spool)
    assert done_steps(events) == list(range(1, 25))
    assert set(kinds(events)) == {"start", "step", "stop"} and len({event["source"] for event in of_rank(events)}) == 1
    assert list_sources(spool) == {}


def test_the_users_signal_handlers_stay_theirs(spool: Path) -> None:
    done = run_script(
        """
        import signal
        heard = []
        numbers = [s for s in signal.valid_signals() if s not in (signal.SIGKILL, signal.SIGSTOP)]
        before = {number: signal.getsignal(number) for number in numbers}
        rec = goodput.start(run="r")
        assert {number: signal.getsignal(number) for number in numbers} == before, "we install none"
        def handler(number, frame):
            # In the middle of our own code, too.
            heard.append(number)
            with rec.span("handler"):
                rec.progress()
        signal.signal(signal.SIGALRM, handler)
        signal.signal(signal.SIGUSR1, lambda *_: rec.preempted())
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        until, step = time.monotonic() + 0.5, 0
        while time.monotonic() < until:
            step += 1
            with rec.step(step):
                pass
        signal.setitimer(signal.ITIMER_REAL, 0)
        os.kill(os.getpid(), signal.SIGUSR1)
        rec.finish()
        print(len(heard), step)
        """,
        spool,
    )
    assert (done.returncode, done.stderr) == (0, "")
    heard, steps = map(int, done.stdout.split())
    events = of_rank(read_events(spool))
    assert heard > 50 and kinds(events).count("progress") == heard
    assert done_steps(events) == list(range(1, steps + 1))
    assert [event["seq"] for event in events] == list(range(len(events)))
    assert stop_of(spool) == ("preempted", None)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_nobody_handles_kills_at_once(spool: Path, tmp_path: Path, number: signal.Signals) -> None:
    with training(spool, tmp_path / "counter") as it:
        begun = time.monotonic()
        it.process.send_signal(number)
        assert it.process.wait(10) == -number
        assert time.monotonic() - begun < 1
        steps = it.steps
    recover_dead(spool)
    assert done_steps(read_events(spool))[:steps] == list(range(1, steps + 1))


@pytest.mark.skipif(not is_tmpfs("/dev/shm"), reason="events outlive such an end on tmpfs only")
@pytest.mark.parametrize(
    ("last_lines", "code", "stop"),
    [
        ("os._exit(0)", 0, None),
        ("os._exit(7)", 7, None),
        ("os.abort()", -signal.SIGABRT, None),
        ("rec.finish(); os._exit(3)", 3, ("finished", None)),
        ("sys.exit(1)", 1, ("exited", None)),
        ("with rec.step(9): sys.exit(1)", 1, ("exception", "SystemExit: 1")),
    ],
)
def test_odd_ends_keep_their_status_and_lose_nothing(
    spool: Path, last_lines: str, code: int, stop: tuple[str, str | None] | None
) -> None:
    done = run_script(
        f"""
        rec = goodput.start(run="r")
        for step in range(1, 301):
            with rec.step(step):
                pass
        {last_lines}
        """,
        spool,
    )
    assert done.returncode == code, done.stderr
    recover_dead(spool)
    events = read_events(spool)
    assert done_steps(events) == list(range(1, 301))
    assert [(e["reason"], e.get("detail")) for e in events if e["kind"] == "stop"] == ([] if stop is None else [stop])
    assert list_sources(spool) == {}


def test_daemon_threads_that_record_into_the_shutdown(spool: Path) -> None:
    done = run_script(
        """
        import threading
        rec = goodput.start(run="r")
        def work():
            while True:
                with rec.span("daemon"):
                    rec.progress()
                time.sleep(0.0005)
        for _ in range(4):
            threading.Thread(target=work, daemon=True).start()
        for step in range(1, 50):
            with rec.step(step):
                time.sleep(0.002)
        """,
        spool,
    )
    assert (done.returncode, done.stderr) == (0, "")
    events = of_rank(read_events(spool))
    assert done_steps(events) == list(range(1, 50))
    assert events[-1]["kind"] == "stop" and events[-1]["reason"] == "exited"


def test_threads_that_record_at_once_lose_and_mix_nothing(spool: Path) -> None:
    done = run_script(
        """
        import threading
        sys.setswitchinterval(1e-5)
        rec = goodput.start(run="r")
        def work(name):
            for _ in range(400):
                with rec.span(name):
                    rec.progress()
                # All the same, the memory of half a megabyte must not be outrun.
                time.sleep(0.002)
        threads = [threading.Thread(target=work, args=[f"t{number}"]) for number in range(6)]
        for thread in threads:
            thread.start()
        step = 0
        while any(thread.is_alive() for thread in threads):
            step += 1
            with rec.step(step):
                time.sleep(0.001)
        for thread in threads:
            thread.join()
        rec.finish()
        print(step, rec.guard.lost, rec.guard.errors)
        """,
        spool,
    )
    step, _, rest = done.stdout.partition(" ")
    assert rest == "{} {}\n", done.stderr
    events = of_rank(read_events(spool))
    assert [event["seq"] for event in events] == list(range(len(events)))
    assert done_steps(events) == list(range(1, int(step) + 1))
    for thread in range(6):
        begun = [event["id"] for event in events if event["kind"] == "begin" and event["span"] == f"t{thread}"]
        ended = [event["id"] for event in events if event["kind"] == "end" and event["span"] == f"t{thread}"]
        assert len(begun) == 400 and begun == ended


def test_a_million_steps_keep_memory_and_descriptors_flat(spool: Path) -> None:
    done = run_script(
        """
        import gc, threading
        def held():
            gc.collect()
            status = open("/proc/self/status").read()
            rss = int(status.partition("VmRSS:")[2].split()[0])
            return rss, len(os.listdir("/proc/self/fd")), threading.active_count(), len(gc.get_objects())
        rec = goodput.start(run="r")
        at = []
        for step in range(1, 1_000_001):
            with rec.step(step) as told:
                told.note(loss=1.0)
            if step in (100_000, 1_000_000):
                time.sleep(0.3)
                at.append(held())
        rec.finish()
        print(*[after - before for before, after in zip(*at)], sum(rec.guard.lost.values()))
        """,
        spool,
        # Its file is open at the first look already.
        GOODPUT_HEARTBEAT_S="0.2",
    )
    assert done.returncode == 0, done.stderr
    rss_kib, descriptors, threads, objects, lost = map(int, done.stdout.split())
    print(f"memory grew by {rss_kib} KiB over 900,000 steps")
    assert rss_kib < 512 and descriptors == threads == lost == 0 and objects < 50
    assert done_steps(read_events(spool)) == list(range(1, 1_000_001))


def test_a_hundred_starts_and_finishes_leave_nothing(spool: Path) -> None:
    done = run_script(
        """
        import gc, threading
        def once(number):
            rec = goodput.start(run=f"run-{number % 3}")
            with rec.step(1):
                pass
            rec.finish()
        def held():
            for thread in threading.enumerate():
                if thread is not threading.main_thread():
                    thread.join(5)
            gc.collect()
            rss = int(open("/proc/self/status").read().partition("VmRSS:")[2].split()[0])
            maps = open("/proc/self/maps").read().count("/dev/shm")
            return rss, len(os.listdir("/proc/self/fd")), threading.active_count(), maps, len(gc.get_objects())
        # As many as the allocator needs to have an arena for each thread that there ever is at a time.
        for number in range(30):
            once(number)
        before = held()
        for number in range(100):
            once(number)
        print(*[after - was for was, after in zip(before, held())])
        """,
        spool,
    )
    assert (done.returncode, done.stderr) == (0, "")
    rss_kib, descriptors, threads, maps, objects = map(int, done.stdout.split())
    assert descriptors == threads == maps == 0 and rss_kib < 4096 and objects < 200
    events = read_events(spool)
    assert kinds(events).count("start") == kinds(events).count("stop") == done_steps(events).count(1) == 130
    assert list_sources(spool) == {}


def test_two_runs_side_by_side_do_not_mix(spool: Path) -> None:
    done = run_script(
        """
        import threading
        def train(name, first, steps):
            rec = goodput.start(run=name)
            for step in range(first, first + steps):
                with rec.step(step):
                    time.sleep(0.002)
            rec.finish()
        threads = [threading.Thread(target=train, args=how) for how in [("a", 1, 200), ("b", 5001, 100)]]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        """,
        spool,
    )
    assert (done.returncode, done.stderr) == (0, "")
    events = read_events(spool)
    assert done_steps([event for event in events if event["run"] == "a"]) == list(range(1, 201))
    assert done_steps([event for event in events if event["run"] == "b"]) == list(range(5001, 5101))
    assert all(of_rank([e for e in events if e["run"] == run])[-1]["reason"] == "finished" for run in "ab")


def test_steps_of_two_milliseconds_are_joined(spool: Path) -> None:
    done = run_script(
        """
        rec = goodput.start(run="r")
        for step in range(1, 1001):
            with rec.step(step):
                time.sleep(0.002)
        rec.finish()
        """,
        spool,
    )
    assert (done.returncode, done.stderr) == (0, "")
    events = [event for event in of_rank(read_events(spool)) if event["kind"] == "step"]
    assert done_steps(events) == list(range(1, 1001))
    later = [event for event in events if event["step"] > 100]
    seconds = (later[-1]["end_ns"] - later[0]["start_ns"]) / 1e9
    assert len(later) <= 21 * seconds and all(event["count"] >= 8 for event in later[1:-1])


@pytest.mark.parametrize("by_s", [-30, 3600])
def test_a_clock_that_is_stepped_moves_no_event(spool: Path, by_s: int) -> None:
    done = run_script(
        f"""
        real, wall = time.time_ns, [0]
        time.time_ns = lambda: real() + wall[0]
        time.time = lambda: time.time_ns() / 1e9
        rec = goodput.start(run="r")
        print(real())
        for step in range(1, 21):
            if step == 11:
                wall[0] = {by_s} * 10**9
            with rec.step(step):
                time.sleep(0.06)
        rec.finish()
        print(real())
        """,
        spool,
        GOODPUT_HEARTBEAT_S="0.2",
    )
    assert (done.returncode, done.stderr) == (0, "")
    begun_ns, ended_ns = map(int, done.stdout.split())
    events = read_events(spool)
    steps = [event for event in of_rank(events) if event["kind"] == "step"]
    assert [event["step"] for event in steps] == list(range(1, 21))
    for before, after in itertools.pairwise(steps):
        assert 0 <= after["start_ns"] - before["end_ns"] < 10**9
    assert all(60 * MS <= event["end_ns"] - event["start_ns"] < 10**9 for event in steps)
    slack_ns = 50 * MS
    assert all(begun_ns - slack_ns <= e["ts_ns"] <= ended_ns + slack_ns for e in events if e["kind"] != "start")
    assert sum(event["kind"] == "heartbeat" for event in events) >= 4


@pytest.mark.parametrize("by_s", [-30, 3600])
def test_the_clock_is_read_once(by_s: int) -> None:
    monotonic, wall = HandClock(), [EPOCH_NS]
    clock = Clock(monotonic_ns=monotonic, wall_ns=lambda: wall[0])
    monotonic.advance(1000)
    wall[0] += by_s * 10**9
    assert clock.now_ns() == EPOCH_NS + 1000 * MS


SECOND = """
        import logging
        rec = goodput.start(run="{run}")
        with rec.step(1):
            pass
        time.sleep(0.5)
        rec.finish()
"""


def test_a_second_live_launch_under_a_name_is_warned_of(spool: Path, tmp_path: Path) -> None:
    with training(spool, tmp_path / "counter") as first:
        # The first looks once, at its first steps: let it be over.
        wait_for("its first events", lambda: list(spool.glob("*.jsonl")))
        time.sleep(0.5)
        for more in ({}, {"RANK": "0", "WORLD_SIZE": "2"}):
            second = run_script(SECOND.format(run="r"), spool, **more)
            assert second.returncode == 0
            assert f"process {first.process.pid} of this node records run 'r' as rank 0 too" in second.stderr
            assert len(second.stderr.splitlines()) == 1
        other = run_script(SECOND.format(run="another"), spool)
        peer = run_script(SECOND.format(run="r"), spool, RANK="1", WORLD_SIZE="2")
        assert (other.stderr, peer.stderr) == ("", "")
        first.goes_on()
        assert first.finish() == (0, "trained\n", "")
    assert run_script(SECOND.format(run="r"), spool).stderr == "", "the first has ended"


def test_ranks_that_only_their_group_numbers_are_no_twins(spool: Path) -> None:
    pytest.importorskip("torch")
    script = """
        import torch.distributed as dist
        rec = goodput.start(run="r")
        dist.init_process_group("gloo", init_method={place!r}, rank={rank}, world_size=2)
        for step in range(1, 20):
            with rec.step(step):
                time.sleep(0.05)
        dist.barrier()
        rec.finish()
        """
    place = f"file://{spool.parent / 'store'}"
    ranks = [begin_script(script.format(place=place, rank=rank), spool) for rank in (0, 1)]
    for process in ranks:
        try:
            _, err = process.communicate(timeout=60)
        finally:
            process.kill()
        assert process.returncode == 0 and "records run" not in err


def test_a_users_exception_comes_through_as_it_was(spool: Path) -> None:
    """Kind, text, cause, traceback and exit code of a script are those that it has without us."""
    script = textwrap.dedent(
        """
        import sys, goodput
        rec = goodput.{recorder}
        class Custom(Exception):
            pass
        def train():
            with rec.step(1), rec.span("outer"):
                for batch in rec.data([1, 2]):
                    with rec.checkpoint(1):
                        try:
                            {{}}["missing"]
                        except KeyError as error:
                            raise Custom("the user's own") from error
        train()
        """
    )
    told: list[Any] = []
    for recorder in ("NoopRecorder()", 'start(run="r")'):
        path = spool.parent / "train.py"
        path.write_text(script.format(recorder=recorder))
        done = subprocess.run(
            [sys.executable, str(path)], env=environment(spool), capture_output=True, text=True, timeout=60
        )
        told.append((done.returncode, done.stdout, done.stderr.replace('start(run="r")', "NoopRecorder()")))
    assert told[0] == told[1]
    assert "the user's own" in told[0][2] and "goodput/" not in told[0][2]
    assert stop_of(spool) == ("exception", "__main__.Custom")
