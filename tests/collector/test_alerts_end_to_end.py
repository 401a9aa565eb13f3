"""Real Prometheus, real Alertmanager, our collector: of a hang somebody is told while it lasts, and when it is over.

In a short form, with made events and the same rules with seconds for minutes; and in a long one, with a real training
that is really stopped, and all that deploy/ ships as it is.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from landing_cases import line
from service_running import Collector, eventually

import goodput_collector
from goodput_collector.demo.launcher import process_rank, process_state, signal_process

PROMETHEUS = Path(__file__).parents[2] / "deploy" / "prometheus"
S = 1_000_000_000
TRAIN = Path(goodput_collector.__file__).parent / "demo" / "train.py"
NEEDED = ("prometheus", "prometheus-alertmanager")

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(
        any(shutil.which(name) is None for name in NEEDED),
        reason=f"{' or '.join(NEEDED)} is missing: apt-get install prometheus prometheus-alertmanager",
    ),
]


class Run:
    """Two ranks that step every half second and tell it, until they are told to stand still."""

    def __init__(self, collector: Collector, name: str) -> None:
        self._collector, self.name = collector, name
        self._seq = [0, 0]
        self._offsets = [0, 0]
        self._began_ns = self._at_ns = time.time_ns() - 30 * S
        self._step = 0
        self.still = False
        for rank in range(2):
            self._tell(rank, "start", self._began_ns, v=1, job=f"k8s:ns/{name}/1", restart_count=0, rank=rank,
                       local_rank=rank, world_size=2, node="n", pid=1, devices=4, process_start_ns=self._began_ns,
                       attempt_token=name)  # fmt: skip
            self._tell(rank, "resume", self._began_ns, step=None)

    def go_on(self) -> None:
        """Tells all that has happened up to now."""
        now_ns = time.time_ns()
        lines: list[list[bytes]] = [[], []]
        while not self.still and self._at_ns + S // 2 <= now_ns:
            self._step += 1
            end_ns = self._at_ns + S // 2
            for rank in range(2):
                lines[rank].append(
                    self._line(rank, "step", end_ns, step=self._step, start_ns=self._at_ns, end_ns=end_ns)
                )
            self._at_ns = end_ns
        for rank in range(2):
            lines[rank].append(
                self._line(rank, "heartbeat", now_ns, step=self._step, phase="step", phase_since_ns=self._at_ns)
            )
            self._send(rank, b"".join(lines[rank]))

    def recover(self) -> None:
        """The step that stood still ends now, and the next ones come as before."""
        self.still = False
        start_ns, self._at_ns = self._at_ns, time.time_ns()
        self._step += 1
        for rank in range(2):
            self._tell(rank, "step", self._at_ns, step=self._step, start_ns=start_ns, end_ns=self._at_ns)

    def _line(self, rank: int, kind: str, ts_ns: int, /, **fields: Any) -> bytes:
        head = {"kind": kind, "run": self.name, "source": f"{self.name}-{rank}", "seq": self._seq[rank], "ts_ns": ts_ns}
        self._seq[rank] += 1
        return line(head | fields) + b"\n"

    def _tell(self, rank: int, kind: str, ts_ns: int, /, **fields: Any) -> None:
        self._send(rank, self._line(rank, kind, ts_ns, **fields))

    def _send(self, rank: int, data: bytes) -> None:
        path = f"/v1/streams/{self.name}-{rank}?offset={self._offsets[rank]}"
        status, answer = self._collector.post(path, data)
        assert status == 200
        self._offsets[rank] = answer["offset"]


@pytest.fixture
def webhook() -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """A receiver, and what it was told."""
    told: list[dict[str, Any]] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_address[1], told
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts programs, and ends them."""
    running: list[subprocess.Popen[bytes]] = []

    def begin(*command: object, name: str = "", **options: Any) -> subprocess.Popen[bytes]:
        with (tmp_path / f"{name or Path(str(command[0])).name}.log").open("wb") as log:
            words = [str(word) for word in command]
            running.append(subprocess.Popen(words, stdout=log, stderr=log, cwd=tmp_path, **options))
        return running[-1]

    yield begin
    for process in running:
        process.terminate()
    for process in running:
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


class Watchers:
    """Prometheus and Alertmanager as deploy/ configures them, at addresses of their own."""

    def __init__(
        self, folder: Path, start: Callable[..., Any], collector: Collector, hook_port: int,
        changed: Callable[[str], str] = lambda text: text,
    ) -> None:  # fmt: skip
        self.port, alerts_port = free_port(), free_port()
        addresses = {"localhost:9095": hook_port, "localhost:9470": collector.port, "localhost:9093": alerts_port}
        for name in ("goodput.rules.yml", "prometheus.yml", "alertmanager.yml"):
            text = changed((PROMETHEUS / name).read_text())
            for before, port in addresses.items():
                text = text.replace(before, f"127.0.0.1:{port}")
            (folder / name).write_text(text)
        start("prometheus-alertmanager", "--config.file=alertmanager.yml", "--storage.path=am",
              "--cluster.listen-address=", f"--web.listen-address=127.0.0.1:{alerts_port}")  # fmt: skip
        start("prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=tsdb",
              f"--web.listen-address=127.0.0.1:{self.port}")  # fmt: skip

    def asked(self, query: str) -> list[dict[str, Any]]:
        """What Prometheus answers to a query."""
        address = f"http://127.0.0.1:{self.port}/api/v1/query?query={quote(query)}"
        with urllib.request.urlopen(address, timeout=5) as got:
            found: list[dict[str, Any]] = json.load(got)["data"]["result"]
            return found


def alerts(told: list[dict[str, Any]], status: str) -> list[dict[str, Any]]:
    """The alerts of that status that a receiver was told of."""
    return [one for message in told for one in message["alerts"] if one["status"] == status]


def shortened(text: str) -> str:
    """Rules looked at every second, of which those for two minutes wait two seconds; the others keep theirs, so
    that a busy machine is not taken for a collector that is down."""
    for long, short in {
        "interval: 30s": "interval: 1s", "for: 2m": "for: 2s", "_interval: 15s": "_interval: 1s",
        "group_wait: 30s": "group_wait: 1s", "group_interval: 5m": "group_interval: 1s",
    }.items():  # fmt: skip
        text = text.replace(long, short)
    return text


@pytest.mark.timeout(110)
def test_a_hang_is_told_while_it_hangs_and_its_end_when_it_ends(
    tmp_path: Path, webhook: tuple[int, list[dict[str, Any]]], start: Callable[..., Any]
) -> None:
    hook_port, told = webhook
    with Collector(tmp_path, "--no-spool") as collector:
        bad, clean = Run(collector, "bad"), Run(collector, "clean")
        asked = Watchers(tmp_path, start, collector, hook_port, shortened).asked

        def alive(condition: Callable[[], Any]) -> Any:
            def look() -> Any:
                bad.go_on()
                clean.go_on()
                try:
                    return condition()
                except OSError:
                    return None

            return eventually(look, seconds=60, every=0.3)

        # Prometheus reads what we say: as OpenMetrics, its own choice.
        (steps,) = alive(lambda: asked('goodput_steps_total{run="clean"} > 30'))
        assert float(steps["value"][1]) == int(steps["value"][1]) and steps["metric"]["job"] == "goodput"
        assert len(alive(lambda: asked('run_window:goodput:ratio{window="5m"}'))) == 2
        bad.still = True

        first = alive(lambda: alerts(told, "firing"))[0]
        assert first["labels"]["alertname"] == "GoodputRunHung" and first["labels"]["run"] == "bad"
        assert first["labels"]["severity"] == "critical"
        assert first["annotations"]["lost"] == "8.0 GPU-hours per hour"
        assert collector.get("/v1/runs/bad/report")["state"] == "hung"
        bad.recover()
        over = alive(lambda: alerts(told, "resolved"))[0]
        assert over["labels"]["alertname"] == "GoodputRunHung"
        assert collector.get("/v1/runs/bad/report")["state"] == "running"
        assert not [one for one in alerts(told, "firing") if one["labels"].get("run") == "clean"]
        assert not asked('ALERTS{run="clean",alertstate="firing"}')
        assert {message["receiver"] for message in told} == {"on-call"}


@pytest.mark.timeout(1800)
def test_a_stopped_rank_of_a_real_training_wakes_somebody_while_it_hangs(
    tmp_path: Path, webhook: tuple[int, list[dict[str, Any]]], start: Callable[..., Any]
) -> None:
    """Twelve minutes on two cores: real trainings under torchrun, a rank of one stopped by SIGSTOP, and the rules, the
    scrape and the routes as they are shipped. If it fails, a hang wakes nobody, or something else does. Prints how long
    it took from the stop to the page."""
    hook_port, told = webhook
    spool = tmp_path / "spool"
    spool.mkdir(mode=0o700)
    pages_s: list[float] = []
    environment = os.environ | {"GOODPUT_SPOOL": str(spool), "OMP_NUM_THREADS": "1", "GOODPUT_SUMMARY": "0"}

    def training(name: str, ranks: int, steps: int) -> subprocess.Popen[bytes]:
        # Its collectives wait for longer than all of this takes: nothing but the alert tells of the hang.
        found: subprocess.Popen[bytes] = start(
            sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", ranks,
            TRAIN, "--name", name, "--dir", tmp_path / name, "--steps", steps, "--save-every", 100,
            "--pace-s", 0.4, "--timeout-s", 3600, name=name, env=environment,
        )  # fmt: skip
        return found

    with Collector(tmp_path, "--spool", spool) as collector:
        watchers = Watchers(tmp_path, start, collector, hook_port)
        bad = training("bad", 2, 10**6)
        clean = training("clean", 1, 500)
        workers: list[int] = []
        try:

            def waited(condition: Callable[[], Any], seconds: float) -> Any:
                def look() -> Any:
                    try:
                        return condition()
                    except OSError:
                        return None

                return eventually(look, seconds=seconds, every=0.5)

            for name in ("bad", "clean"):
                waited(lambda name=name: watchers.asked(f'goodput_steps_total{{run="{name}"}} > 60'), 180)
            workers = children(bad.pid)
            (rank,) = [pid for pid in workers if process_rank(pid) == 1]
            assert not told, "something fired in a healthy run"
            os.kill(rank, signal.SIGSTOP)
            stopped_s = time.time()
            first = waited(lambda: alerts(told, "firing"), 600)[0]
            pages_s.append(time.time() - stopped_s)
            assert (first["labels"]["alertname"], first["labels"]["run"]) == ("GoodputRunHung", "bad")
            assert first["annotations"]["lost"] == "2.0 GPU-hours per hour"
            assert process_state(rank) == "T" and bad.poll() is None, "the job did not hang any more"
            report = collector.get("/v1/runs/bad/report")
            assert report["state"] == "hung" and len(report["attempts"]) == 1
            os.kill(rank, signal.SIGCONT)
            went_on_s = time.time()
            over = waited(lambda: alerts(told, "resolved"), 900)[0]
            pages_s.append(time.time() - went_on_s)
            assert over["labels"] == first["labels"]
            assert collector.get("/v1/runs/bad/report")["state"] == "running"
            assert {one["labels"]["alertname"] for one in alerts(told, "firing")} == {"GoodputRunHung"}
            # The other one went on, ended as planned, and nobody heard of it.
            assert clean.wait(300) == 0
            waited(lambda: watchers.asked('goodput_run_state{run="clean",state="finished"} == 1'), 120)
            fired = watchers.asked('max_over_time(ALERTS{alertname=~"Goodput.*",alertstate="firing"}[1h])')
            assert {(one["metric"]["alertname"], one["metric"]["run"]) for one in fired} == {("GoodputRunHung", "bad")}
            assert {message["receiver"] for message in told} == {"on-call"}
        finally:
            for pid in workers:
                signal_process(pid, signal.SIGKILL)
    told_s, over_s = pages_s
    print(f"from SIGSTOP to the page {told_s:.0f} s; from SIGCONT to the message that it is over {over_s:.0f} s")
    assert told_s < 300


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    return [int(word) for file in Path(f"/proc/{pid}/task").glob("*/children") for word in file.read_text().split()]
