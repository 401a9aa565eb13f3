"""A job that loses a node and goes on with fewer ranks: two agents of torchrun, one of them killed with its worker."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from adapter_truth import ledger, near
from elastic_training import SAVE_EVERY
from recorder_scripts import environment
from run_commands import GOODPUT_RUN, plain_environment

SCRIPT = str(Path(__file__).with_name("elastic_training.py"))
GATHER_S = 3
"""How long the first agent waits for a second one: about as long as one of two that start together may be late."""


class Job:
    """A launch of torchrun on two "nodes" of this machine, and what its workers write down.

    Args:
        under: what stands before torchrun.
    """

    def __init__(self, how: str, folder: Path, spool: Path, steps: int, under: list[str]) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        wait = f"last_call_timeout={GATHER_S},keep_alive_interval=1,keep_alive_max_attempt=4,is_host="
        # The store of the shared rendezvous keeps a dead attempt's addresses, and every restart would fail.
        more = {"OMP_NUM_THREADS": "1", "GOODPUT_RUN": "elastic", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
        self._environment = {**(plain_environment if under else environment)(spool), **more}
        self._command = [*under, sys.executable, "-m", "torch.distributed.run", "--nnodes", "1:2"]
        self._command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "elastic"]
        self._command += ["--local-addr", "127.0.0.1", "--max-restarts", "3", "--monitor-interval", "0.1"]
        self._host, self._guest = ([*self._command, "--rdzv-conf", f"{wait}{host}"] for host in (1, 0))
        self._script = [SCRIPT, how, str(folder), str(steps)]
        self._truth = folder / "truth.jsonl"
        self._agents: list[subprocess.Popen[bytes]] = []

    def join(self, *, host: bool = False) -> subprocess.Popen[bytes]:
        """One more agent; the host keeps the rendezvous."""
        command = [*(self._host if host else self._guest), *self._script]
        log = self._truth.with_name(f"agent{len(self._agents)}.log").open("wb")
        with log:
            agent = subprocess.Popen(command, env=self._environment, stdout=log, stderr=log, start_new_session=True)
        self._agents.append(agent)
        return agent

    def truth(self, what: str | None = None) -> list[dict[str, Any]]:
        if not self._truth.exists():
            return []
        lines = [json.loads(line) for line in self._truth.read_text().splitlines()]
        return [line for line in lines if what in (None, line["what"])]

    def wait_for(self, step: int, *, world: int) -> None:
        """Until a rank of so large a world has done this step."""
        limit_s = time.monotonic() + 60
        while not any((line["step"], line["world"]) == (step, world) for line in self.truth("step")):
            assert time.monotonic() < limit_s, self.said()
            time.sleep(0.01)

    def said(self) -> str:
        """What the agents wrote."""
        logs = sorted(self._truth.parent.glob("agent*.log"))
        return "\n".join(f"{log.name}:\n{log.read_text()[-3000:]}" for log in logs)

    def lose_node(self, agent: subprocess.Popen[bytes]) -> None:
        """A node has gone: its processes are killed at once, whatever stands before torchrun included."""
        family = [agent.pid]
        for pid in family:
            family += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
        for pid in family:
            os.kill(pid, signal.SIGKILL)

    def end(self) -> None:
        for process in {line["pid"] for line in self.truth()}:
            # Of ours only: a number may have been given to another process since.
            with contextlib.suppress(OSError):
                if SCRIPT.encode() in Path(f"/proc/{process}/cmdline").read_bytes():
                    os.kill(process, signal.SIGKILL)
        for agent in self._agents:
            agent.kill()
            agent.wait()


@contextlib.contextmanager
def job(how: str, folder: Path, spool: Path, steps: int, *under: str) -> Iterator[Job]:
    found = Job(how, folder, spool, steps, list(under))
    try:
        yield found
    finally:
        found.end()


@dataclass
class Life:
    """One life of the worker group, as its workers wrote it down.

    Attributes:
        began_s: when its first process began.
        steps: of the rank that told most.
    """

    world: int
    began_s: float
    lines: list[dict[str, Any]]

    def of(self, what: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["what"] == what]

    @property
    def steps(self) -> list[dict[str, Any]]:
        rank = max(range(self.world), key=lambda rank: sum(line["rank"] == rank for line in self.lines))
        return [line for line in self.of("step") if line["rank"] == rank]

    @property
    def last(self) -> int:
        return max(int(line["step"]) for line in self.steps)


def lives_of(truth: list[dict[str, Any]]) -> list[Life]:
    """In order; from one to the next the world has another size."""
    lives: list[Life] = []
    known: dict[int, Life] = {}
    for line in sorted((line for line in truth if line["what"] == "process"), key=lambda line: line["began_s"]):
        if not lives or lives[-1].world != line["world"]:
            lives.append(Life(line["world"], line["began_s"], []))
        known[line["pid"]] = lives[-1]
    for line in truth:
        known[line["pid"]].lines.append(line)
    return lives


def took_s(lines: list[dict[str, Any]]) -> float:
    return sum(float(line["ended_s"] - line["began_s"]) for line in lines)


def hold_against(report: dict[str, Any], lives: list[Life]) -> None:
    """The ledger says what the workers wrote down: sizes, steps, GPUs held, what was thrown away, what it cost."""
    attempts, incidents = report["attempts"], report["incidents"]
    assert [(one["world_size"], one["first_step"], one["last_step"]) for one in attempts] == [
        (life.world, life.steps[0]["step"], life.last) for life in lives
    ]
    resumed = [life.steps[0]["step"] - 1 for life in lives]
    assert [one["resume_step"] for one in attempts] == [None, *resumed[1:]]
    assert [one["end_cause"] for one in attempts] == ["crash"] * (len(lives) - 1) + ["finished"]
    assert len({one["job"] for one in attempts}) == 1 and report["state"] == "finished"
    for one, life in zip(attempts, lives, strict=True):
        assert near(one["start_ns"] / 1e9, life.began_s, share=0)
    # A size is held until the next attempt begins.
    ends_s = [life.began_s for life in lives[1:]] + [max(line["ended_s"] for line in lives[-1].of("finished"))]
    held_s = sum(life.world * (end_s - life.began_s) for life, end_s in zip(lives, ends_s, strict=True))
    assert near(report["allocated_gpu_s"], held_s, least_s=0.2, share=0.005)

    lost_s = 0.0
    for incident, life, after, left in zip(incidents, lives[:-1], lives[1:], resumed[1:], strict=True):
        assert (incident["cause"], incident["lost_steps"]) == ("crash", life.last - left)
        thrown = [line for line in life.steps if line["step"] > left] + life.of("raised")
        lost_s += life.world * took_s(thrown)
        # From the last thing that anybody did to the first step of those that are left.
        restart_s = life.world * (after.began_s - max(line["ended_s"] for line in life.lines))
        restart_s += after.world * (after.steps[0]["began_s"] - after.began_s)
        assert near(incident["restart_gpu_s"], restart_s, least_s=0.5)
    # Where no rank lived to say so, the step or the save that the end met is in no line.
    silent = sum(not life.of("raised") for life in lives[:-1])
    assert near(report["gpu_s"]["rework"], lost_s, least_s=0.15 + 0.3 * silent)
    saved_s = sum(life.world * took_s(life.of("save")) for life in lives)
    assert near(report["gpu_s"]["checkpoint"], saved_s, least_s=0.1 + 0.25 * silent)


def test_a_job_that_loses_a_node_goes_on_with_fewer_ranks(spool: Path, tmp_path: Path) -> None:
    steps, kill_after = 3 * SAVE_EVERY + 1, 2 * SAVE_EVERY + 3
    with job("watch", tmp_path, spool, steps) as running:
        host = running.join(host=True)
        guest = running.join()
        running.wait_for(kill_after, world=2)
        running.lose_node(guest)
        assert host.wait(timeout=60) == 0, running.said()
        lives = lives_of(running.truth())
    assert [(life.world, life.last) for life in lives] == [(2, kill_after), (1, steps)]
    report = ledger(spool, "elastic")
    hold_against(report, lives)
    assert report["incidents"][0]["lost_steps"] == kill_after - 2 * SAVE_EVERY


@pytest.mark.soak
def test_a_job_that_shrinks_and_grows_again_without_a_change_of_its_code(spool: Path, tmp_path: Path) -> None:
    """2 to 1 to 2 ranks, each agent under `goodput run`: the newcomer has the lonely rank started anew."""
    steps = 20 * SAVE_EVERY
    with job("plain", tmp_path, spool, steps, *GOODPUT_RUN, "--run", "elastic", "--") as running:
        host = running.join(host=True)
        guest = running.join()
        running.wait_for(2 * SAVE_EVERY + 3, world=2)
        running.lose_node(guest)
        running.wait_for(3 * SAVE_EVERY + 3, world=1)
        running.join()
        assert host.wait(timeout=120) == 0, running.said()
        lives = lives_of(running.truth())
    assert [life.world for life in lives] == [2, 1, 2] and lives[-1].last == steps
    hold_against(ledger(spool, "elastic"), lives)
