"""Reports made by hand, for tests of what shows them."""

from dataclasses import replace
from typing import Any

from goodput_analytics.model import (
    Attempt,
    Category,
    Checkpoints,
    Finding,
    Incident,
    Quality,
    Report,
    RunState,
    RunSummary,
    Straggler,
)

T0_NS = 1_767_225_600_000_000_000  # 2026-01-01 00:00:00 UTC
HOUR_S = 3600.0
HOUR_NS = 3600 * 1_000_000_000


def gpu_s(**by_category: float) -> dict[str, float]:
    """Every category, 0 where nothing is said."""
    return {category.value: by_category.get(category.value, 0.0) for category in Category}


def an_incident(**changes: Any) -> Incident:
    usual = Incident(
        attempt=0,
        cause="crash",
        last_progress_ns=T0_NS + HOUR_NS,
        abort_ns=T0_NS + HOUR_NS + 400_000_000,
        detection_s=0.4,
        recovered_ns=T0_NS + HOUR_NS + 90_000_000_000,
        lost_steps=37,
        hang_gpu_s=0.0,
        rework_gpu_s=140.0,
        restart_gpu_s=360.0,
        suspect_ranks=(),
    )
    return replace(usual, **changes)


def an_attempt(**changes: Any) -> Attempt:
    usual = Attempt(
        attempt=0,
        job="slurm:4242.0",
        world_size=4,
        start_ns=T0_NS,
        end_ns=T0_NS + HOUR_NS,
        end_cause="finished",
        resume_step=None,
        first_step=1,
        last_step=3600,
    )
    return replace(usual, **changes)


NO_SAVES = Checkpoints(
    count=0, failed=0, mean_blocking_s=None, mean_interval_s=None, mtbf_s=None, young_s=None, daly_s=None
)
CLEAN = Quality(
    events=14_404,
    duplicates=0,
    conflicts=0,
    rejected={},
    gaps=0,
    dropped=0,
    max_skew_s=0.0,
    silent_ranks=(),
    sources_without_start=0,
    missing_steps=0,
    negative_durations=0,
    assumed_gpu_s=0.0,
)

EMPTY = Report(
    run="just-started",
    state=RunState.RUNNING,
    as_of_ns=T0_NS,
    allocated_gpu_s=0.0,
    goodput_ratio=None,
    at_risk_gpu_s=None,
    gpu_s=gpu_s(),
    phases_gpu_s={},
    queue_wait_s=None,
    attempts=(an_attempt(end_ns=None, end_cause="live", first_step=None, last_step=None),),
    incidents=(),
    stragglers=(),
    findings=(),
    checkpoints=NO_SAVES,
    quality=replace(CLEAN, events=1),
)

SMALL = Report(
    run="tiny",
    state=RunState.FINISHED,
    as_of_ns=T0_NS + 120_000_000_000,
    allocated_gpu_s=480.0,
    goodput_ratio=0.7,
    at_risk_gpu_s=0.0,
    gpu_s=gpu_s(productive=336.0, startup=60.5, checkpoint=24.0, rework=19.48, hang=40.0, data_wait=0.02),
    phases_gpu_s={
        "startup": {"restart": 12.0, "launch": 30.0, "init": 15.5, "warmup": 3.0},
        "hang": {"step": 40.0},
    },
    queue_wait_s=0.0,
    attempts=(
        an_attempt(end_cause="hang", last_step=80),
        an_attempt(attempt=1, start_ns=T0_NS + HOUR_NS, resume_step=50, first_step=51, last_step=200),
    ),
    incidents=(
        an_incident(cause="hang", detection_s=14.02, lost_steps=30, hang_gpu_s=40.0, rework_gpu_s=19.48,
                    restart_gpu_s=42.0, suspect_ranks=(2,)),
    ),
    stragglers=(),
    findings=(
        Finding(
            code="hang",
            gpu_s=40.0,
            says="Four GPUs stood still for 10 s.",
            evidence="Attempt 0 made no step from 00:00:31 to its abort; rank 2 fell silent first.",
            next="Look at rank 2's node, and set the group's timeout below the 14 s that the abort took.",
        ),
    ),
    checkpoints=Checkpoints(
        count=4, failed=0, mean_blocking_s=1.5, mean_interval_s=25.0, mtbf_s=60.0, young_s=13.4, daly_s=12.1
    ),
    quality=CLEAN,
)  # fmt: skip

BIG = Report(
    run="llama-405b-pretraining-phase-2-long-context-on-the-second-cluster-after-the-move",
    state=RunState.HUNG,
    as_of_ns=T0_NS + 54 * 24 * HOUR_NS,
    allocated_gpu_s=16_384 * 54 * 24 * HOUR_S,
    goodput_ratio=0.9042,
    at_risk_gpu_s=16_384 * 600.0,
    gpu_s={
        category: ratio * 16_384 * 54 * 24 * HOUR_S
        for category, ratio in gpu_s(
            productive=0.9042, startup=0.0312, checkpoint=0.0131, rework=0.0211, hang=0.0104, straggler=0.0094,
            data_wait=0.0012, evaluation=0.0071, unattributed=0.000021, idle=0.002279,
        ).items()
    },
    phases_gpu_s={
        "startup": {
            name: 16_384 * 3600.0 * hours
            for name, hours in {"teardown": 3, "restart": 20, "launch": 4.5, "init": 8, "warmup": 1, "compile": 2,
                                "load_checkpoint": 1.9}.items()
        },
        "straggler": {"rank": 16_384 * 3600.0 * 9, "jitter": 16_384 * 3600.0 * 3.2},
    },
    queue_wait_s=93_780.0,
    attempts=tuple(an_attempt(attempt=n, world_size=16_384) for n in range(420)),
    incidents=tuple(
        an_incident(
            attempt=n,
            cause=("hang", "crash", "preempted", "lost", "rollback")[n % 5],
            abort_ns=T0_NS + n * 3 * HOUR_NS,
            detection_s=(600.02, 0.04, 31.0)[n % 3],
            lost_steps=n,
            hang_gpu_s=16_384 * 600.0 * (n % 3 == 0),
            rework_gpu_s=16_384 * 11.0 * n,
            restart_gpu_s=16_384 * 340.0,
            suspect_ranks=(tuple(range(64, 96)), (), (4711,))[n % 3],
        )
        for n in range(419)
    ),
    stragglers=(
        Straggler(rank=4711, node="gpu-0588", loss_gpu_s=16_384 * 3600.0 * 7, slowest_steps=81_211,
                  slowdown_ratio=1.31),
        Straggler(rank=9, node=None, loss_gpu_s=16_384 * 3600.0 * 2, slowest_steps=1, slowdown_ratio=None),
    ),
    findings=(
        Finding(
            code="rework",
            gpu_s=448_000 * 3600.0,
            says="22 % of the loss is rework: saves are 2 h apart, the advised interval is 27 min.",
            evidence="419 aborts threw away 87,571 steps in all; the mean save blocks the job for 12.4 s.",
            next="Save every 27 minutes: over this run that would have kept 410,000 GPU-hours.",
        ),
        Finding(
            code="slow_rank",
            gpu_s=114_000 * 3600.0,
            says="Rank 4711 on gpu-0588 was the latest in 81,211 steps.",
            evidence="Its own work takes 1.31 times the median rank's.",
            next="Drain gpu-0588 and run a node check.",
        ),
    ),
    checkpoints=Checkpoints(
        count=648, failed=3, mean_blocking_s=12.4, mean_interval_s=7200.0, mtbf_s=11_134.0, young_s=525.5, daly_s=517.3
    ),
    quality=replace(
        CLEAN, events=41_204_223_104, duplicates=91_002, conflicts=2, rejected={"torn": 12, "not JSON": 3}, gaps=8,
        dropped=1, max_skew_s=1.84, silent_ranks=tuple(range(8, 16)), sources_without_start=1, missing_steps=40,
        negative_durations=1, assumed_gpu_s=16_384 * 900.0,
    ),
)  # fmt: skip

RUNS = [
    RunSummary(run=report.run, state=report.state, attempts=len(report.attempts), first_event_ns=T0_NS,
               last_event_ns=report.as_of_ns, allocated_gpu_s=report.allocated_gpu_s,
               goodput_ratio=report.goodput_ratio)
    for report in (BIG, SMALL, EMPTY)
]  # fmt: skip
