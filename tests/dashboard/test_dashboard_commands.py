"""`goodput dashboard` and `goodput compare`: what is wrong is said in one line, and nothing outlives the command."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

import made_runs
from goodput_dashboard.launching import VARIABLE, environment, server_command

GOODPUT = [sys.executable, "-m", "goodput.cli"]


def goodput(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [*GOODPUT, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=cwd)


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["dashboard", "--db", "none.duckdb"], 1, "there is no database at none.duckdb; load events"),
        (["dashboard", "--url", "collector:9470"], 2, "give a collector's address"),
        (["dashboard", "--url", "http://127.0.0.1:9", "--listen", "8501"], 2, "give a host and a port"),
        (["dashboard", "--url", "http://127.0.0.1:9", "--token-file", "none"], 1, "none: there is no such file"),
        (["compare", "a"], 2, "Missing argument"),
        (["compare", "a", "b", "--db", "none.duckdb"], 1, "There is no database at none.duckdb"),
        (["compare", "a", "b", "--url", "ftp://x"], 2, "give a collector's address"),
        (["compare", "a", "b", "--url", "http://127.0.0.1:9"], 1, "does not answer"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(tmp_path: Path, arguments: list[str], status: int, said: str) -> None:
    done = goodput(*arguments, cwd=tmp_path)
    assert done.returncode == status, done.stderr
    assert said in done.stderr and len(done.stderr.splitlines()) == 1


def test_compare_tells_the_better_run(tmp_path: Path) -> None:
    db = made_runs.database(tmp_path, made_runs.stormy(), made_runs.partial())
    done = goodput("compare", "stormy", "partial", "--db", db)
    assert done.returncode == 0 and done.stdout.startswith("partial is better than stormy by ")
    told = json.loads(goodput("compare", "partial", "stormy", "--db", db, "--json").stdout)
    assert (told["schema"], told["verdict"], told["before"]) == (1, "worse", "partial")
    assert told["goodput_by_ratio"] < 0 and told["changes"]
    done = goodput("compare", "stormy", "nobody", "--db", db)
    assert done.returncode == 1 and "nobody" in done.stderr and "stormy" in done.stderr


def test_the_server_neither_reports_usage_nor_watches_files() -> None:
    command = server_command("127.0.0.1", 8501, "/goodput/")
    assert "--client.showErrorLinks=false" in command  # they would lead elsewhere
    assert {"--browser.gatherUsageStats=false", "--server.fileWatcherType=none", "--server.baseUrlPath=goodput"} < set(
        command
    )
    assert json.loads(environment("x.duckdb", None)[VARIABLE]) == {"where": "x.duckdb", "token_file": None}


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.soak)])
def test_the_server_ends_with_the_command(tmp_path: Path, number: signal.Signals) -> None:
    db = made_runs.database(tmp_path, made_runs.partial())
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    command = [*GOODPUT, "dashboard", "--db", str(db), "--listen", f"127.0.0.1:{port}", "--base-path", "/goodput"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while True:
        try:
            answer = urllib.request.urlopen(f"http://127.0.0.1:{port}/goodput/_stcore/health", timeout=5).read()
            break
        except OSError:
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.1)
    assert answer == b"ok"
    os.kill(process.pid, number)
    process.communicate(timeout=30)
    with pytest.raises(OSError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/goodput/_stcore/health", timeout=5)
