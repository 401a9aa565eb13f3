"""A collector as a process of its own, and questions to it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

GOODPUT = [sys.executable, "-m", "goodput.cli"]


def goodput(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """One command, run to its end."""
    return subprocess.run([*GOODPUT, *map(str, arguments)], capture_output=True, text=True, timeout=60, **options)


class Collector:
    """`goodput collect` on a folder; it can be killed and started again at the same port."""

    def __init__(
        self, folder: Path, *options: object, port: int = 0, environment: Mapping[str, str] | None = None
    ) -> None:
        self.folder = folder
        self.db = folder / "c.duckdb"
        self.archive = folder / "c.archive"
        self.log = folder / "collector.log"
        self._options = [str(option) for option in options]
        self._environment = dict(environment or {})
        self.port = port
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Collector:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def spawn(self) -> None:
        """Starts it without waiting."""
        at = self.log.stat().st_size if self.log.exists() else 0
        self._log_from = at
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*GOODPUT, "collect", "--db", self.db, "--listen", f"127.0.0.1:{self.port}", *self._options],
                stderr=log,
                env=os.environ | self._environment,
            )

    def start(self) -> None:
        """Starts it and waits until it answers."""
        self.spawn()
        deadline = time.monotonic() + 30
        while True:
            said = self.said()
            if "collecting on http://" in said:
                break
            assert self.process is not None and self.process.poll() is None, said
            assert time.monotonic() < deadline, said
            time.sleep(0.02)
        self.port = int(said.partition("collecting on http://")[2].split()[0].rpartition(":")[2])

    def said(self) -> str:
        """What it has written since it was started last."""
        with self.log.open("rb") as file:
            file.seek(self._log_from)
            return file.read().decode()

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> float:
        """Ends it with SIGTERM; how long that took, in seconds."""
        if self.process is None or self.process.poll() is not None:
            return 0.0
        begun = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(20) == 0, self.said()
        return time.monotonic() - begun

    def ask(
        self,
        path: str,
        method: str = "GET",
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, bytes, dict[str, str]]:
        """One request: status, body, headers."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, body, dict(headers or {}))
            response = connection.getresponse()
            return response.status, response.read(), {name.lower(): value for name, value in response.getheaders()}
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Any:
        """The JSON that a path answers with."""
        status, body, _ = self.ask(path, headers=headers)
        assert status == 200, (path, status, body)
        return json.loads(body)

    def post(self, path: str, body: bytes, **headers: str) -> tuple[int, Any]:
        """Status and JSON of a posted body."""
        status, answer, _ = self.ask(
            path, "POST", body, {name.replace("_", "-"): value for name, value in headers.items()}
        )
        return status, json.loads(answer)


def eventually(condition: Any, seconds: float = 20, every: float = 0.05) -> Any:
    """What the condition gives once it is true; fails when it does not become so in time."""
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(every)
