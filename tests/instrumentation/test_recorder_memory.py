"""What a killed process had handed over is on disk afterwards, once, wherever the kill fell."""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from recorder_made import MS, die, make
from recorder_reading import done_steps, kinds, of_rank, read_events

import goodput
from goodput.directory import is_tmpfs, user_directory_name
from goodput.liveness import LivenessLock
from goodput.memory import FILE_BYTES, HALF_BYTES, Memory, read_remains
from goodput.spool import list_segments, list_sources, recover_dead, source_is_alive
from goodput.spoolfile import SpoolFile


class Killed(BaseException):
    """Stands for a SIGKILL at the place where it is raised."""


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    return tmp_path / "memory"


def test_what_was_never_spooled_is_recovered(spool: Path, shared: Path) -> None:
    made = make(spool, shared=shared)
    for step in range(1, 11):
        made.step(step, ms=100)
    assert read_events(spool) == []
    assert list_sources(spool) == {"src": True}
    assert recover_dead(spool) == [], "it lives"
    die(made)
    assert list_sources(spool) == {"src": False}
    (dead,) = recover_dead(spool)
    assert (dead.info.source, dead.info.run, dead.events, dead.damaged) == ("src", "run", 11, 0)
    assert kinds(read_events(spool)) == ["start"] + ["step"] * 10
    assert not shared.exists() and list_sources(spool) == {}
    assert recover_dead(spool) == [] and not source_is_alive(spool, "src")


def test_recovery_goes_on_at_the_very_byte(spool: Path, shared: Path) -> None:
    """The daemon is killed at every store and write of its own, and nothing comes twice or not at all."""
    for fatal in range(40):
        directory, memory = spool / str(fatal), shared.with_name(f"memory{fatal}")
        made = make(directory, shared=memory)
        made.writer.file_max_bytes = 700
        calls = 0

        def deadly(real: Any, partial: bool = False, fatal: int = fatal) -> Any:
            def call(*args: Any) -> Any:
                nonlocal calls
                calls += 1
                if calls == fatal:
                    if partial and isinstance(args[0], bytes):
                        real(args[0][: len(args[0]) // 2])
                    raise Killed
                result = real(*args)
                calls += 1
                if calls == fatal:
                    raise Killed
                return result

            return call

        stream: Any = made.writer._stream

        class Deadly(type(stream)):  # type: ignore[misc]
            __slots__ = ()
            write = deadly(stream.write, partial=True)
            create = deadly(stream.create)

        class DeadlyMemory(Memory):
            __slots__ = ()
            note_cursor = deadly(made.memory.note_cursor)
            give_back = deadly(made.memory.give_back)

        # Calls go through the class, so the bound methods above are given only their own arguments.
        Deadly.write = staticmethod(Deadly.write)
        Deadly.create = staticmethod(Deadly.create)
        DeadlyMemory.note_cursor = staticmethod(DeadlyMemory.note_cursor)  # type: ignore[method-assign]
        DeadlyMemory.give_back = staticmethod(DeadlyMemory.give_back)  # type: ignore[method-assign]
        stream.__class__ = Deadly
        made.memory.__class__ = DeadlyMemory
        told = 0
        try:
            for _ in range(12):
                for _ in range(3):
                    made.rec.progress()
                    told += 1
                made.writer.drain(made.time.ns)
        except Killed:
            pass
        die(made)
        recover_dead(directory)
        events = of_rank(read_events(directory))
        assert [event["seq"] for event in events] == list(range(told + 1)), f"killed at call {fatal}"
        assert kinds(events) == ["start"] + ["progress"] * told


def test_both_halves_are_recovered_in_any_state(spool: Path, shared: Path) -> None:
    """Kills while halves are full, drained, retired and given back."""
    for rounds in (1, 2, 3, 4, 5, 6, 7, 8, 9):
        directory, memory = spool / str(rounds), shared.with_name(f"memory{rounds}")
        made = make(directory, shared=memory)
        told = 0
        for _ in range(rounds):
            # Two fifths of a half, at 58 bytes a line.
            for _ in range(HALF_BYTES * 2 // 5 // 58):
                made.rec.progress()
                told += 1
            made.writer.drain(made.time.ns)
        assert made.memory.generation == rounds * 2 // 5
        die(made)
        recover_dead(directory)
        assert made.guard.lost == {}
        assert [event["seq"] for event in of_rank(read_events(directory))] == list(range(told + 1))


def test_a_joined_step_that_waits_is_recovered(spool: Path, shared: Path) -> None:
    made = make(spool, shared=shared)
    for step in range(1, 150):
        made.step(step, ms=2)
    die(made)
    recover_dead(spool)
    assert done_steps(read_events(spool)) == list(range(1, 150))
    last = of_rank(read_events(spool))[-1]
    assert (last["step"], last["end_ns"] - last["start_ns"]) == (149, last["count"] * 2 * MS)


@pytest.mark.parametrize("killed_at", ["emit", "step_done"])
def test_a_joined_step_is_not_told_twice_when_the_kill_falls_beside_its_writing(
    spool: Path, shared: Path, monkeypatch: pytest.MonkeyPatch, killed_at: str
) -> None:
    made = make(spool, shared=shared)
    for step in range(1, 150):
        made.step(step, ms=2)

    def killed(*_: object) -> None:
        raise Killed

    owner = type(made.memory) if killed_at == "step_done" else type(made.rec._outlet)
    monkeypatch.setattr(owner, killed_at, killed)
    with pytest.raises(Killed):
        made.rec.steps.flush()
    die(made)
    recover_dead(spool)
    assert done_steps(read_events(spool)) == list(range(1, 150))


def test_a_torn_pending_step_falls_back_to_the_one_before(spool: Path, shared: Path) -> None:
    made = make(spool, shared=shared)
    for step in range(1, 150):
        made.step(step, ms=2)
    turn = made.rec.steps._turn
    # The kill cut the newest slot after its first field.
    at = (192, 320)[(turn + 1) & 1]
    made.memory.header[at : at + 8] = (turn + 1).to_bytes(8, "little")
    die(made)
    recover_dead(spool)
    assert done_steps(read_events(spool)) == list(range(1, 150))


def test_an_exception_is_told_for_a_process_that_could_not(spool: Path, shared: Path) -> None:
    made = make(spool, shared=shared)
    made.step(1, ms=100)
    made.writer.drain(made.time.ns)
    with pytest.raises(RuntimeError), made.rec.step(2):
        made.time.advance(10)
        raise RuntimeError
    raised_ns = made.events()[-1]["ts_ns"] + 10 * MS
    die(made)
    recover_dead(spool)
    stop = of_rank(read_events(spool))[-1]
    assert (stop["kind"], stop["reason"], stop["detail"], stop["ts_ns"]) == (
        "stop",
        "exception",
        "RuntimeError",
        raised_ns,
    )
    assert stop["seq"] == 2


def test_no_stop_is_made_up_for_one_that_went_on(spool: Path, shared: Path) -> None:
    made = make(spool, shared=shared)
    with pytest.raises(RuntimeError), made.rec.step(1):
        raise RuntimeError
    made.step(1, ms=100)
    die(made)
    recover_dead(spool)
    assert kinds(read_events(spool)) == ["start", "step"]


def test_a_line_cut_in_the_middle_of_its_copy_is_left_out(spool: Path, shared: Path) -> None:
    made = make(spool, shared=shared)
    made.step(1, ms=100)
    half = made.memory.halves[0]
    at = half.tell()
    # A copy may store a line's end before its middle.
    half[at : at + 20] = b'{"kind":"pro' + bytes(6) + b"}\n"
    die(made)
    (dead,) = recover_dead(spool)
    assert (dead.events, dead.damaged) == (2, 1)
    assert kinds(read_events(spool)) == ["start", "step"]


def test_what_a_death_does_not_take_along_waits_for_the_second_look(spool: Path, shared: Path) -> None:
    made = make(spool, shared=shared)
    made.worker.tick()
    assert kinds(read_events(spool)) == ["start"], "the first look is a round"
    made.step(1, ms=100)
    made.worker.tick()
    assert done_steps(read_events(spool)) == [], "it came since the last look"
    made.step(2, ms=100)
    made.worker.tick()
    assert done_steps(read_events(spool)) == [1, 2]
    for _ in range(HALF_BYTES // 16 // 40):
        made.rec.progress()
    made.worker.tick()
    assert kinds(of_rank(read_events(spool)))[-1] == "progress", "much does not wait"


def test_what_a_death_would_take_along_goes_to_the_disk_at_once(spool: Path) -> None:
    made = make(spool)
    made.worker.tick()
    assert kinds(read_events(spool)) == ["start"]


def test_files_that_were_shipped_and_removed_are_not_missed(spool: Path, shared: Path) -> None:
    made = make(spool, shared=shared)
    made.step(1, ms=100)
    made.writer.drain(made.time.ns)
    made.step(2, ms=100)
    for segment in list_segments(spool):
        segment.path.unlink()
    die(made)
    recover_dead(spool)
    assert done_steps(read_events(spool)) == [2]


def test_a_live_writer_notices_that_its_file_was_removed(spool: Path) -> None:
    made = make(spool)
    made.step(1, ms=100)
    assert done_steps(made.events()) == [1]
    for segment in list_segments(spool):
        segment.path.unlink()
    made.step(2, ms=100)
    assert done_steps(made.events()) == [2]


def test_files_are_numbered_and_bounded(spool: Path) -> None:
    made = make(spool)
    made.writer.file_max_bytes = 2000
    for step in range(1, 101):
        made.step(step, ms=100)
        made.writer.drain(made.time.ns)
    segments = list_segments(spool)
    assert [segment.number for segment in segments] == list(range(len(segments)))
    assert len(segments) > 5
    assert all(segment.path.stat().st_size <= 2000 for segment in segments)
    assert done_steps(read_events(spool)) == list(range(1, 101))


def test_a_full_memory_drops_and_counts(spool: Path, swallowed: list[str]) -> None:
    made = make(spool, max_bytes=0)
    for _ in range(20_000):
        made.rec.progress()
    made.time.advance(10_000)
    made.worker.tick()
    assert read_events(spool) == [], "the cap holds"
    made.rec.finish()
    events = of_rank(read_events(spool))
    (dropped,) = [event for event in events if event["kind"] == "dropped"]
    assert dropped["reason"] == "memory was full"
    assert dropped["count"] + kinds(events).count("progress") == 20_000
    assert kinds(events)[0] == "start" and kinds(events)[-1] == "stop"
    assert sum(segment.path.stat().st_size for segment in list_segments(spool)) < 3 * HALF_BYTES
    assert set(swallowed) == {"spool has reached its cap of 0 bytes"}
    swallowed.clear()


def test_a_disk_that_refuses_and_comes_back_costs_nothing(spool: Path, swallowed: list[str]) -> None:
    made = make(spool)
    made.step(1, ms=100)
    writer: Any = made.writer
    there, writer._stream._directory = writer._stream._directory, Path("/proc/no-such-place")
    for _ in range(30):
        made.time.advance(100)
        made.worker.tick()
    made.step(2, ms=100)
    assert read_events(spool) == []
    assert swallowed == ["spool could not be written"] * 3, "it is tried again once a second"
    writer._stream._directory = there
    made.time.advance(1000)
    assert done_steps(made.events()) == [1, 2]
    assert made.guard.lost == {}
    swallowed.clear()


def test_memory_of_ones_own_needs_no_tmpfs(spool: Path) -> None:
    made = make(spool, shared=None)
    made.step(1, ms=100)
    die(made)
    (dead,) = recover_dead(spool)
    assert dead.events == 0 and not dead.lost_memory
    assert list_sources(spool) == {}


def test_memory_that_is_not_seen_from_here_is_left_alone(spool: Path, shared: Path) -> None:
    made = make(spool, shared=shared)
    made.step(1, ms=100)
    elsewhere = shared.rename(shared.with_name("elsewhere"))
    die(made)
    assert recover_dead(spool) == []
    assert list_sources(spool) == {"src": False}
    elsewhere.rename(shared)
    assert [dead.events for dead in recover_dead(spool)] == [2]


def test_memory_of_an_earlier_boot_is_gone(spool: Path, shared: Path) -> None:
    made = make(spool, shared=shared)
    lock = next(spool.glob("*.lock"))
    shared.unlink()
    die(made)
    text = lock.read_text().replace('"boot_id": "', '"boot_id": "another ')
    lock.write_text(text)
    assert [dead.lost_memory for dead in recover_dead(spool)] == [True]
    assert list_sources(spool) == {}


ELSEWHERE = b'{"source": "../odd", "run": "r", "memory": null, "pid": 1, "rank": 0, "boot_id": null}'


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b'{"source": 1', bytes(100), ELSEWHERE])
def test_a_foreign_lock_file_harms_nobody(spool: Path, content: bytes) -> None:
    made = make(spool)
    (spool / "odd.lock").write_bytes(content)
    assert recover_dead(spool) == []
    assert (spool / "odd.lock").exists()
    made.rec.finish()


def test_only_one_reader_takes_a_dead_source(spool: Path, shared: Path) -> None:
    made = make(spool, shared=shared)
    path = made.worker._lock.path  # type: ignore[union-attr]
    die(made)
    first = LivenessLock.take_over(path)
    assert first is not None
    assert LivenessLock.take_over(path) is None
    first.release(remove=False)
    assert len(recover_dead(spool)) == 1


@pytest.mark.skipif(not is_tmpfs("/dev/shm"), reason="only memory on tmpfs is looked for")
def test_memory_whose_spool_was_removed_does_not_stay_for_ever(spool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as root:
        monkeypatch.setenv("GOODPUT_MEMORY", root)
        folder = Path(root) / user_directory_name()
        folder.mkdir()
        old, young, live, known = (
            make(spool / name, shared=folder / name) for name in ("old", "young", "live", "known")
        )
        for made in (old, young, known):
            die(made)
        for made in (old, young, live):
            shutil.rmtree(made.spool)
        for made in (old, live, known):
            assert made.memory.path is not None
            os.utime(made.memory.path, (0, 0))
        recover_dead(spool)
        assert sorted(path.name for path in folder.iterdir()) == ["known", "live", "young"]


@pytest.mark.parametrize("image", [b"", bytes(FILE_BYTES), b"GOODPUT1", b"GOODPUT1" + bytes(FILE_BYTES - 8)])
def test_a_memory_that_was_never_set_up_is_told_apart(image: bytes) -> None:
    with pytest.raises(ValueError, match=r"memory segment"):
        read_remains(image)


def test_a_full_disk_takes_half_a_line_and_later_the_rest(spool: Path, swallowed: list[str]) -> None:
    made = make(spool)
    made.step(1, ms=100)
    assert done_steps(made.events()) == [1]
    size = list_segments(spool)[0].path.stat().st_size
    made.step(2, ms=100)
    made.step(3, ms=100)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 150, hard))
    try:
        for _ in range(3):
            made.time.advance(1000)
            made.worker.tick()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list_segments(spool)[0].path.stat().st_size == size + 150
    assert set(swallowed) == {"spool could not be written"}
    made.time.advance(1000)
    assert done_steps(made.events()) == [1, 2, 3]
    assert [event["seq"] for event in of_rank(made.events())] == [0, 1, 2, 3]
    swallowed.clear()


def test_a_frozen_disk_holds_nobody_up(spool: Path, monkeypatch: pytest.MonkeyPatch, swallowed: list[str]) -> None:
    thawed, frozen = threading.Event(), threading.Event()
    write = SpoolFile.write

    def stuck(file: SpoolFile, data: bytes) -> int:
        frozen.set()
        thawed.wait(30)
        return write(file, data)

    monkeypatch.setattr(SpoolFile, "write", stuck)
    monkeypatch.setattr("goodput.worker.CLOSE_LIMIT_S", 0.1)
    rec: Any = goodput.start(run="r", spool=spool)
    assert frozen.wait(10)
    slowest_ns = 0
    for step in range(1, 20_001):
        begun_ns = time.thread_time_ns()
        with rec.step(step):
            rec.progress()
        slowest_ns = max(slowest_ns, time.thread_time_ns() - begun_ns)
    rec.finish()
    assert swallowed == ["disk did not take the end of the record in time"]
    assert list_sources(spool) == {rec.source: True}
    thawed.set()
    rec._worker._thread.join(30)
    events = of_rank(read_events(spool))
    lost = sum(event["count"] for event in events if event["kind"] == "dropped")
    assert lost > 0 and len([event for event in events if event["kind"] == "progress"]) + lost >= 20_000
    assert events[-1]["kind"] == "stop" and list_sources(spool) == {}
    assert slowest_ns < 100_000_000
    swallowed.clear()
