"""Disks that freeze, fill, refuse and go away: the training does not notice, and what was dropped is counted."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from harmless_places import disk, fill, frozen, mounting, run, thaw, tmpfs, wait_for
from harmless_training import training
from recorder_reading import done_steps, of_rank, read_events

from goodput.frozen import FRESH_NS, FreezeProbe
from goodput.memory import HALF_BYTES
from goodput.spool import list_sources, recover_dead

COMPUTE = "hashlib.sha256(block).digest()"
"""Keeps a core busy without the interpreter's lock, as a step of torch does."""


def account(spool: Path) -> tuple[list[int], int]:
    """The numbers of all events that were kept, and how many the recorder says it dropped."""
    events = of_rank(read_events(spool))
    return [event["seq"] for event in events], sum(e["count"] for e in events if e["kind"] == "dropped")


def freeze_a_training(tmp_path: Path, seconds: float) -> None:
    """A frozen disk for so long, then a second one under which the training is killed."""
    with (
        disk(tmp_path / "disk") as place,
        training(place / "spool", tmp_path / "counter", work=COMPUTE, progress=20) as it,
    ):
        time.sleep(min(seconds, 3))
        with frozen(place, seconds + 20):
            it.phase(1)
            before = it.steps
            time.sleep(seconds)
            during = it.steps - before
            it.phase(2)
        it.goes_on()
        time.sleep(2.2)  # The drops are told once a second.
        print(f"longest step {it.longest_s(0) * 1e3:.1f} ms before, {it.longest_s(1) * 1e3:.1f} ms in {seconds} s")
        assert during > 100 * seconds
        # One that waited for the disk would last until the thaw.
        assert it.longest_s(1) < max(3 * it.longest_s(0), 0.1 * seconds)
        with frozen(place, 20):
            # A second, and on a busy machine as long as it takes to fill the memory: a line has at least 50 bytes.
            before = it.told
            time.sleep(1)
            wait_for("a full memory", lambda: it.told - before > 2 * HALF_BYTES // 50, 12)
            killed = time.monotonic()
            it.process.kill()
            it.process.wait(15)
            print(f"dead {(time.monotonic() - killed) * 1e3:.0f} ms after SIGKILL")
            assert time.monotonic() - killed < 1
            told, steps = it.told, it.steps
        assert list_sources(place / "spool") != {}
        recover_dead(place / "spool")
        seqs, dropped = account(place / "spool")
        assert len(seqs) == len(set(seqs)) and dropped > 0
        events = of_rank(read_events(place / "spool"))
        kept = sum(event["kind"] == "progress" for event in events)
        # What no event tells of is counted; events of several steps count as one.
        assert kept < told <= kept + dropped <= told + steps + 100
        by_reason = {event["reason"] for event in events if event["kind"] == "dropped"}
        assert by_reason == {"memory was full", "memory was full when the process was killed"}


def test_a_frozen_disk_and_a_kill_under_it(tmp_path: Path) -> None:
    freeze_a_training(tmp_path, 3)


@pytest.mark.soak
def test_a_disk_frozen_for_20_seconds(tmp_path: Path) -> None:
    """One minute; a failure would show a rank that waits for its disk, or that cannot be killed meanwhile."""
    for _ in range(2):
        freeze_a_training(tmp_path, 20)
        (tmp_path / "disk").rmdir()


def test_a_training_ends_while_its_disk_is_frozen(tmp_path: Path) -> None:
    with disk(tmp_path / "disk") as place, training(place / "spool", tmp_path / "counter") as it:
        it.goes_on()
        time.sleep(1)  # The probe is believed after a few answers.
        with frozen(place, 30):
            time.sleep(0.3)
            begun = time.monotonic()
            code, out, err = it.finish()
            took = time.monotonic() - begun
        assert (code, out) == (0, "trained\n") and took < 5, err
        assert err.count("frozen") == 1
        recover_dead(place / "spool")
        events = of_rank(read_events(place / "spool"))
        assert (events[-1]["kind"], events[-1]["reason"]) == ("stop", "finished")
        assert done_steps(events) == list(range(1, it.steps + 1))
        assert list_sources(place / "spool") == {}


def test_the_probe_tells_frozen_from_thawed(tmp_path: Path) -> None:
    mounting()
    with disk(tmp_path / "disk") as place:
        fd = os.open(place / "file", os.O_RDWR | os.O_CREAT)
        try:
            os.write(fd, b"unchanged\n")
            probe = FreezeProbe(fd)
            answers = []
            for _ in range(4):
                time.sleep(2 * FRESH_NS / 1e9)
                answers.append(probe.frozen())
            assert answers == [False] * 4 and probe.works
            time.sleep(2 * FRESH_NS / 1e9)
            with frozen(place, 20):
                assert [probe.frozen() for _ in range(3)] == [True] * 3
            assert not probe.frozen()
            run("mount", "-o", "remount,noatime", str(place))
            blind = FreezeProbe(fd)
            for _ in range(3):
                time.sleep(2 * FRESH_NS / 1e9)
                assert not blind.frozen()
            assert blind.works is False
            assert os.pread(fd, 100, 0) == b"unchanged\n"
        finally:
            os.close(fd)


def test_the_probe_survives_a_clock_that_is_set_back(tmp_path: Path) -> None:
    """An access time ahead of the clock would not be moved by a read: that must not pass for a frozen disk."""
    path = tmp_path / "file"
    path.write_bytes(b"x\n")
    fd = os.open(path, os.O_RDWR)
    try:
        probe = FreezeProbe(fd)
        ahead = time.time() + 3600
        os.utime(fd, (ahead, ahead))
        probe._seen_ns = os.fstat(fd).st_atime_ns
        probe._mark()
        time.sleep(2 * FRESH_NS / 1e9)
        assert not probe.frozen() and probe.works is False
    finally:
        os.close(fd)


def test_a_full_disk_costs_no_step(tmp_path: Path) -> None:
    with disk(tmp_path / "disk", mib=4) as place, training(place / "spool", tmp_path / "counter") as it:
        it.goes_on()
        everything = fill(place)
        it.phase(1)
        it.goes_on(300)
        time.sleep(1.5)
        everything.unlink()
        code, out, err = it.finish()
        assert (code, out) == (0, "trained\n")
        assert ("No space left" in err or "took only a part" in err) and "Traceback" not in err
        assert done_steps(read_events(place / "spool")) == list(range(1, it.steps + 1))
        assert account(place / "spool")[1] == 0
        assert it.longest_s(1) < 1


@pytest.mark.parametrize("already_full", [True, False])
def test_a_full_tmpfs_costs_no_step_and_no_life(tmp_path: Path, already_full: bool) -> None:
    """A store into a mapped page that a full tmpfs cannot give is a SIGBUS: ours are all reserved."""
    with tmpfs(tmp_path / "shm", kib=1024) as place:
        if already_full:
            fill(place)
        with training(tmp_path / "spool", tmp_path / "counter", progress=5, GOODPUT_MEMORY=str(place)) as it:
            if not already_full:
                assert any(path.name.startswith("r0-") for path in place.rglob("*"))
                fill(place)
            it.goes_on(500)
            code, out, err = it.finish()
        assert (code, out) == (0, "trained\n")
        assert ("has no room" in err or "cannot be used" in err) is already_full and "Traceback" not in err
        assert done_steps(read_events(tmp_path / "spool")) == list(range(1, it.steps + 1))
        assert account(tmp_path / "spool") == (list(range(max(account(tmp_path / "spool")[0]) + 1)), 0)


@pytest.mark.parametrize("from_the_start", [True, False])
def test_a_read_only_disk_costs_no_step(tmp_path: Path, from_the_start: bool) -> None:
    with disk(tmp_path / "disk") as place:
        spool = place / "spool"
        if from_the_start:
            spool.mkdir(mode=0o700)
            run("mount", "-o", "remount,ro", str(place))
        with training(spool, tmp_path / "counter") as it:
            it.goes_on()
            if not from_the_start:
                # The open spool file keeps the disk writable; this asks nobody, as an error of the disk does.
                run("mount", "-o", "remount,abort", str(place))
            it.goes_on(300)
            code, out, err = it.finish()
        assert (code, out) == (0, "trained\n")
        assert "goodput:" in err and "Read-only" in err and "Traceback" not in err


def remove(spool: Path) -> None:
    shutil.rmtree(spool)


def replace_by_a_link(spool: Path) -> None:
    spool.rename(spool.with_name("moved"))
    (spool.parent / "elsewhere").mkdir(exist_ok=True)
    spool.symlink_to(spool.parent / "elsewhere")


def give_away(spool: Path) -> None:
    mounting()
    remove(spool)
    spool.mkdir(mode=0o700)
    os.chown(spool, 4711, 4711)


@pytest.mark.parametrize("harm", [remove, replace_by_a_link, give_away])
def test_a_spool_that_is_taken_away_costs_no_step(tmp_path: Path, harm: Any) -> None:
    """Removed it is made again; a link or another user's directory in its place is refused."""
    spool = tmp_path / "spool"
    with training(spool, tmp_path / "counter") as it:
        it.goes_on()
        harm(spool)
        known = it.steps
        it.phase(1)
        it.goes_on(300)
        time.sleep(0.5)
        code, out, err = it.finish()
    assert (code, out) == (0, "trained\n") and "Traceback" not in err
    assert it.longest_s(1) < 1
    if harm is remove:
        after = done_steps(read_events(spool))
        assert after == list(range(after[0], it.steps + 1)) and after[0] <= known + 200
    elif harm is replace_by_a_link:
        assert list((tmp_path / "elsewhere").iterdir()) == []
        assert "is a link" in err or done_steps(read_events(tmp_path / "moved")) == list(range(1, it.steps + 1))
    else:
        assert "belongs to another user" in err
        assert list(spool.iterdir()) == []


def test_helpers_leave_nothing_mounted(tmp_path: Path) -> None:
    mounting()
    with pytest.raises(ZeroDivisionError), disk(tmp_path / "disk") as place:
        run("fsfreeze", "--freeze", str(place))
        raise ZeroDivisionError
    thaw(tmp_path / "disk")
    wait_for("the device", lambda: str(tmp_path) not in Path("/proc/mounts").read_text())
    assert not any("(deleted)" in line for line in os.popen("losetup -a").readlines() if str(tmp_path) in line)
