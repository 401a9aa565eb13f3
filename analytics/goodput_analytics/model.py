"""What a report holds: the shapes that cross from the analytics to those who show it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any


class Category(StrEnum):
    """Where a GPU-second went; in the order in which people read it."""

    PRODUCTIVE = "productive"
    STARTUP = "startup"
    CHECKPOINT = "checkpoint"
    REWORK = "rework"
    HANG = "hang"
    STRAGGLER = "straggler"
    DATA_WAIT = "data_wait"
    EVALUATION = "evaluation"
    UNATTRIBUTED = "unattributed"
    IDLE = "idle"


class RunState(StrEnum):
    """What a run is doing now."""

    RUNNING = "running"
    HUNG = "hung"
    PAUSED = "paused"
    FINISHED = "finished"
    FAILED = "failed"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One life of the worker group. Times in ns since the epoch; `end_ns` is None while it lives."""

    attempt: int
    job: str | None
    world_size: int
    start_ns: int
    end_ns: int | None
    end_cause: str
    resume_step: int | None
    first_step: int | None
    last_step: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """One interruption and its price in GPU-seconds. `attempt` is the one that ended, or that rolled back."""

    attempt: int
    cause: str
    last_progress_ns: int
    abort_ns: int
    detection_s: float
    recovered_ns: int | None
    lost_steps: int
    hang_gpu_s: float
    rework_gpu_s: float
    restart_gpu_s: float
    suspect_ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Straggler:
    """A rank that was named as slow, with the loss charged to it in the steps in which it was the latest."""

    rank: int
    node: str | None
    loss_gpu_s: float
    slowest_steps: int
    slowdown_ratio: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a person should know: what was lost, the evidence, and what to do next. One short sentence each."""

    code: str
    gpu_s: float | None
    says: str
    evidence: str
    next: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """The job's saves (not its ranks'), and what they advise; None where it cannot be known."""

    count: int
    failed: int
    mean_blocking_s: float | None
    mean_interval_s: float | None
    mtbf_s: float | None
    young_s: float | None
    daly_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """What the figures rest on."""

    events: int
    duplicates: int
    conflicts: int
    rejected: dict[str, int]
    gaps: int
    dropped: int
    max_skew_s: float
    silent_ranks: tuple[int, ...]
    sources_without_start: int
    missing_steps: int
    negative_durations: int
    assumed_gpu_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The breakdown of one run. `gpu_s` has every category and adds up to `allocated_gpu_s` exactly (in ns)."""

    run: str
    state: RunState
    as_of_ns: int
    allocated_gpu_s: float
    goodput_ratio: float | None
    at_risk_gpu_s: float | None
    gpu_s: dict[str, float]
    phases_gpu_s: dict[str, dict[str, float]]
    queue_wait_s: float | None
    attempts: tuple[Attempt, ...]
    incidents: tuple[Incident, ...]
    stragglers: tuple[Straggler, ...]
    findings: tuple[Finding, ...]
    checkpoints: Checkpoints
    quality: Quality
    schema: int = field(default=1)

    def as_json(self) -> dict[str, Any]:
        """The object that `goodput report --json` prints, ready for `json.dumps`."""
        body = asdict(self)
        return {"schema": body.pop("schema"), **body}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """One line of the list of runs. State and figures are None for a run whose ledger could not be made."""

    run: str
    state: RunState | None
    attempts: int
    first_event_ns: int
    last_event_ns: int
    allocated_gpu_s: float | None
    goodput_ratio: float | None
