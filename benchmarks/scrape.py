"""What a scrape of /metrics costs with two hundred runs at work, while the collector takes events.

    python benchmarks/scrape.py [--runs N] [--seconds N] [--write]

Each run has 4 ranks (one of them 512), 300 steps behind it, saves, a restart and a slow rank, and goes on: every 5 s it
tells five steps and a heartbeat of each rank. Scrapes come over HTTP, five a second, asked from a process that does
nothing else: first beside that stream, then beside a bulk load as fast as it is taken.
Wanted: every scrape under 50 ms; at most 150 series a run, whatever its ranks. `--write` puts the result into
docs/PERFORMANCE.md.
"""

from __future__ import annotations

import argparse
import collections
import http.client
import itertools
import json
import multiprocessing
import os
import re
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path

from document import DOC, put_section

from collector import bulk_streams, collector, send_bulk
from goodput_collector.chunks import Chunk, encode

HEADING = "## Scrapes"
S = 1_000_000_000
RANKS, WIDE_RANKS = 4, 512
PAST_STEPS = 300
BATCH_S = 5
PART_STEPS = 20
WANTED_S = 0.05
EVERY_S = 0.2
LOADERS, SENDERS = 20, 50
BULK_EVENTS = 1_000_000


@dataclass
class Run:
    """A run that saves every 50 steps, was restarted in its middle, and whose rank 1 is slow; a step is a second."""

    number: int
    ranks: int
    began_ns: int
    step: int = 0
    seqs: collections.Counter[str] = field(default_factory=collections.Counter)
    offsets: collections.Counter[str] = field(default_factory=collections.Counter)

    def chunks(self, steps: int, life: int, first: bool) -> list[Chunk]:
        """The next steps of all ranks, and a heartbeat."""
        begin = self.step + 1
        self.step += steps
        return [self._rank(rank, begin, life, first) for rank in range(self.ranks)]

    def _rank(self, rank: int, begin: int, life: int, first: bool) -> Chunk:
        source = f"run{self.number}-{life}-{rank}"
        lines = []

        def tell(kind: str, at_ns: int, **fields: object) -> None:
            head = {
                "kind": kind,
                "run": f"run-{self.number}",
                "source": source,
                "seq": self.seqs[source],
                "ts_ns": at_ns,
            }
            self.seqs[source] += 1
            lines.append(json.dumps(head | fields))

        at_ns = self.began_ns + begin * S
        if first:
            place = {
                "rank": rank,
                "local_rank": rank % 8,
                "world_size": self.ranks,
                "node": f"n{rank // 8}",
                "devices": 1,
            }
            life_of = {"job": f"slurm:{self.number}.0", "restart_count": life, "attempt_token": f"{self.number}-{life}"}
            tell("start", at_ns - S, v=1, pid=1, process_start_ns=at_ns - S, labels={"team": "a"}, **place, **life_of)
            tell("resume", at_ns - S, step=begin - 1 or None)
        for step in range(begin, self.step + 1):
            start_ns = self.began_ns + step * S
            end_ns = start_ns + 900_000_000 + rank
            own_ns = 850_000_000 if rank == 1 else 600_000_000 + rank * 1_000 % 10_000_000
            tell("step", end_ns, step=step, start_ns=start_ns, end_ns=end_ns, data_ns=20_000_000, busy_ns=own_ns)
            if step % 50 == 0:
                tell("begin", end_ns + 1_000, span="checkpoint", id=step, step=step)
                tell("end", end_ns + 60_000_000, span="checkpoint", id=step, step=step)
        now_ns = max(at_ns + (self.step - begin + 1) * S, 0 if first else time.time_ns())
        tell("heartbeat", now_ns, step=self.step, phase="step", phase_since_ns=at_ns)
        if life == 0 and self.step >= PAST_STEPS // 2:
            tell("stop", at_ns + (self.step - begin + 1) * S, reason="exception", detail="RuntimeError")
        data = "\n".join(lines).encode() + b"\n"
        chunk = Chunk(stream=source, offset_bytes=self.offsets[source], data=data)
        self.offsets[source] += len(data)
        return chunk


def post(connection: http.client.HTTPConnection, chunks: list[Chunk]) -> None:
    while True:
        connection.request("POST", "/v1/batch", encode(chunks))
        response = connection.getresponse()
        told = json.loads(response.read())
        if response.status == 200 and all(one["status"] == 200 for one in told["streams"]):
            return
        assert response.status == 503, told
        time.sleep(0.1)


def past(port: int, runs: list[Run]) -> None:
    """All that lies behind the runs."""

    def send(mine: list[Run]) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
        for run in mine:
            for life in range(2):
                post(connection, run.chunks(PAST_STEPS // 2, life, first=True))
        connection.close()

    with ThreadPoolExecutor(LOADERS) as pool:
        for done in [pool.submit(send, runs[part::LOADERS]) for part in range(LOADERS)]:
            done.result()


def stream(port: int, runs: list[Run], hung: Synchronized[int], since_ns: Synchronized[int]) -> None:
    """What the runs tell as they go on, until this process is ended. The run `hung` tells heartbeats alone, since its
    last step, which ended at `since_ns`."""

    def send(mine: list[Run]) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
        begun = time.monotonic()
        for turn in itertools.count():
            time.sleep(max(0.0, begun + turn * BATCH_S / len(mine) - time.monotonic()))
            run = mine[turn % len(mine)]
            steps = (time.time_ns() - run.began_ns) // S - run.step - 1
            if run.number == hung.value:
                since_ns.value = run.began_ns + (run.step + 1) * S
                steps = 0
            while True:  # what could not be told in time comes in parts, as an agent sends it
                post(connection, run.chunks(min(steps, PART_STEPS), 1, first=False))
                steps -= PART_STEPS
                if steps <= 0:
                    break

    for part in range(min(SENDERS, len(runs))):
        threading.Thread(target=send, args=(runs[part::SENDERS],), daemon=True).start()
        time.sleep(BATCH_S / SENDERS)
    threading.Event().wait()


def bulk(port: int) -> None:
    send_bulk(port, bulk_streams(BULK_EVENTS, "bulk"))


@dataclass
class Asked:
    """What requests over one connection took, in seconds, in turn: scrapes, and the question whether it is well."""

    scrape_s: list[float] = field(default_factory=list)
    health_s: list[float] = field(default_factory=list)
    body: bytes = b""


def scrapes(port: int, seconds: float, alive: Callable[[], bool] = lambda: True) -> Asked:
    """Asks as Prometheus does, in between for next to nothing: what the machine and the other requests cost."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    asked = Asked()
    begun = time.monotonic()

    def ask(path: str, took: list[float]) -> bytes:
        at = time.perf_counter()
        connection.request("GET", path, headers={"Accept": "application/openmetrics-text; version=1.0.0"})
        response = connection.getresponse()
        body = response.read()
        took.append(time.perf_counter() - at)
        assert response.status == 200
        time.sleep(EVERY_S / 2)
        return body

    while time.monotonic() < begun + seconds and alive():
        asked.body = ask("/metrics", asked.scrape_s)
        ask("/healthz", asked.health_s)
    connection.close()
    return asked


def until_state(port: int, run: str, state: str) -> None:
    """Waits until /metrics says that a run is in a state."""
    wanted = f'goodput_run_state{{run="{run}",state="{state}"}} 1\n'.encode()
    deadline = time.monotonic() + 600
    while wanted not in scrapes(port, EVERY_S).body:
        assert time.monotonic() < deadline, f"{run} is never {state}"


def series(body: bytes) -> dict[str, int]:
    """How many series each run has."""
    return dict(collections.Counter(re.findall(r'[{,]run="([^"]*)"', body.decode())))


def value(body: bytes, name: str) -> float:
    found = re.search(rf"^{name} (\S+)$", body.decode(), re.MULTILINE)
    assert found, name
    return float(found[1])


def row(what: str, asked: Asked) -> str:
    figures = [f"{what}", f"{len(asked.scrape_s)}"]
    both = (asked.scrape_s, asked.health_s)
    for took in both:
        late_s = sorted(took)[int(len(took) * 0.99)]
        figures += [f"{1000 * one:.1f}" for one in (statistics.median(took), late_s, max(took))]
    figures.append(" / ".join(str(sum(one > WANTED_S for one in took)) for took in both))
    ages = ("goodput_collector_refresh_seconds", "goodput_collector_oldest_figures_seconds")
    figures += [f"{value(asked.body, name):.0f}" for name in ages]
    line = f"| {' | '.join(figures)} |"
    print(line, flush=True)
    return line


def measure(count: int, seconds: float) -> list[str]:
    with tempfile.TemporaryDirectory() as folder, collector(Path(folder)) as service:
        began_ns = time.time_ns() - (PAST_STEPS + 10) * S
        runs = [Run(number, WIDE_RANKS if number == 0 else RANKS, began_ns) for number in range(count)]
        past(service.port, runs)
        hung, since_ns = multiprocessing.Value("q", -1), multiprocessing.Value("q", 0)
        told = multiprocessing.Process(target=stream, args=(service.port, runs, hung, since_ns), daemon=True)
        told.start()
        deadline = time.monotonic() + 1200
        body = b""
        while len(series(body)) < count:
            assert time.monotonic() < deadline, f"{len(series(body))} runs of {count} are told of"
            body = scrapes(service.port, 1).body
        rows = [row("each run tells its steps", scrapes(service.port, seconds))]
        hangs_s = []
        for number in (count // 3, 2 * count // 3, count - 1):
            until_state(service.port, f"run-{number}", "running")
            since_ns.value, hung.value = 0, number
            while not since_ns.value:
                time.sleep(EVERY_S)
            until_state(service.port, f"run-{number}", "hung")
            hangs_s.append((time.time_ns() - since_ns.value) / S)
        hung.value = -1
        load = multiprocessing.Process(target=bulk, args=(service.port,), daemon=True)
        load.start()
        asked = scrapes(service.port, 600, load.is_alive)
        rows.append(row(f"and {BULK_EVENTS:,} events are loaded", asked))
        told.terminate()
        told.join()
        load.join()
    body, found = asked.body, series(asked.body)
    return [
        f"{count} runs at work, {len(body) / 2**20:.1f} MiB of OpenMetrics a scrape, five scrapes a second over HTTP. "
        f"Series a run: {max(found.values())} at most; {found['run-0']} of the run of {WIDE_RANKS} ranks, "
        f"{found['run-1']} of one of {RANKS} ranks (wanted: at most 150).",
        "",
        "| meanwhile | scrapes | median, ms | 99 % | maximum | `/healthz`: median, ms | 99 % | maximum | over 50 ms "
        "(each) | a round over all runs, s | oldest figures, s |",
        "|:---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
        *rows,
        "",
        "Wanted: every scrape under 50 ms. `/healthz` is asked in turn and does nothing: what the machine alone costs.",
        "",
        f"One stands still: /metrics says so {', '.join(f'{one:.0f}' for one in hangs_s)} s after its last step "
        "(three runs, one after another; the limit is 10 s). It does not wait for its turn in the round.",
    ]


def write(lines: list[str]) -> None:
    """Puts the result under its heading in docs/PERFORMANCE.md."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=DOC.parent
    ).stdout.strip()
    about = (
        f"`benchmarks/scrape.py`, {os.cpu_count()} cores shared with the senders, {time.strftime('%Y-%m-%d')}, after "
        f"commit {commit or 'unknown'}; load at the end {os.getloadavg()[0]:.1f}."
    )
    put_section("\n".join([HEADING, "", about, "", *lines, ""]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    lines = measure(options.runs, options.seconds)
    print("\n".join(lines))
    if options.write:
        write(lines)


if __name__ == "__main__":
    main()
