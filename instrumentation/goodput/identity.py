"""Who this process is in its run: a pure function of the environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from goodput.events import COUNT_LIMIT

K8S_NAMESPACE = "GOODPUT_K8S_NAMESPACE"
"""Namespace of the pod (downward API: `metadata.namespace`)."""
K8S_JOB_NAME = "GOODPUT_K8S_JOB_NAME"
"""Name of the job or pod group (`metadata.labels['batch.kubernetes.io/job-name']`)."""
K8S_JOB_UID = "GOODPUT_K8S_JOB_UID"
"""Its uid (`metadata.labels['batch.kubernetes.io/controller-uid']`)."""
K8S_NODE = "GOODPUT_K8S_NODE"
"""Name of the node (`spec.nodeName`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """One rank's place.

    Attributes:
        job: the scheduler's grant or the launch, spelled as the scheduler adapters spell it:
            `slurm:ID.RESTARTS`, `k8s:NAMESPACE/NAME/UID`, `torchrun:RUN_ID`, `local:HOST:PID`.
        restart_count: how often the launcher says it restarted; a label, it may differ among the ranks.
        rank, local_rank, world_size: as the launcher numbered them.
        node: name of the machine.
        launcher: `torchrun`, `slurm`, `kubernetes` or `python`.
    """

    job: str
    restart_count: int
    rank: int
    local_rank: int
    world_size: int
    node: str
    launcher: str


def identify(env: Mapping[str, str], *, host: str, pid: int, parent_pid: int) -> Identity:
    """Read rank, world size, node and job from a launcher's variables.

    The innermost launcher numbers the ranks (torchrun before Slurm before an indexed Kubernetes job); the
    outermost names the job, since it is what holds the GPUs (Slurm before Kubernetes before torchrun).
    """
    torchrun = "TORCHELASTIC_RUN_ID" in env
    slurm = bool(env.get("SLURM_JOB_ID"))
    kubernetes = all(env.get(name) for name in (K8S_NAMESPACE, K8S_JOB_NAME, K8S_JOB_UID))

    rank, local_rank, world_size = 0, 0, 1
    if "RANK" in env and "WORLD_SIZE" in env:
        rank, world_size = _number(env, "RANK", 0), _number(env, "WORLD_SIZE", 1)
        local_rank = _number(env, "LOCAL_RANK", _number(env, "SLURM_LOCALID", 0))
    elif slurm and "SLURM_PROCID" in env and ("SLURM_STEP_NUM_TASKS" in env or "SLURM_STEP_ID" in env):
        # Without a step this is the batch script itself: one process, whatever SLURM_NTASKS promises.
        rank = _number(env, "SLURM_PROCID", 0)
        world_size = _number(env, "SLURM_STEP_NUM_TASKS", _number(env, "SLURM_NTASKS", 1))
        local_rank = _number(env, "SLURM_LOCALID", 0)
    elif kubernetes and "JOB_COMPLETION_INDEX" in env:
        rank = _number(env, "JOB_COMPLETION_INDEX", 0)
        world_size = _number(env, "WORLD_SIZE", rank + 1)
    if world_size <= rank or rank < 0:
        world_size = max(rank, 0) + 1
        rank = max(rank, 0)

    if slurm:
        restarts = _number(env, "SLURM_RESTART_COUNT", 0)
        job = f"slurm:{env['SLURM_JOB_ID']}.{restarts}"
    elif kubernetes:
        restarts = 0
        job = f"k8s:{env[K8S_NAMESPACE]}/{env[K8S_JOB_NAME]}/{env[K8S_JOB_UID]}"
    elif torchrun:
        restarts = 0
        job = f"torchrun:{_run_id(env, host, parent_pid)}"
    else:
        restarts = 0
        job = f"local:{host}:{pid}"

    return Identity(
        job=job,
        restart_count=_number(env, "TORCHELASTIC_RESTART_COUNT", restarts),
        rank=rank,
        local_rank=local_rank,
        world_size=world_size,
        node=env.get("SLURMD_NODENAME") or env.get(K8S_NODE) or host,
        launcher="torchrun" if torchrun else "slurm" if slurm else "kubernetes" if kubernetes else "python",
    )


def _run_id(env: Mapping[str, str], host: str, parent_pid: int) -> str:
    """torchrun's run id; where the user gave none it is the word `none` for every launch, so the launch is told
    by its agent's process on one node, and by the master's address on several."""
    run_id = env.get("TORCHELASTIC_RUN_ID", "")
    if run_id not in ("", "none"):
        return run_id
    if _number(env, "GROUP_WORLD_SIZE", 1) > 1:
        return f"none-{env.get('MASTER_ADDR', host)}"
    return f"none-{host}-{parent_pid}"


def _number(env: Mapping[str, str], name: str, default: int) -> int:
    try:
        number = int(env.get(name, ""))
    except ValueError:
        return default
    # Scripts set -1 for what does not apply to them, such as LOCAL_RANK where nothing is distributed.
    return number if 0 <= number < COUNT_LIMIT else default
