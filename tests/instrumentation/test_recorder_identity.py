"""Who a process is, from what its launcher told it."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from goodput.clock import ahead_ns
from goodput.environment import read_environment
from goodput.identity import Identity, identify
from goodput.process import device_kind, process_start_ns


def who(**env: str) -> Identity:
    return identify(env, host="box", pid=10, parent_pid=9)


TORCHRUN = {
    "RANK": "5",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "8",
    "GROUP_WORLD_SIZE": "2",
    "MASTER_ADDR": "head",
    "TORCHELASTIC_RUN_ID": "exp7",
    "TORCHELASTIC_RESTART_COUNT": "3",
}
SLURM = {"SLURM_JOB_ID": "42", "SLURM_RESTART_COUNT": "2", "SLURMD_NODENAME": "gpu-3", "SLURM_NTASKS": "16"}
SLURM_STEP = {**SLURM, "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "16", "SLURM_PROCID": "11", "SLURM_LOCALID": "3"}
KUBERNETES = {
    "GOODPUT_K8S_NAMESPACE": "ml",
    "GOODPUT_K8S_JOB_NAME": "train",
    "GOODPUT_K8S_JOB_UID": "u-1",
    "GOODPUT_K8S_NODE": "node-9",
}


@pytest.mark.parametrize(
    ("env", "job", "restarts", "place", "node", "launcher"),
    [
        ({}, "local:box:10", 0, (0, 0, 1), "box", "python"),
        (TORCHRUN, "torchrun:exp7", 3, (5, 1, 8), "box", "torchrun"),
        ({**TORCHRUN, "TORCHELASTIC_RUN_ID": "none"}, "torchrun:none-head", 3, (5, 1, 8), "box", "torchrun"),
        (
            {**TORCHRUN, "TORCHELASTIC_RUN_ID": "none", "GROUP_WORLD_SIZE": "1"},
            "torchrun:none-box-9",
            3,
            (5, 1, 8),
            "box",
            "torchrun",
        ),
        (SLURM_STEP, "slurm:42.2", 2, (11, 3, 16), "gpu-3", "slurm"),
        ({**SLURM, "SLURM_PROCID": "0"}, "slurm:42.2", 2, (0, 0, 1), "gpu-3", "slurm"),
        ({**SLURM_STEP, **TORCHRUN}, "slurm:42.2", 3, (5, 1, 8), "gpu-3", "torchrun"),
        (KUBERNETES, "k8s:ml/train/u-1", 0, (0, 0, 1), "node-9", "kubernetes"),
        ({**KUBERNETES, **TORCHRUN}, "k8s:ml/train/u-1", 3, (5, 1, 8), "node-9", "torchrun"),
        (
            {**KUBERNETES, "JOB_COMPLETION_INDEX": "2", "WORLD_SIZE": "4"},
            "k8s:ml/train/u-1",
            0,
            (2, 0, 4),
            "node-9",
            "kubernetes",
        ),
        ({"RANK": "1", "WORLD_SIZE": "2"}, "local:box:10", 0, (1, 0, 2), "box", "python"),
        ({"RANK": "x", "WORLD_SIZE": ""}, "local:box:10", 0, (0, 0, 1), "box", "python"),
        ({"RANK": "7", "WORLD_SIZE": "2"}, "local:box:10", 0, (7, 0, 8), "box", "python"),
    ],
)
def test_launchers(
    env: dict[str, str], job: str, restarts: int, place: tuple[int, int, int], node: str, launcher: str
) -> None:
    found = who(**env)
    assert (found.job, found.restart_count) == (job, restarts)
    assert (found.rank, found.local_rank, found.world_size) == place
    assert (found.node, found.launcher) == (node, launcher)


def test_a_process_started_before_it_could_say_so() -> None:
    before_ns = time.time_ns()
    script = (
        f"import sys, time; sys.path[:0] = {sys.path!r}; time.sleep(0.3); "
        "from goodput.process import process_start_ns; print(process_start_ns(time.time_ns), time.time_ns())"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    start_ns, now_ns = map(int, told.split())
    assert before_ns - 11_000_000 <= start_ns, "at most one clock tick early"
    assert now_ns - start_ns >= 300_000_000
    assert process_start_ns(time.time_ns) < before_ns


def test_a_process_put_aside_between_two_readings_is_not_misled() -> None:
    # Before, between and after, five times: it was put aside in all tries but the third.
    now = iter([0, 1, 900, 1000, 1900, 1901, 2000, 2010, 2020, 3000, 3001, 3900, 4000, 4900, 4901])
    assert ahead_ns(lambda: next(now) + 5, lambda: next(now)) == 5


def test_no_gpu_without_torch_or_when_hidden() -> None:
    assert device_kind({"CUDA_VISIBLE_DEVICES": ""}) == "cpu"


def test_environment_defaults_and_complaints() -> None:
    plain = read_environment({})
    assert (plain.disabled, plain.run, plain.spool, plain.memory) == (False, None, None, "/dev/shm")
    assert (plain.heartbeat_s, plain.spool_max_bytes, plain.devices) == (5.0, 1 << 30, None)
    assert plain.complaints == ()
    given = read_environment(
        {
            "GOODPUT_DISABLED": "yes",
            "GOODPUT_RUN": " r ",
            "GOODPUT_LABELS": "team = nlp ,project=a=b,broken",
            "GOODPUT_MEMORY": "OFF",
            "GOODPUT_HEARTBEAT_S": "0.5",
            "GOODPUT_DEVICES": "4",
            "GOODPUT_SPOOL_MAX_BYTES": "nan",
        }
    )
    assert (given.disabled, given.run, given.memory, given.heartbeat_s, given.devices) == (True, "r", None, 0.5, 4)
    assert dict(given.labels) == {"team": "nlp", "project": "a=b"}
    assert given.spool_max_bytes == 1 << 30
    assert len(given.complaints) == 2
