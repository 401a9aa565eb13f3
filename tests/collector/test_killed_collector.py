"""Collector and agents killed at any instant, over a bad network: at the end every event is there, once."""

import contextlib
import http.client
import json
import os
import random
import subprocess
import threading
import time
from pathlib import Path

import made_streams
import pytest
from bad_network import BadNetwork
from made_events import T0_NS, S
from service_running import GOODPUT, Collector

import goodput_analytics
from goodput.liveness import LivenessLock, SourceInfo
from goodput_collector.database import open_database
from goodput_collector.deaths import owner_of
from goodput_collector.landing import ingest_files
from goodput_collector.rebuild import rebuild


def ranks(count: int, steps: int, run: str = "killed") -> dict[str, bytes]:
    """One attempt of so many ranks, each rank's events in two files, as a recorder names and writes them."""
    streams: dict[str, bytes] = {}
    for rank in range(count):
        source = f"r{rank}-node-{rank:016x}"
        head = f'{{"run":"{run}","source":"{source}",'
        start = (
            f'{head}"kind":"start","seq":0,"ts_ns":{T0_NS},"v":1,"job":"local:h:1","rank":{rank},"world_size":{count},'
            f'"node":"n{rank % 8}","devices":1,"process_start_ns":{T0_NS - S},"attempt_token":"t"}}\n'
        )
        lines = [start]
        for number in range(1, steps + 1):
            begin = T0_NS + number * S + rank
            times = f'"ts_ns":{begin + S - 9},"step":{number},"start_ns":{begin},"end_ns":{begin + S - 9 - rank}'
            lines.append(f'{{"kind":"step","seq":{number},{times}}}\n')
        cut = len(lines) // 2
        second = head + lines[cut][1:]
        streams[f"{source}.000000"] = "".join(lines[:cut]).encode()
        streams[f"{source}.000001"] = "".join([second, *lines[cut + 1 :]]).encode()
    return streams


def report(db: Path, run: str) -> str:
    con = open_database(db, read_only=True)
    try:
        return json.dumps(goodput_analytics.report(con, run).as_json(), sort_keys=True)
    finally:
        con.close()


def start_agent(url: str, spool: Path) -> subprocess.Popen[bytes]:
    with (spool.parent / f"{spool.name}.log").open("ab") as log:
        return subprocess.Popen([*GOODPUT, "agent", "--to", url, "--spool", spool], stderr=log)


def close_old(collector: Collector, streams: dict[str, bytes]) -> None:
    """Has the steps that all ranks have told closed, and the database compacted; it may be killed meanwhile."""
    with contextlib.suppress(OSError, http.client.HTTPException):
        told = []
        for name, data in streams.items():
            status, body, _ = collector.ask(f"/v1/streams/{name}")
            whole = data[: json.loads(body)["offset"]] if status == 200 else b""
            # Nothing is told of a rank's first half when its second was sent.
            told.append((name.removesuffix(name[-7:]), _last_step(whole)))
        last: dict[str, int] = {}
        for source, step in told:
            last[source] = max(step, last.get(source, 0))
        before_ns = T0_NS + min(last.values()) * S
        status, answer = collector.post("/v1/compact", json.dumps({"before_ns": before_ns}).encode())
        assert status in (200, 503), answer


def _last_step(data: bytes) -> int:
    last = data[data.rfind(b"\n", 0, -1) + 1 :]
    return int(json.loads(last).get("step", 0)) if last else 0


def kill_and_compare(
    folder: Path, *, sources: int, steps: int, agents: int, kills: int, seed: int, closing: bool = False
) -> None:
    """`closing`: steps are closed and the database is compacted meanwhile."""
    print(f"seed {seed}")
    chance = random.Random(seed)
    streams = ranks(sources, steps)
    spools = [folder / f"spool-{index}" for index in range(agents)]
    for spool in spools:
        spool.mkdir(mode=0o700)
    home = {name: spools[int(name[1 : name.index("-")]) % agents] for name in streams}
    written = dict.fromkeys(streams, 0)
    # As a rank holds it while it lives: without it a file is taken for complete when a busy machine lets it rest.
    locks = [
        LivenessLock.create(
            spool, SourceInfo(source=source, run="killed", memory=None, pid=os.getpid(), rank=0, boot_id=None)
        )
        for source, spool in {owner_of(name[:-7]): spool for name, spool in home.items()}.items()
    ]

    def write_some(share: float) -> None:
        """A recorder goes on to the next file when one is full: what an agent has then taken whole, it removes."""
        for name, data in streams.items():
            size = int(len(data) * share * chance.random() * 4)
            first = f"{name[:-1]}0"
            if first != name and written[first] < len(streams[first]):
                continue
            if size and written[name] < len(data):
                with (home[name] / f"{name}.jsonl").open("ab") as file:
                    file.write(data[written[name] : written[name] + size])
                written[name] += min(size, len(data) - written[name])

    # What is told is old: its rows must not go by themselves.
    collector = Collector(folder, "--no-spool", "--keep-raw-days", 0, environment={"GOODPUT_DEBUG": "1"})
    with collector:
        pass  # so that it has a port
    network = BadNetwork(collector.port, seed)
    running = [start_agent(network.url, spool) for spool in spools]
    try:
        for turn in range(kills):
            write_some(1 / kills)
            collector.spawn()
            # Some kills meet it before it answers, some while it catches up, most while it works.
            beside = threading.Thread(target=close_old, args=(collector, streams))
            if closing:
                beside.start()
            time.sleep(chance.uniform(0.3, 3.0))
            collector.kill()
            if closing:
                beside.join()
            if turn % 3 == 0:
                unlucky = chance.randrange(agents)
                running[unlucky].kill()
                running[unlucky].wait()
                running[unlucky] = start_agent(network.url, spools[unlucky])
        for name, data in streams.items():
            with (home[name] / f"{name}.jsonl").open("ab") as file:
                file.write(data[written[name] :])
        collector.start()
        deadline = time.monotonic() + 600 + 3 * kills  # a busy machine takes its time
        while True:
            stands = {name: collector.get(f"/v1/streams/{name}")["offset"] for name in streams}
            if all(stands[name] == len(data) for name, data in streams.items()):
                break
            assert time.monotonic() < deadline, f"seed {seed}: {sum(stands.values())} bytes"
            time.sleep(0.3)
        if closing:
            status, answer = collector.post("/v1/compact", json.dumps({"before_ns": T0_NS + steps * S}).encode())
            assert status == 200, answer
    finally:
        for process in running:
            process.kill()
            process.wait()
        for lock in locks:
            lock.release(remove=True)
        network.close()
        collector.stop()
    assert len(network.fates) == len(set(BadNetwork.FATES)), network.fates

    truth = folder / "truth"
    truth.mkdir()
    for name, data in streams.items():
        (truth / f"{name}.jsonl").write_bytes(data)
    ingest_files(folder / "clean.duckdb", sorted(truth.iterdir()))
    con = open_database(folder / "clean.duckdb")
    con.execute("CREATE TABLE archive_position (archive_id VARCHAR, file BIGINT, byte BIGINT)")
    con.close()
    kept, clean = made_streams.state(collector.db), made_streams.state(folder / "clean.duckdb")
    for name in ("start", "delivery", "displaced", "ranges", "names", "rejected"):
        assert kept[name] == clean[name], f"seed {seed}: {name}"
    if closing:
        assert set(kept["step"]) < set(clean["step"])
        assert len(kept["step"]) == len(set(kept["step"])) < len(clean["step"]) / 2
    else:
        assert kept["step"] == clean["step"]
    assert report(collector.db, "killed") == report(folder / "clean.duckdb", "killed")
    rebuild(collector.archive, folder / "again.duckdb")
    assert made_streams.state(folder / "again.duckdb") == kept
    assert report(folder / "again.duckdb", "killed") == report(collector.db, "killed")


def test_a_few_kills(tmp_path: Path) -> None:
    kill_and_compare(tmp_path, sources=8, steps=400, agents=2, kills=3, seed=int(os.environ.get("SEED", "3")))


def test_a_few_kills_while_old_steps_are_closed_and_the_database_is_compacted(tmp_path: Path) -> None:
    seed = int(os.environ.get("SEED", "3"))
    kill_and_compare(tmp_path, sources=4, steps=3_200, agents=2, kills=3, seed=seed, closing=True)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1))
def test_two_hundred_kills_while_old_steps_are_closed_and_the_database_is_compacted(seed: int, tmp_path: Path) -> None:
    """As long as the other, with rows of ranks going and the file being changed for another all the while."""
    kill_and_compare(tmp_path, sources=64, steps=16_000, agents=8, kills=200, seed=seed, closing=True)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1))
def test_two_hundred_kills(seed: int, tmp_path: Path) -> None:
    """About ten minutes on two cores: a million events of 64 ranks on eight nodes, and 200 kills of the collector."""
    kill_and_compare(tmp_path, sources=64, steps=16_000, agents=8, kills=200, seed=seed)
