"""A spool shipped: whole, once, and removed only when it was acknowledged; the dead are told of."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import made_streams
import pytest

from goodput.events import naming_prefix
from goodput.liveness import LivenessLock, SourceInfo
from goodput.request import read_request
from goodput_collector.chunks import Chunk
from goodput_collector.errors import SpoolError
from goodput_collector.requests import Asked
from goodput_collector.shipping import QUIET_NS, NotNowError, Receipt, Shipper, Taken
from goodput_collector.store import admit
from goodput_collector.trust import check_spool
from goodput_collector.watching import Backoff

S = 1_000_000_000


class FakeSink:
    """Keeps what it is sent as a store would, badly at times."""

    def __init__(self, chance: random.Random | None = None) -> None:
        self.streams: dict[str, bytes] = {}
        self.asked: list[Asked] = []
        self.down = False
        self.sendings = 0
        self._chance = chance

    def send(self, chunks: Sequence[Chunk]) -> Receipt:
        self.sendings += 1
        if self.down:
            raise NotNowError("down")
        taken = []
        for chunk in chunks:
            if self._chance is not None and self._chance.random() < 0.2:
                taken.append(Taken(offset_bytes=None))
                continue
            kept = self.streams.setdefault(chunk.stream, b"")
            record = admit(len(kept), chunk)
            if record is not None:
                self.streams[chunk.stream] = kept + record.data
            taken.append(Taken(offset_bytes=len(self.streams[chunk.stream])))
        if self._chance is not None and self._chance.random() < 0.3:
            raise NotNowError("the answer was lost")
        return Receipt(taken=taken, asked=self.asked)


class Clock:
    def __init__(self) -> None:
        self.now_ns = time.time_ns()

    def __call__(self) -> int:
        return self.now_ns


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    path = tmp_path / "spool"
    path.mkdir(mode=0o700)
    return path


def shipper(
    spool: Path, sink: FakeSink, clock: Callable[[], int] = time.time_ns, said: list[str] | None = None, **options: int
) -> Shipper:
    complain = (lambda _: None) if said is None else said.append
    return Shipper(spool, sink, owner_uid=os.geteuid(), complain=complain, clock_ns=clock, **options)  # type: ignore[arg-type]


def until_quiet(one: Shipper, rounds: int = 200) -> None:
    quiet = 0
    for _ in range(rounds):
        try:
            more = one.step()
        except NotNowError:
            continue
        quiet = 0 if more else quiet + 1
        if quiet > 8:
            return


@pytest.mark.parametrize("seed", range(5))
def test_files_that_grow_arrive_whole_through_a_sink_that_fails(seed: int, spool: Path) -> None:
    chance = random.Random(seed)
    sink = FakeSink(chance)
    streams = {f"s{index}.{index % 2:06d}": made_streams.steps(f"s{index}", 300) for index in range(5)}
    written = dict.fromkeys(streams, 0)
    clock = Clock()
    one = shipper(spool, sink, clock)
    while any(written[name] < len(data) for name, data in streams.items()):
        for name, data in streams.items():
            size = chance.randint(0, 9000)
            with (spool / f"{name}.jsonl").open("ab") as file:
                file.write(data[written[name] : written[name] + size])
            written[name] = min(written[name] + size, len(data))
        if chance.random() < 0.2:
            one = shipper(spool, sink, clock)  # killed, and started again
        try:
            one.step()
        except NotNowError:
            pass
    until_quiet(one)
    assert sink.streams == streams
    assert len(list(spool.iterdir())) == 5
    clock.now_ns += 2 * QUIET_NS
    until_quiet(one)
    assert sink.streams == streams
    assert list(spool.iterdir()) == []


def test_nothing_is_removed_that_was_not_acknowledged(spool: Path) -> None:
    sink, clock = FakeSink(), Clock()
    (spool / "s.000000.jsonl").write_bytes(made_streams.steps("s", 3))
    sink.down = True
    one = shipper(spool, sink, clock)
    clock.now_ns += 10 * QUIET_NS
    for _ in range(3):
        with pytest.raises(NotNowError):
            one.step()
    assert (spool / "s.000000.jsonl").exists()
    sink.down = False
    until_quiet(one)
    assert list(spool.iterdir()) == [] and len(sink.streams) == 1


def test_an_unfinished_last_line_is_sent_only_when_nobody_writes_any_more(spool: Path) -> None:
    sink, clock = FakeSink(), Clock()
    data = made_streams.steps("s", 3)
    file = spool / "s.000000.jsonl"
    file.write_bytes(data[:-20])
    one = shipper(spool, sink, clock)
    until_quiet(one)
    whole = data[:-20].rindex(b"\n") + 1
    assert sink.streams == {"s.000000": data[:whole]}
    clock.now_ns += 2 * QUIET_NS
    until_quiet(one)
    assert sink.streams == {"s.000000": data[:-20]}
    assert not file.exists()


def test_foreign_and_odd_files_are_left_alone(spool: Path, tmp_path: Path) -> None:
    sink, clock, said = FakeSink(), Clock(), []
    (tmp_path / "secret").write_text("{}\n")
    (spool / "notes.txt").write_text("mine")
    (spool / "x.jsonl").write_text("{}\n")
    (spool / "link.000000.jsonl").symlink_to(tmp_path / "secret")
    (spool / "dir.000000.jsonl").mkdir()
    os.mkfifo(spool / "pipe.000000.jsonl")
    (spool / "bad.lock").write_text("no lock of ours")
    if os.geteuid() == 0:
        (spool / "foreign.000000.jsonl").write_text("{}\n")
        os.chown(spool / "foreign.000000.jsonl", 12345, 12345)
    before = sorted(spool.iterdir())
    one = shipper(spool, sink, clock, said)
    clock.now_ns += 10 * QUIET_NS
    until_quiet(one)
    assert sink.streams == {}
    assert sorted(spool.iterdir()) == before
    assert any("link.000000.jsonl" in sentence for sentence in said)
    assert len(said) == len(set(said))


def test_over_the_limit_the_oldest_files_go_and_it_is_told(spool: Path) -> None:
    sink, clock, said = FakeSink(), Clock(), []
    sink.down = True
    sizes = []
    for number in range(4):
        path = spool / f"s.{number:06d}.jsonl"
        path.write_bytes(made_streams.steps("s", 50))
        os.utime(path, ns=(number, clock.now_ns - (10 - number) * S))
        sizes.append(path.stat().st_size)
    one = shipper(spool, sink, clock, said, max_bytes=sizes[0] * 2 + 10)
    with pytest.raises(NotNowError):
        one.step()
    left = sorted(path.name for path in spool.iterdir())
    assert left == [f"s.{n:06d}.jsonl" for n in (2, 3)] + [f"s.lost.{n:06d}.jsonl" for n in (0, 1)]
    assert len([sentence for sentence in said if "limit" in sentence]) == 2
    sink.down = False
    until_quiet(one)
    lost = [json.loads(sink.streams[f"s.lost.{number:06d}"]) for number in (0, 1)]
    assert [(one["kind"], one["run"], one["count"], one["seq"]) for one in lost] == [
        ("dropped", "many", 50, 0),
        ("dropped", "many", 50, 1),
    ]


TRAIN = """
import goodput, sys, time, os
rec = goodput.start("died")
rec.resumed(None)
for step in range(1, 31):
    with rec.step(step): time.sleep(0.002)
if sys.argv[1] == "fork" and os.fork() == 0:
    time.sleep(30)
    os._exit(0)
print("ready", flush=True)
time.sleep(30)
"""


def trained(spool: Path, mode: str = "") -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", TRAIN, mode],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"GOODPUT_SPOOL": str(spool), "GOODPUT_HEARTBEAT_S": "0.2", "GOODPUT_SUMMARY": "0"},
        start_new_session=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


def exits(sink: FakeSink) -> list[dict[str, object]]:
    return [json.loads(data) for name, data in sink.streams.items() if name.endswith(".exit.000000")]


def kinds(sink: FakeSink, kind: str) -> int:
    return sum(data.count(f'"kind":"{kind}"'.encode()) for data in sink.streams.values())


def test_a_killed_rank_is_told_of_once_and_a_live_one_never(spool: Path) -> None:
    sink = FakeSink()
    doomed, alive = trained(spool), trained(spool)
    one = shipper(spool, sink)
    for _ in range(5):
        one.step()
        time.sleep(0.1)
    assert exits(sink) == []
    before_ns = time.time_ns()
    doomed.kill()
    doomed.wait()
    one.step()
    until_quiet(one)
    (told,) = exits(sink)
    assert before_ns <= int(str(told["ts_ns"])) <= time.time_ns()
    assert told["run"] == "died" and str(told["source"]) == f"{told['of']}.exit" and told["seq"] == 0
    again = shipper(spool, sink)
    until_quiet(again)
    assert len(exits(sink)) == 1
    # What the killed one had in memory came too.
    assert (
        sum(
            json.loads(line).get("count", 1)
            for name, data in sink.streams.items()
            if name.startswith(str(told["of"]))
            for line in data.splitlines()
            if b'"kind":"step"' in line
        )
        == 30
    )
    alive.kill()
    alive.wait()
    alive.stdout.close()  # type: ignore[union-attr]
    doomed.stdout.close()  # type: ignore[union-attr]


def test_a_stopped_rank_and_a_child_of_a_dead_one_mislead_nobody(spool: Path) -> None:
    sink = FakeSink()
    stopped, forked = trained(spool), trained(spool, "fork")
    one = shipper(spool, sink)
    stopped.send_signal(signal.SIGSTOP)
    until_quiet(one)
    assert exits(sink) == []
    forked.kill()  # its child lives on
    forked.wait()
    until_quiet(one)
    assert len(exits(sink)) == 1
    stopped.kill()
    stopped.wait()
    until_quiet(one)
    assert len(exits(sink)) == 2
    os.killpg(forked.pid, signal.SIGKILL)
    for process in (stopped, forked):
        assert process.stdout is not None
        process.stdout.close()


def test_a_death_seen_late_is_told_as_of_the_last_sign(spool: Path) -> None:
    """The watcher was away when it happened: the files say when the process last wrote."""
    sink, clock = FakeSink(), Clock()
    doomed = trained(spool)
    time.sleep(0.5)
    doomed.kill()
    doomed.wait()
    died_ns = time.time_ns()
    clock.now_ns = died_ns + 3600 * S
    until_quiet(shipper(spool, sink, clock))
    (told,) = exits(sink)
    assert died_ns - 2 * S <= int(str(told["ts_ns"])) <= died_ns
    assert doomed.stdout is not None
    doomed.stdout.close()


def test_whoever_else_took_up_the_memory_the_end_is_told(spool: Path) -> None:
    from goodput.spool import recover_dead

    sink = FakeSink()
    doomed = trained(spool)
    one = shipper(spool, sink)
    one.step()
    doomed.kill()
    doomed.wait()
    assert len(recover_dead(spool)) == 1  # as the next recorder on the node does
    until_quiet(one)
    assert len(exits(sink)) == 1
    assert doomed.stdout is not None
    doomed.stdout.close()


def test_a_source_that_said_its_end_needs_nobody_to_tell_it(spool: Path) -> None:
    sink, clock = FakeSink(), Clock()
    script = "import goodput\nrec = goodput.start('ends')\nwith rec.step(1): pass\nrec.finish()"
    subprocess.run(
        [sys.executable, "-c", script],
        check=True,
        env=os.environ | {"GOODPUT_SPOOL": str(spool), "GOODPUT_SUMMARY": "0"},
    )
    one = shipper(spool, sink, clock)
    until_quiet(one)
    clock.now_ns += 2 * QUIET_NS
    until_quiet(one)
    assert kinds(sink, "stop") == 1 and exits(sink) == []
    assert [path for path in spool.iterdir() if path.suffix in (".jsonl", ".lock")] == []


def test_a_watcher_killed_between_telling_and_removing_tells_once(spool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = FakeSink()
    info = SourceInfo(source="s", run="r", memory=None, pid=1, rank=0, boot_id=None)
    lock = LivenessLock.create(spool, info)
    (spool / "s.000000.jsonl").write_bytes(naming_prefix("r", "s") + b'"kind":"progress","seq":0,"ts_ns":5}\n')
    lock.release(remove=False)

    def killed(*_: object) -> None:
        raise OSError("killed here")

    with monkeypatch.context() as patch:
        patch.setattr("goodput_collector.deaths.recover_source", killed)
        until_quiet(shipper(spool, sink))
    assert len(exits(sink)) == 1 and (spool / "s.lock").exists()
    first = exits(sink)
    until_quiet(shipper(spool, sink))
    assert exits(sink) == first and not (spool / "s.lock").exists()


def test_a_request_for_a_checkpoint_reaches_the_run_that_is_here(spool: Path) -> None:
    sink = FakeSink()
    lock = LivenessLock.create(spool, SourceInfo(source="s", run="r", memory=None, pid=1, rank=0, boot_id=None))
    (spool / "s.000000.jsonl").write_bytes(naming_prefix("r", "s") + b'"kind":"progress","seq":0,"ts_ns":5}\n')
    sink.asked = [
        Asked(id="1", run="r", step=7, until_ns=2**62),
        Asked(id="2", run="elsewhere", step=None, until_ns=2**62),
    ]
    # The lock is this process's own here, so its file is read as another's would be.
    one = shipper(spool, sink)
    until_quiet(one)
    found = read_request(spool, "r")
    assert found is not None and (found.id, found.step, found.until_ns) == ("1", 7, 2**62)
    assert read_request(spool, "elsewhere") is None
    lock.release(remove=True)


def test_a_spool_that_another_user_could_have_prepared_is_refused(tmp_path: Path) -> None:
    good = tmp_path / "new"
    assert check_spool(good) == os.geteuid()
    assert good.stat().st_mode & 0o777 == 0o700
    (tmp_path / "link").symlink_to(good)
    with pytest.raises(SpoolError, match="link"):
        check_spool(tmp_path / "link")
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    with pytest.raises(SpoolError, match="chmod go-w"):
        check_spool(open_to_all)
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    with pytest.raises(SpoolError, match="name one of your own inside it"):
        check_spool(shared)
    (open_to_all / "inner").mkdir(mode=0o700)
    with pytest.raises(SpoolError, match="in the place of"):
        check_spool(open_to_all / "inner")
    (tmp_path / "file").write_text("")
    with pytest.raises(SpoolError, match="not a folder"):
        check_spool(tmp_path / "file")


def test_backoff_doubles_up_to_a_limit_and_is_never_the_same() -> None:
    waits = [[one.failed() for _ in range(12)] for one in (Backoff(random.Random(seed)) for seed in range(20))]
    for wait in waits:
        assert all(0.25 * 2**n <= w <= 0.5 * 2**n for n, w in enumerate(wait[:6]))
        assert all(15 <= w <= 30 for w in wait[7:])
    assert len({wait[3] for wait in waits}) == 20
    one = Backoff(random.Random(1))
    one.failed()
    one.succeeded()
    assert one.failed() <= 0.5
    assert 10 <= one.failed(10.0) <= 15
