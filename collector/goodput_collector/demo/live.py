"""A collector beside the training, and what it says while the training runs."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path

from goodput_analytics import AnalyticsError, Report, RunState
from goodput_collector.client import HttpClient
from goodput_collector.demo.launcher import RUN_NAME, die_with_parent
from goodput_collector.errors import GoodputCollectorError
from goodput_collector.figures import percent

ASK_EVERY_S = 2.0
TELL_EVERY_S = 10.0
_MOST_LOSSES = 3
_ENDS_WITHIN_S = 5.0
_SAYS_WHERE = "collecting on "


class LiveCollector:
    """`goodput collect` on the demonstration's spool, asked for the report now and then by a thread.

    It works at the lowest priority, and no trouble of its own ends the demonstration. Use it in a `with`.
    """

    def __init__(self, home: Path) -> None:
        self._log_path = home / "collector.log"
        self._said: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._stop = threading.Event()
        command = [sys.executable, "-m", "goodput.cli", "collect", "--keep-spool", "--listen", "127.0.0.1:0"]
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--spool", str(home / "spool"), "--db", str(home / "live.duckdb")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_humbly,
            )
        self._thread = threading.Thread(target=self._ask, name="goodput-demo-live", daemon=True)

    def __enter__(self) -> LiveCollector:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._process.terminate()
        try:
            self._process.wait(_ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def news(self) -> list[str]:
        """What it has said since it was asked last."""
        found: list[str] = []
        while not self._said.empty():
            found.append(self._said.get())
        return found

    def _ask(self) -> None:
        client: HttpClient | None = None
        teller = Teller()
        while not self._stop.wait(ASK_EVERY_S):
            try:
                client = client or HttpClient(self._url(), timeout_s=10)
                for sentence in teller.tell(client.report(RUN_NAME), time.monotonic()):
                    self._said.put(sentence)
            except (GoodputCollectorError, AnalyticsError, OSError, ValueError):
                continue  # it has not begun, knows nothing of the run yet, or has too much to do

    def _url(self) -> str:
        return self._log_path.read_text(errors="replace").partition(_SAYS_WHERE)[2].split(" ")[0]


class Teller:
    """What is worth saying of reports that come one after another."""

    def __init__(self) -> None:
        self._told_s: float | None = None
        self._state: RunState | None = None
        self._incidents = 0

    def tell(self, report: Report, now_s: float) -> list[str]:
        """Sentences: a hang while it hangs, an end when it is seen, and the breakdown every ten seconds."""
        said: list[str] = []
        if report.state is RunState.HUNG and self._state is not RunState.HUNG:
            still = [finding for finding in report.findings if finding.code == "hang"]
            said.append(f"announces a hang: {still[0].evidence}" if still else "announces a hang")
        if len(report.incidents) > self._incidents:
            last = report.incidents[-1]
            said.append(f"saw attempt {last.attempt} end: {last.cause}")
        if said or self._told_s is None or now_s - self._told_s >= TELL_EVERY_S:
            self._told_s = now_s
            said.append(_breakdown(report))
        self._state, self._incidents = report.state, len(report.incidents)
        return said


def _breakdown(report: Report) -> str:
    losses = sorted(((gpu_s, name) for name, gpu_s in report.gpu_s.items() if name != "productive"), reverse=True)
    whole = report.allocated_gpu_s or 1.0
    named = [f"{name} {percent(gpu_s / whole)}" for gpu_s, name in losses[:_MOST_LOSSES] if gpu_s > 0]
    rest = f"; {', '.join(named)}" if named else ""
    return f"sees goodput {percent(report.goodput_ratio)} of {report.allocated_gpu_s:.0f} GPU-seconds{rest}"


def _humbly() -> None:
    die_with_parent()
    os.nice(19)
