"""`goodput agent` between real training processes and a real collector."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from service_running import GOODPUT, Collector, eventually, goodput

TRAIN = """
import goodput, sys, time
rec = goodput.start(sys.argv[1])
rec.resumed(None)
step = 0
print("ready", flush=True)
while True:
    step += 1
    with rec.step(step): time.sleep(0.02)
    if rec.checkpoint_requested():
        with rec.checkpoint(step): time.sleep(0.01)
        print("saved", flush=True)
"""


@contextmanager
def agent(collector_url: str, spool: Path, *options: object) -> Iterator[subprocess.Popen[bytes]]:
    log = spool.parent / f"{spool.name}.agent.log"
    with log.open("ab") as file:
        process = subprocess.Popen(
            [*GOODPUT, "agent", "--to", collector_url, "--spool", spool, *map(str, options)], stderr=file
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            assert process.wait(10) == 0


@contextmanager
def training(spool: Path, run: str, node: str = "gpu-1") -> Iterator[subprocess.Popen[str]]:
    environment = os.environ | {
        "GOODPUT_SPOOL": str(spool),
        "GOODPUT_HEARTBEAT_S": "0.5",
        "GOODPUT_SUMMARY": "0",
        "SLURMD_NODENAME": node,
    }
    process = subprocess.Popen([sys.executable, "-c", TRAIN, run], stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def report(collector: Collector, run: str) -> dict[str, Any] | None:
    status, body, _ = collector.ask(f"/v1/runs/{run}/report")
    return json.loads(body) if status == 200 else None


def test_a_node_is_shipped_asked_for_a_checkpoint_and_its_death_is_seen_within_two_seconds(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    with Collector(tmp_path, "--no-spool") as collector, agent(collector.url, spool):
        with training(spool, "shipped") as trainer:
            eventually(lambda: (report(collector, "shipped") or {"attempts": []})["attempts"])
            status, asked = collector.post("/v1/runs/shipped/request-checkpoint", b"")
            assert status == 202 and asked["run"] == "shipped"
            assert trainer.stdout is not None and trainer.stdout.readline() == "saved\n"
            told = eventually(lambda: (r := report(collector, "shipped")) and r["checkpoints"]["count"] == 1 and r)
            assert told["state"] == "running" and told["incidents"] == []
            trainer.kill()
            killed = time.monotonic()
            killed_ns = time.time_ns()
            told = eventually(lambda: (r := report(collector, "shipped")) and r["state"] == "failed" and r, every=0.02)
            seen_s = time.monotonic() - killed
            (incident,) = told["incidents"]
            assert 0 <= incident["abort_ns"] - killed_ns < 2e9
            assert incident["cause"] == "crash"
            assert seen_s < 4  # the report is at most a second old, and this machine may be busy
        eventually(lambda: not list(spool.glob("*.jsonl")), 25)


def test_two_nodes_with_equal_names_do_not_mix(tmp_path: Path) -> None:
    with Collector(tmp_path, "--no-spool") as collector:
        spools = [tmp_path / "node-a", tmp_path / "node-b"]
        with (
            agent(collector.url, spools[0]),
            agent(collector.url, spools[1]),
            training(spools[0], "a", "node0"),
            training(spools[1], "b", "node0") as other,
        ):
            eventually(lambda: report(collector, "a") and report(collector, "b"))
            other.kill()
            eventually(lambda: (r := report(collector, "b")) and r["state"] == "failed")
            told = report(collector, "a")
            assert told is not None and told["state"] == "running" and told["quality"]["gaps"] == 0


def test_an_agent_waits_for_its_collector_and_another_goes_on_where_it_ended(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    collector = Collector(tmp_path, "--no-spool")
    with collector:
        pass
    with training(spool, "waits") as trainer:
        with agent(collector.url, spool) as first:
            time.sleep(1.5)
            collector.start()
            eventually(lambda: report(collector, "waits"))
            first.kill()
            first.wait()
        collector.kill()
        with agent(collector.url, spool):
            collector.start()
            before = eventually(lambda: report(collector, "waits"))["quality"]["events"]
            told = eventually(lambda: (r := report(collector, "waits")) and r["quality"]["events"] > before + 5 and r)
            trainer.kill()
            told = eventually(lambda: (r := report(collector, "waits")) and r["state"] == "failed" and r)
    assert told["quality"]["gaps"] == 0 and told["quality"]["duplicates"] == 0
    assert told["attempts"][0]["first_step"] == 1
    log = (tmp_path / "spool.agent.log").read_text()
    assert log.count("does not answer") == 2 and log.count("takes events again") == 2
    collector.stop()


def test_an_answer_that_is_no_collectors_is_no_acknowledgement(tmp_path: Path) -> None:
    """Such as a proxy's page, with status 200."""
    spool = tmp_path / "spool"
    spool.mkdir(mode=0o700)
    file = spool / "s.000000.jsonl"
    file.write_text('{"kind":"progress","run":"r","source":"s","seq":0,"ts_ns":5}\n')
    os.utime(file, (0, 0))
    listener = socket.create_server(("127.0.0.1", 0))
    asked: list[bytes] = []

    def answer() -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            with sock:
                asked.append(sock.recv(65536))
                sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\n<ok>")

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    with agent(f"http://127.0.0.1:{listener.getsockname()[1]}", spool):
        eventually(lambda: len(asked) >= 2)
    listener.close()
    assert file.exists()
    assert b"POST /v1/batch" in asked[0]


def test_bad_usage_is_told_in_one_line(tmp_path: Path) -> None:
    done = goodput("agent", "--to", "collector:9470", "--spool", tmp_path / "s")
    assert done.returncode == 2 and "http://collector:9470" in done.stderr
    (tmp_path / "link").symlink_to(tmp_path)
    done = goodput("agent", "--to", "http://127.0.0.1:1", "--spool", tmp_path / "link")
    assert done.returncode == 1 and "link" in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to give up")
def test_as_root_it_has_no_more_rights_than_the_spools_owner() -> None:
    # A folder that an unprivileged user can reach, which pytest's own is not.
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        spool = Path(folder) / "spool"
        spool.mkdir(mode=0o700)
        os.chown(spool, 12345, 12345)
        with agent("http://127.0.0.1:1", spool) as process:
            log = Path(folder) / "spool.agent.log"
            eventually(lambda: "shipping" in log.read_text())
            ids = dict(line.split(":", 1) for line in Path(f"/proc/{process.pid}/status").read_text().splitlines())
            assert ids["Uid"].split() == ["12345"] * 4
            assert ids["Gid"].split() == ["12345"] * 4
            assert ids["Groups"].split() == []
            assert int(ids["CapEff"], 16) == 0


NAMESPACED = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]


needs_unshare = pytest.mark.skipif(
    subprocess.run([*NAMESPACED, "true"], capture_output=True).returncode != 0, reason="needs the right to unshare"
)


def watch_from_a_namespace(tmp_path: Path, quiet_s: float) -> None:
    """An agent that sees no process of the ranks beside it: nobody is taken for dead, until one is."""
    spool = tmp_path / "spool"
    with (
        Collector(tmp_path, "--no-spool") as collector,
        training(spool, "beside") as one,
        training(spool, "beside-2"),
    ):
        process = subprocess.Popen(
            [*NAMESPACED, *GOODPUT, "agent", "--to", collector.url, "--spool", spool], stderr=subprocess.DEVNULL
        )
        try:
            eventually(lambda: report(collector, "beside") and report(collector, "beside-2"))
            until = time.monotonic() + quiet_s
            while time.monotonic() < until:
                time.sleep(min(3.0, quiet_s))
                assert not list(spool.glob("*.exit.*"))
                for run in ("beside", "beside-2"):
                    assert (report(collector, run) or {})["state"] == "running"
            one.kill()
            killed_ns = time.time_ns()
            told = eventually(lambda: (r := report(collector, "beside")) and r["state"] == "failed" and r)
            seen_s = (time.time_ns() - killed_ns) / 1e9
            abort_s = (told["incidents"][0]["abort_ns"] - killed_ns) / 1e9
            print(
                f"quiet for {quiet_s:.0f} s; dated {abort_s:.2f} s after the kill, in the report after {seen_s:.2f} s"
            )
            assert 0 <= abort_s < 2
            assert (report(collector, "beside-2") or {})["state"] == "running"
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()


@needs_unshare
def test_in_a_pid_namespace_of_its_own_it_takes_nobody_for_dead(tmp_path: Path) -> None:
    watch_from_a_namespace(tmp_path, quiet_s=3)


@needs_unshare
@pytest.mark.soak
def test_in_a_pid_namespace_of_its_own_it_takes_nobody_for_dead_for_ten_minutes(tmp_path: Path) -> None:
    """Ten minutes, nearly all of them waiting. Were it to fail, agents in containers would tell of deaths that nobody
    died, and every figure after them would be wrong."""
    watch_from_a_namespace(tmp_path, quiet_s=600)
