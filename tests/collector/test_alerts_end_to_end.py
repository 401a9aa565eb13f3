"""Real Prometheus, real Alertmanager, our collector: of a hang somebody is told while it lasts, and when it is over.

In a short form: the same rules with seconds for minutes.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
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

PROMETHEUS = Path(__file__).parents[2] / "deploy" / "prometheus"
S = 1_000_000_000
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
def start(tmp_path: Path) -> Iterator[Callable[..., None]]:
    """Starts programs, and ends them."""
    running: list[subprocess.Popen[bytes]] = []

    def begin(*command: object) -> None:
        with (tmp_path / f"{Path(str(command[0])).name}.log").open("wb") as log:
            running.append(subprocess.Popen([str(word) for word in command], stdout=log, stderr=log, cwd=tmp_path))

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


def shortened(text: str) -> str:
    """Rules looked at every second, of which those for two minutes wait two seconds; the others keep theirs, so
    that a busy machine is not taken for a collector that is down."""
    return text.replace("interval: 30s", "interval: 1s").replace("for: 2m", "for: 2s")


@pytest.mark.timeout(110)
def test_a_hang_is_told_while_it_hangs_and_its_end_when_it_ends(
    tmp_path: Path, webhook: tuple[int, list[dict[str, Any]]], start: Callable[..., None]
) -> None:
    hook_port, told = webhook
    port, alerts_port = free_port(), free_port()
    (tmp_path / "goodput.rules.yml").write_text(shortened((PROMETHEUS / "goodput.rules.yml").read_text()))
    routes = (PROMETHEUS / "alertmanager.yml").read_text()
    routes = routes.replace("localhost:9095", f"127.0.0.1:{hook_port}")
    (tmp_path / "alertmanager.yml").write_text(
        routes.replace("group_wait: 30s", "group_wait: 1s").replace("group_interval: 5m", "group_interval: 1s")
    )
    with Collector(tmp_path, "--no-spool") as collector:
        config = (PROMETHEUS / "prometheus.yml").read_text().replace("15s", "1s")
        config = config.replace("localhost:9470", f"127.0.0.1:{collector.port}")
        (tmp_path / "prometheus.yml").write_text(config.replace("localhost:9093", f"127.0.0.1:{alerts_port}"))
        bad, clean = Run(collector, "bad"), Run(collector, "clean")
        start("prometheus-alertmanager", "--config.file=alertmanager.yml", "--storage.path=am",
              "--cluster.listen-address=", f"--web.listen-address=127.0.0.1:{alerts_port}")  # fmt: skip
        start("prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=tsdb",
              f"--web.listen-address=127.0.0.1:{port}")  # fmt: skip

        def asked(query: str) -> list[dict[str, Any]]:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query?query={quote(query)}", timeout=5) as got:
                found: list[dict[str, Any]] = json.load(got)["data"]["result"]
                return found

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

        def alerts(status: str) -> list[dict[str, Any]]:
            return [one for message in told for one in message["alerts"] if one["status"] == status]

        first = alive(lambda: alerts("firing"))[0]
        assert first["labels"]["alertname"] == "GoodputRunHung" and first["labels"]["run"] == "bad"
        assert first["labels"]["severity"] == "critical"
        assert first["annotations"]["lost"] == "8.0 GPU-hours per hour"
        assert collector.get("/v1/runs/bad/report")["state"] == "hung"
        bad.recover()
        over = alive(lambda: alerts("resolved"))[0]
        assert over["labels"]["alertname"] == "GoodputRunHung"
        assert collector.get("/v1/runs/bad/report")["state"] == "running"
        assert not [one for one in alerts("firing") if one["labels"].get("run") == "clean"]
        assert not asked('ALERTS{run="clean",alertstate="firing"}')
        assert {message["receiver"] for message in told} == {"on-call"}
