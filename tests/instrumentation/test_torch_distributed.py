"""Two ranks: DDP with a slow rank, FSDP2 with distributed checkpoints, against each rank's own clock."""

from __future__ import annotations

import json
import socket
import statistics
import subprocess
import sys
from pathlib import Path

from adapter_truth import Told, ledger, near
from distributed_training import DDP_STEPS, LATE_S, WORK_S
from recorder_scripts import environment

HERE = Path(__file__).parent


def launch(what: str, folder: Path, spool: Path) -> list[dict[str, list[float]]]:
    """Run it on two ranks; what each of them measured. As a scheduler starts them: other tests have torchrun do it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    group = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(HERE / "distributed_training.py"), what, str(folder)],
            env=environment(spool, RANK=str(rank), LOCAL_RANK=str(rank), GOODPUT_JOB=what, **group),
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    try:
        said = [rank.communicate(timeout=100)[1] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert [rank.returncode for rank in ranks] == [0, 0], said
    return [json.loads((folder / f"truth-{rank}.json").read_text()) for rank in (0, 1)]


def test_ddp_names_the_slow_rank(spool: Path, tmp_path: Path) -> None:
    truths = launch("ddp", tmp_path, spool)
    for rank, truth in enumerate(truths):
        told = Told(spool, rank)
        assert told.steps() == list(range(1, DDP_STEPS + 1))
        assert told.resumes() == [None]
        assert told.stops() == [("finished", None)]
        # The first step begins where its update does: nothing tells of what came before. The others follow one another,
        # in a loop without a loader, and what nobody declares lies in them.
        assert near(sum(told.step_s()[1:]), sum(truth["step"][1:]) + truth["save"][0], least_s=0.05)
        busy_s = [event["busy_ns"] / 1e9 for event in told.of("step") if "busy_ns" in event]
        assert len(busy_s) == DDP_STEPS - 1
        assert near(statistics.median(busy_s), statistics.median(truth["own"]), least_s=0.01)
    ((step, saved_s, ok),) = Told(spool, 0).spans("checkpoint")
    assert (step, ok) == (DDP_STEPS // 2, True) and near(saved_s, 0.2, least_s=0.05)
    report = ledger(spool, "ddp")
    assert report["attempts"][0]["world_size"] == 2
    assert report["quality"]["silent_ranks"] == []
    assert [slow["rank"] for slow in report["stragglers"]] == [1]
    # Both GPUs wait for rank 1, in all steps that tell of own work.
    assert near(report["gpu_s"]["straggler"], 2 * LATE_S * (DDP_STEPS - 1), share=0.2)


def test_fsdp_saves_and_goes_on(spool: Path, tmp_path: Path) -> None:
    first = launch("fsdp", tmp_path, spool)
    second = launch("fsdp", tmp_path, spool)
    for rank in (0, 1):
        told = Told(spool, rank)
        # Filling an empty optimizer to load into it is an update, and no step.
        assert told.steps() == [1, 2, 3, 4, 5, 6, 7, 8, 7, 8, 9, 10]
        assert told.resumes() == [None, 6]
        assert {step for step, _, _ in told.spans("checkpoint")} == {3, 6}
        assert near(told.span_s("checkpoint"), sum(first[rank]["save"]))
        assert near(told.span_s("load_checkpoint"), sum(second[rank]["load"]))
        assert near(told.span_s("evaluation"), first[rank]["evaluation"][0] + second[rank]["evaluation"][0])
        assert [(event["step"], event["ok"]) for event in told.of("durable")] == [(6, True)]
        # Sharded parameters: all waits are in their collectives. The first step of a launch begins with its update.
        assert sum(event.get("busy_ns", 0) >= WORK_S * 1e9 for event in told.of("step")) >= 10
    report = ledger(spool, "fsdp")
    assert [(a["resume_step"], a["last_step"], a["end_cause"]) for a in report["attempts"]] == [
        (None, 8, "finished"),
        (6, 10, "finished"),
    ]
    assert report["checkpoints"]["count"] == 2
    # Steps 7 and 8 were made twice, on two GPUs.
    rework_s = sum(first[0]["step"][6:8]) + first[0]["evaluation"][0]
    # On a busy machine a part of that is one rank's wait for the other.
    assert near(report["gpu_s"]["rework"], 2 * rework_s, least_s=0.05 + report["gpu_s"]["straggler"])
