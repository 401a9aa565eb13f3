"""A disk that fills up and is freed, and a database whose log was damaged: nothing acknowledged is lost."""

import subprocess
from pathlib import Path

import made_streams
import pytest
from service_running import GOODPUT, eventually

from goodput_collector.chunks import Chunk
from goodput_collector.client import HttpClient
from goodput_collector.rebuild import rebuild
from goodput_collector.shipping import NotNowError
from goodput_collector.sinks import HttpSink
from goodput_collector.store import Store

MOUNT = ["unshare", "--mount", "sh", "-c"]
MAY_MOUNT = subprocess.run([*MOUNT, "mount -t tmpfs -o size=1m tmpfs /mnt"], capture_output=True).returncode == 0


@pytest.mark.skipif(not MAY_MOUNT, reason="needs the right to mount a small tmpfs")
def test_a_full_disk_refuses_and_when_it_is_freed_all_goes_on(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    command = " ".join(
        map(str, [*GOODPUT, "collect", "--no-spool", "--db", disk / "c.duckdb", "--listen", "127.0.0.1:0"])
    )
    log = tmp_path / "log"
    with log.open("wb") as file:
        process = subprocess.Popen([*MOUNT, f"mount -t tmpfs -o size=24m tmpfs {disk} && exec {command}"], stderr=file)
    try:
        eventually(lambda: b"collecting on" in log.read_bytes())
        url = log.read_text().partition("collecting on ")[2].split()[0]
        sink = HttpSink(url)
        streams = {f"s{index}": made_streams.steps(f"s{index}", 2000, run="full") for index in range(8)}
        stands = dict.fromkeys(streams, 0)

        def send(name: str, size: int) -> bool:
            data = streams[name][stands[name] : stands[name] + size]
            try:
                receipt = sink.send([Chunk(stream=name, offset_bytes=stands[name], data=data)])
            except NotNowError as error:
                assert "could not be written" in str(error) or "does not answer now" in str(error), error
                return False
            stands[name] = receipt.taken[0].offset_bytes or 0
            return True

        for name in streams:
            assert send(name, 20_000)
        # The disk as that process sees it.
        inside = Path(f"/proc/{process.pid}/root{disk}")
        filler = inside / "filler"
        with filler.open("wb") as file:
            try:
                while True:
                    file.write(bytes(65536))
                    file.flush()
            except OSError:
                pass
        refused = 0
        for turn in range(6):
            refused += not send(f"s{turn}", 20_000)
        assert refused >= 1
        assert process.poll() is None
        filler.unlink()

        def all_sent() -> bool:
            for name, data in streams.items():
                if stands[name] < len(data):
                    send(name, 100_000)
            return all(stands[name] == len(data) for name, data in streams.items())

        eventually(all_sent, 40)
        report = HttpClient(url).report("full")
        assert (report.quality.events, report.quality.duplicates, report.quality.gaps) == (16_000, 0, 0)
        process.terminate()
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.wait()


def test_a_damaged_log_is_told_and_the_database_made_again(tmp_path: Path) -> None:
    store = Store(tmp_path / "c.duckdb", tmp_path / "c.archive")
    data = made_streams.steps("s", 500)
    at = 0
    while at < len(data):
        (answer,) = store.take([Chunk(stream="s", offset_bytes=at, data=data[at : at + 10_000])])
        at = answer.offset_bytes
    # Killed: the log has not been put into the file.
    copy = tmp_path / "killed"
    copy.mkdir()
    for name in ("c.duckdb", "c.duckdb.wal"):
        (copy / name).write_bytes((tmp_path / name).read_bytes())
    store.close()
    (tmp_path / "c.archive").rename(copy / "c.archive")
    log = copy / "c.duckdb.wal"
    damaged = bytearray(log.read_bytes())
    for place in range(len(damaged) // 3, len(damaged) // 3 + 64):
        damaged[place] ^= 0x5A
    log.write_bytes(damaged)
    process = subprocess.Popen(
        [*GOODPUT, "collect", "--no-spool", "--db", copy / "c.duckdb", "--listen", "127.0.0.1:0"],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    said = process.stderr.readline()
    if "collecting on" in said:
        # DuckDB read the log up to the damage: what is missing comes from the archive.
        url = said.partition("collecting on ")[2].split()[0]
        assert HttpClient(url).report("many").quality.events == 500
        process.terminate()
    else:
        assert "goodput rebuild" in said
    process.wait(10)
    process.stderr.close()
    rebuild(copy / "c.archive", copy / "again.duckdb")
    assert len(made_streams.state(copy / "again.duckdb")["step"]) == 500


@pytest.mark.skipif(not MAY_MOUNT, reason="needs the right to mount a small tmpfs")
def test_an_ingest_that_fills_the_disk_says_so_in_a_line(tmp_path: Path) -> None:
    disk, events = tmp_path / "disk", tmp_path / "events.jsonl"
    disk.mkdir()
    events.write_bytes(made_streams.steps("s", 20_000, run="full"))
    command = " ".join(map(str, [*GOODPUT, "ingest", events, "--db", disk / "c.duckdb"]))
    small, large = f"mount -t tmpfs -o size=600k tmpfs {disk}", f"mount -o remount,size=60m {disk}"
    filled = f"{small} && {command}; echo $?; {large} && {command}"
    done = subprocess.run([*MOUNT, filled], capture_output=True, text=True, timeout=100)
    assert done.stderr == (
        f"goodput: There is no space left on the disk of {disk / 'c.duckdb'}; make room, and run the command again: "
        "it goes on from what is kept.\n"
    )
    status, taken = done.stdout.splitlines()[:2]
    assert status == "1" and taken.startswith("20,000 events read; 20,000 new; run full.")
