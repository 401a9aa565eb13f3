"""What the collector can bear: a cluster's steady stream, a bulk load, and a reader who asks all the time.

    python benchmarks/collector.py [load] [bulk] [readers] [--seconds N] [--agents N] [--events N] [--write]

`load`: 2,048 agents of 8 sources each send one batch each 5 s, a step and a heartbeat of each source. Wanted: under
40 % of one core, flat memory. `bulk`: the rate of events over HTTP beside a bare `read_json` of the same bytes.
Wanted: at least 0.25. `readers`: the same with somebody asking for the report every second. Wanted: at least half the
rate, and a 99th percentile of the report within 3 times its idle one. `--write` puts the result into
docs/PERFORMANCE.md.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
from document import put_section
from ingest import BARE

from goodput_collector.chunks import Chunk, encode

SOURCES_PER_AGENT = 8
EVERY_S = 5.0
CONNECTIONS = 1024
WARM_S = 15.0
BULK_STREAMS = 64
BODY_BYTES = 8 * 2**20
SENDERS = 4
T0_NS = 1_700_000_000_000_000_000
HEADING = "## Collector"
PARTS = ("load", "bulk", "readers")


@dataclass
class Service:
    """A collector at work."""

    process: subprocess.Popen[bytes]
    port: int

    def cpu_s(self) -> float:
        """Processor time that it has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss_bytes(self) -> int:
        """Memory that it holds."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) * 1024


@contextmanager
def collector(folder: Path) -> Iterator[Service]:
    db = folder / "bench.duckdb"
    command = [sys.executable, "-m", "goodput.cli", "collect", "--no-spool", "--db", str(db), "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    assert process.stderr is not None
    said = process.stderr.readline().decode()
    threading.Thread(target=process.stderr.read, daemon=True).start()
    try:
        yield Service(process=process, port=int(said.partition("http://")[2].split()[0].rpartition(":")[2]))
    finally:
        process.terminate()
        process.wait(30)


@dataclass
class Agent:
    """One node's senders: the streams of eight ranks and of their heartbeats."""

    number: int
    turn: int = 0
    offsets: dict[str, int] = field(default_factory=dict)

    def body(self) -> bytes:
        chunks = []
        for index in range(SOURCES_PER_AGENT):
            rank = self.number * SOURCES_PER_AGENT + index
            source = f"r{rank}-node{self.number}-{rank:016x}"
            for name, line in ((source, self._step(source)), (f"{source}.hb", self._beat(source))):
                stream = f"{name}.000000"
                data = line.encode()
                chunks.append(Chunk(stream=stream, offset_bytes=self.offsets.get(stream, 0), data=data))
                self.offsets[stream] = self.offsets.get(stream, 0) + len(data)
        self.turn += 1
        return gzip.compress(encode(chunks), 1)

    def _step(self, source: str) -> str:
        who = f'"run":"load-{self.number // 128}","source":"{source}",' if self.turn == 0 else ""
        end = T0_NS + (self.turn + 1) * 5_000_000_000
        return (
            f'{{{who}"kind":"step","seq":{self.turn},"ts_ns":{end},"step":{self.turn + 1},'
            f'"start_ns":{end - 5_000_000_000},"end_ns":{end},"data_ns":{self.number * 7919 % 50_000_000},'
            f'"busy_ns":4100000000}}\n'
        )

    def _beat(self, source: str) -> str:
        now = T0_NS + (self.turn + 1) * 5_000_000_000
        return (
            f'{{"run":"load-{self.number // 128}","source":"{source}.hb","kind":"heartbeat","seq":{self.turn},'
            f'"ts_ns":{now},"of":"{source}","step":{self.turn},"phase":"step","phase_since_ns":{now - 10**9}}}\n'
        )


async def send(agents: list[Agent], port: int, until_s: float, delays: list[float]) -> None:
    """One connection, used by some agents in turn, each every five seconds."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    begun = time.monotonic()
    number = 0
    while time.monotonic() < until_s:
        due = begun + number * EVERY_S / len(agents)
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        body = agents[number % len(agents)].body()
        number += 1
        sent = time.monotonic()
        head = f"POST /v1/batch HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        size = int(answer.lower().partition(b"content-length:")[2].split()[0])
        told = json.loads(await reader.readexactly(size))
        assert all(one["status"] == 200 for one in told["streams"]), told
        delays.append(time.monotonic() - sent)
    writer.close()


def load(agents: int, seconds: float, folder: Path) -> list[str]:
    with collector(folder) as service:
        delays: list[float] = []
        seen: list[tuple[float, float, int]] = []

        async def run() -> None:
            # Each connection begins at a moment of its own.
            until = time.monotonic() + WARM_S + seconds
            groups = [[Agent(number) for number in range(one, agents, CONNECTIONS)] for one in range(CONNECTIONS)]
            tasks = []
            for group in groups:
                tasks.append(asyncio.create_task(send(group, service.port, until, delays)))
                await asyncio.sleep(EVERY_S / agents)
            while time.monotonic() < until:
                await asyncio.sleep(1)
                seen.append((time.monotonic(), service.cpu_s(), service.rss_bytes()))
            await asyncio.gather(*tasks)

        began = time.monotonic()
        asyncio.run(run())
    measured = [one for one in seen if one[0] - began > WARM_S]
    first, last = measured[0], measured[-1]
    share = (last[1] - first[1]) / (last[0] - first[0])
    rate = len(delays) / (time.monotonic() - began)
    first_mib, last_mib = first[2] >> 20, last[2] >> 20
    middle_ms, late_ms = (1000 * sorted(delays)[int(len(delays) * part)] for part in (0.5, 0.99))
    return [
        f"{agents:,} agents, {agents * SOURCES_PER_AGENT:,} sources, {rate:.0f} requests a second, for "
        f"{seconds:.0f} s: **{100 * share:.0f} % of one core** (wanted: under 40 %); memory "
        f"{first_mib:,} MiB at first, {last_mib:,} MiB at the end; a batch was acknowledged after {middle_ms:.0f} ms "
        f"(median), {late_ms:.0f} ms (99 %)."
    ]


def bulk_streams(events: int, run: str) -> dict[str, bytes]:
    """Streams of steps, named in the first line."""
    streams = {}
    for rank in range(BULK_STREAMS):
        source = f"{run}-{rank}"
        who = f'"run":"{run}","source":"{source}",'
        lines = [f'{{"kind":"start",{who}"seq":0,"ts_ns":{T0_NS},"v":1,"rank":{rank},"world_size":{BULK_STREAMS}}}\n']
        for number in range(1, events // BULK_STREAMS):
            start = T0_NS + number * 1_003_000_017 + rank * 10_007
            lines.append(
                f'{{"kind":"step","seq":{number},"ts_ns":{start + 900_000_001},"step":{number},"start_ns":{start},'
                f'"end_ns":{start + 900_000_001},"data_ns":{number * 7919 % 50_000_000},'
                f'"busy_ns":{number * 104_729 % 800_000_000}}}\n'
            )
        streams[source] = "".join(lines).encode()
    return streams


def send_bulk(port: int, streams: dict[str, bytes]) -> float:
    """Seconds that it takes to send all of it over a few connections."""
    names = list(streams)

    def work(mine: list[str]) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
        offsets = dict.fromkeys(mine, 0)
        each = BODY_BYTES // len(mine)
        while any(offsets[name] < len(streams[name]) for name in mine):
            chunks = [
                Chunk(
                    stream=name, offset_bytes=at, data=streams[name][at : streams[name].rfind(b"\n", at, at + each) + 1]
                )
                for name, at in offsets.items()
                if at < len(streams[name])
            ]
            connection.request("POST", "/v1/batch", encode(chunks))
            response = connection.getresponse()
            told = json.loads(response.read())
            assert response.status in (200, 503), told
            for one in told.get("streams", []):
                offsets[one["stream"]] = one["offset"]
            if response.status == 503:
                time.sleep(0.1)
        connection.close()

    shares = [share for share in (names[part::SENDERS] for part in range(SENDERS)) if share]
    threads = [threading.Thread(target=work, args=(share,)) for share in shares]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - began


def bare_s(streams: dict[str, bytes], folder: Path) -> float:
    file, db = folder / "bare.jsonl", folder / "bare.duckdb"
    file.write_bytes(b"".join(streams.values()))
    db.unlink(missing_ok=True)
    began = time.perf_counter()
    con = duckdb.connect(str(db))
    con.execute(BARE, {"file": str(file)})
    con.close()
    return time.perf_counter() - began


def bulk(events: int, folder: Path, repeats: int = 3) -> list[str]:
    bare, over_http = [], []
    with collector(folder) as service:
        for turn in range(repeats):
            streams = bulk_streams(events, f"bulk-{turn}")
            bare.append(events / bare_s(streams, folder))
            over_http.append(events / send_bulk(service.port, streams))
    ratio = statistics.median(over_http) / statistics.median(bare)
    return [
        f"Bulk, {events:,} events of {BULK_STREAMS} streams over HTTP: {statistics.median(over_http):,.0f} events/s, "
        f"beside {statistics.median(bare):,.0f} of a bare `read_json` of the same bytes: **{ratio:.2f}** (wanted: at "
        f"least 0.25; medians of {repeats} in turn)."
    ]


def ask(port: int, run: str) -> float:
    """Seconds that the report of a run takes; 0 where there is none yet."""
    at = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("GET", f"/v1/runs/{run}/report")
    response = connection.getresponse()
    response.read()
    connection.close()
    assert response.status in (200, 404)
    return time.monotonic() - at if response.status == 200 else 0.0


def ask_on(port: int, run: str, stop: threading.Event, took: list[float]) -> None:
    """Asks each second, or as fast as the answers come."""
    while not stop.is_set():
        took.append(ask(port, run))
        stop.wait(max(0.0, 1 - took[-1]))


def readers(events: int, folder: Path) -> list[str]:
    with collector(folder) as service:
        alone = events / send_bulk(service.port, bulk_streams(events, "alone"))
        idle: list[float] = []
        for turn in range(5):
            # One more event each time, or the answer would be the one that was kept.
            more = f'{{"kind":"progress","run":"alone","source":"more","seq":{turn},"ts_ns":{T0_NS}}}\n'.encode()
            time.sleep(max(idle, default=0.0) + 0.1)
            send_bulk(service.port, {f"more-{turn}": more})
            idle.append(ask(service.port, "alone"))
        stop, busy = threading.Event(), list[float]()
        thread = threading.Thread(target=ask_on, args=(service.port, "watched", stop, busy))
        thread.start()
        watched = events / send_bulk(service.port, bulk_streams(events, "watched"))
        stop.set()
        thread.join()
    idle_s, busy_s = statistics.median(idle), max(busy)
    return [
        f"One reader asking every second for the report of the run that is loaded ({events:,} rank-steps, {len(busy)} "
        f"answers): ingest keeps **{watched / alone:.2f}** of its rate (wanted: at least 0.5); the slowest answer took "
        f"{busy_s:.2f} s, {idle_s:.2f} s when idle: **{busy_s / idle_s:.1f} times** (wanted: at most 3)."
    ]


def write(lines: list[str]) -> None:
    """Puts the result under its heading in docs/PERFORMANCE.md."""
    about = (
        f"`benchmarks/collector.py`, {os.cpu_count()} cores shared with the senders; load during the runs "
        f"{os.getloadavg()[0]:.1f}."
    )
    put_section("\n".join([HEADING, "", about, "", *(f"- {line}" for line in lines), ""]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; all of them")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--agents", type=int, default=2048)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    lines: list[str] = []
    for part in dict.fromkeys(options.parts or PARTS):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            if part == "load":
                lines += load(options.agents, options.seconds, folder)
            elif part == "bulk":
                lines += bulk(options.events, folder)
            else:
                lines += readers(options.events, folder)
        print(lines[-1], flush=True)
    if options.write:
        write(lines)


if __name__ == "__main__":
    main()
