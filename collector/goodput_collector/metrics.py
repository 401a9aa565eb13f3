"""The metrics: their names, and what a run or the collector has to say under each. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from goodput_analytics import Category, RunState
from goodput_collector.exposition import Family, Kind, histogram
from goodput_collector.metrics_figures import NS_PER_S, STEP_BOUNDS_S, WINDOWS, RunFigures
from goodput_collector.told import Told

END_CAUSES = ("finished", "crash", "hang", "preempted", "lost")
"""Why attempts end, once they have."""
ENDED = (RunState.FINISHED, RunState.FAILED)
AT_WORK = (RunState.RUNNING, RunState.HUNG, RunState.PAUSED)
SLOW_RANKS = 3
"""Ranks of a run that have a series: those who cost most."""
RESERVED_LABELS = frozenset({"run", "job", "instance", "le"})
_LABEL = re.compile(r"[a-zA-Z][a-zA-Z0-9_]*")

GPU_SECONDS = Family(
    name="goodput_gpu_seconds", kind=Kind.GAUGE, unit="seconds",
    help="GPU-seconds of the run by category of the ledger; late events and rollbacks revise them.",
)  # fmt: skip
RATIO = Family(
    name="goodput_ratio", kind=Kind.GAUGE, unit="ratio",
    help="Productive over allocated GPU-seconds of the run, 0 to 1.",
)  # fmt: skip
AT_RISK = Family(
    name="goodput_at_risk_gpu_seconds", kind=Kind.GAUGE, unit="seconds",
    help="GPU-seconds of productive steps since the last durable checkpoint, lost if the run died now.",
)  # fmt: skip
WINDOW_GPU_SECONDS = Family(
    name="goodput_window_gpu_seconds", kind=Kind.GAUGE, unit="seconds",
    help="GPU-seconds of the run in the window that ends now, by category of the ledger.",
)  # fmt: skip
WINDOW_RATIO = Family(
    name="goodput_window_ratio", kind=Kind.GAUGE, unit="ratio",
    help="Productive over allocated GPU-seconds of the run in the window that ends now, 0 to 1.",
)  # fmt: skip
ALLOCATED = Family(
    name="goodput_allocated_gpu_seconds", kind=Kind.COUNTER, unit="seconds",
    help="GPUs held by the run times time held.",
)  # fmt: skip
STEPS = Family(
    name="goodput_steps", kind=Kind.COUNTER,
    help="Steps that the run computed, those that were thrown away and computed again included.",
)  # fmt: skip
RESTARTS = Family(
    name="goodput_restarts", kind=Kind.COUNTER, help="Attempts that followed another, by why that one ended."
)
CHECKPOINTS = Family(
    name="goodput_checkpoints", kind=Kind.COUNTER,
    help="Saves of the run: durable ones, and those that failed or never became durable.",
)  # fmt: skip
RUN_STATE = Family(name="goodput_run_state", kind=Kind.GAUGE, help="1 for the state that the run is in, 0 for others.")
RUN_INFO = Family(name="goodput_run", kind=Kind.INFO, help="The chosen labels of the run.")
LAST_PROGRESS = Family(
    name="goodput_last_progress_timestamp_seconds", kind=Kind.GAUGE, unit="seconds",
    help="When the run last proved progress: the end of a step, the beginning or end of a span.",
)  # fmt: skip
LAST_EVENT = Family(
    name="goodput_last_event_timestamp_seconds", kind=Kind.GAUGE, unit="seconds",
    help="The latest time that the run has told, heartbeats included.",
)  # fmt: skip
LAST_DURABLE = Family(
    name="goodput_last_durable_checkpoint_timestamp_seconds", kind=Kind.GAUGE, unit="seconds",
    help="When the run's latest checkpoint became durable.",
)  # fmt: skip
CHECKPOINT_INTERVAL = Family(
    name="goodput_checkpoint_interval_seconds", kind=Kind.GAUGE, unit="seconds",
    help="Time between saves: the actual mean, and what Young and Daly advise from the run's own figures.",
)  # fmt: skip
STEP_SECONDS = Family(
    name="goodput_step_seconds", kind=Kind.HISTOGRAM, unit="seconds",
    help="How long steps took, declared spans left out.",
)  # fmt: skip
SLOW_RANK = Family(
    name="goodput_slow_rank_ratio", kind=Kind.GAUGE, unit="ratio",
    help="Lateness of a rank that was named as slow over the median rank's; the few that cost most.",
)  # fmt: skip
GPUS = Family(name="goodput_gpus", kind=Kind.GAUGE, help="GPUs that the run's live attempt drives.")
SILENT_RANKS = Family(
    name="goodput_silent_ranks", kind=Kind.GAUGE, help="Ranks of the run's live attempt that never reported."
)
FIRST_SPAN = Family(
    name="goodput_first_span", kind=Kind.GAUGE,
    help="1 while the run is in a declared span of a kind that it had not completed before; nobody knows its length.",
)  # fmt: skip
QUEUE_WAIT = Family(
    name="goodput_queue_wait_seconds", kind=Kind.GAUGE, unit="seconds",
    help="From submission to admission, summed over the run's jobs; no GPU time.",
)  # fmt: skip

RUN_FAMILIES = (
    GPU_SECONDS, RATIO, AT_RISK, WINDOW_GPU_SECONDS, WINDOW_RATIO, ALLOCATED, STEPS, RESTARTS, CHECKPOINTS, RUN_STATE,
    RUN_INFO, LAST_PROGRESS, LAST_EVENT, LAST_DURABLE, CHECKPOINT_INTERVAL, STEP_SECONDS, SLOW_RANK, GPUS, SILENT_RANKS,
    FIRST_SPAN, QUEUE_WAIT,
)  # fmt: skip

EVENTS = Family(name="goodput_collector_events", kind=Kind.COUNTER, help="Events that are kept.")
DUPLICATES = Family(name="goodput_collector_duplicate_events", kind=Kind.COUNTER, help="Events that came again.")
CONFLICTS = Family(
    name="goodput_collector_conflicting_events", kind=Kind.COUNTER, help="Events that came again with another content."
)
REJECTED = Family(
    name="goodput_collector_rejected_lines", kind=Kind.COUNTER, help="Lines that could not be taken, by reason."
)
STARTED = Family(
    name="goodput_collector_start_timestamp_seconds", kind=Kind.GAUGE, unit="seconds", help="When the collector began."
)
READY = Family(
    name="goodput_collector_ready", kind=Kind.GAUGE, help="1 while events can be kept, 0 while the disk refuses."
)
WAITING_BYTES = Family(
    name="goodput_collector_waiting_bytes", kind=Kind.GAUGE, unit="bytes", help="What was sent and is not yet kept."
)
DATABASE_BYTES = Family(
    name="goodput_collector_database_bytes", kind=Kind.GAUGE, unit="bytes", help="The size of the database file."
)
RUNS = Family(name="goodput_collector_exported_runs", kind=Kind.GAUGE, help="Runs that /metrics tells of.")
RUNS_LEFT_OUT = Family(
    name="goodput_collector_left_out_runs", kind=Kind.GAUGE, help="Runs beyond the most that /metrics tells of."
)
RUNS_FAILED = Family(
    name="goodput_collector_failed_runs", kind=Kind.GAUGE, help="Runs whose figures could not be computed just now."
)
FIGURES_AGE = Family(
    name="goodput_collector_oldest_figures_seconds", kind=Kind.GAUGE, unit="seconds",
    help="Age of the oldest figures of a run that is at work.",
)  # fmt: skip
REFRESH = Family(
    name="goodput_collector_refresh_seconds", kind=Kind.GAUGE, unit="seconds",
    help="How long the last round over all runs took.",
)  # fmt: skip

COLLECTOR_FAMILIES = (
    EVENTS, DUPLICATES, CONFLICTS, REJECTED, STARTED, READY, WAITING_BYTES, DATABASE_BYTES, RUNS, RUNS_LEFT_OUT,
    RUNS_FAILED, FIGURES_AGE, REFRESH,
)  # fmt: skip
FAMILIES = (*RUN_FAMILIES, *COLLECTOR_FAMILIES)

Counters = Mapping[str, float]
"""What only grows, by a name of its own; whole numbers as such."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricOptions:
    """What is exported.

    Attributes:
        most_runs: of more runs those heard from last; what is left out is counted.
        ended_s: how long a run that ended stays.
        lost_s: how long a run that fell silent without an end stays.
        labels: the labels of runs that `goodput_run_info` has.
        ended_refresh_s: how old the windows of a run may be that time alone does not change any more.
    """

    most_runs: int = 200
    ended_s: float = 6 * 3600.0
    lost_s: float = 3 * 86_400.0
    labels: Sequence[str] = field(default=())
    ended_refresh_s: float = 60.0

    def __post_init__(self) -> None:
        if self.most_runs < 1:
            raise ValueError("at least one run is told of")
        if not (self.ended_s >= 0 and self.lost_s >= 0):
            raise ValueError("times must not be negative")
        for label in self.labels:
            if not _LABEL.fullmatch(label) or label in RESERVED_LABELS:
                raise ValueError(
                    f"{label!r} cannot be a label: letters, digits and _, a letter first, and not "
                    f"{', '.join(sorted(RESERVED_LABELS))}"
                )


def stays(told: Told, now_ns: int, options: MetricOptions) -> bool:
    """Whether a run is still told of. One that fell silent does not vanish with its silence: that is news."""
    state = told.report.state
    kept_s = options.ended_s if state in ENDED else options.lost_s
    return state in AT_WORK or now_ns - told.summary.last_event_ns <= kept_s * NS_PER_S


def counters(told: Told, figures: RunFigures) -> dict[str, float]:
    """What of a run only grows, as its ledger now says."""
    report = told.report
    found: dict[str, float] = {
        "allocated": report.allocated_gpu_s,
        "steps": sum(figures.step_buckets),
        "durable": report.checkpoints.count,
        "failed": report.checkpoints.failed,
        "step_s": figures.step_ns / NS_PER_S,
        **{f"restarts_{cause}": 0 for cause in END_CAUSES},
        **{f"bucket_{index}": count for index, count in enumerate(figures.step_buckets)},
    }
    for before in report.attempts[:-1]:
        if before.end_cause in END_CAUSES:
            found[f"restarts_{before.end_cause}"] += 1
    return found


def run_blocks(told: Told, figures: RunFigures, counted: Counters, labels: Sequence[str]) -> dict[str, str]:
    """The samples of one run by the name of their metric; all but the time of its last event, which moves faster.

    `counted` is what `counters` said, or more where more was told before.
    """
    report = told.report
    run = {"run": report.run}
    blocks = {
        GPU_SECONDS: [
            GPU_SECONDS.sample(report.gpu_s[category.value], {**run, "category": category.value})
            for category in Category
        ],
        RATIO: _known(RATIO, report.goodput_ratio, run),
        AT_RISK: _known(AT_RISK, report.at_risk_gpu_s, run),
        WINDOW_GPU_SECONDS: [
            WINDOW_GPU_SECONDS.sample(gpu_ns / NS_PER_S, {**run, "category": category, "window": window})
            for window in WINDOWS
            for category, gpu_ns in figures.window_gpu_ns[window].items()
        ],
        WINDOW_RATIO: [
            WINDOW_RATIO.sample(gpu_ns[Category.PRODUCTIVE.value] / sum(gpu_ns.values()), {**run, "window": window})
            for window, gpu_ns in figures.window_gpu_ns.items()
            if any(gpu_ns.values())
        ],
        ALLOCATED: [ALLOCATED.sample(counted["allocated"], run)],
        STEPS: [STEPS.sample(counted["steps"], run)],
        RESTARTS: [RESTARTS.sample(counted[f"restarts_{cause}"], {**run, "cause": cause}) for cause in END_CAUSES],
        CHECKPOINTS: [
            CHECKPOINTS.sample(counted[result], {**run, "result": result}) for result in ("durable", "failed")
        ],
        RUN_STATE: [
            RUN_STATE.sample(int(report.state is state), {**run, "state": state.value}) for state in RunState
        ],
        RUN_INFO: [RUN_INFO.sample(1, {**run, **{label: figures.labels.get(label, "") for label in labels}})],
        LAST_PROGRESS: _moment(LAST_PROGRESS, figures.progress_ns, run),
        LAST_DURABLE: _moment(LAST_DURABLE, told.durable_ns, run),
        CHECKPOINT_INTERVAL: [
            sample
            for kind, interval_s in (
                ("actual", report.checkpoints.mean_interval_s),
                ("young", report.checkpoints.young_s),
                ("daly", report.checkpoints.daly_s),
            )
            for sample in _known(CHECKPOINT_INTERVAL, interval_s, {**run, "kind": kind})
        ],
        STEP_SECONDS: [
            histogram(
                STEP_SECONDS,
                STEP_BOUNDS_S,
                [int(counted[f"bucket_{index}"]) for index in range(len(STEP_BOUNDS_S) + 1)],
                counted["step_s"],
                run,
            )
        ],
        SLOW_RANK: [
            SLOW_RANK.sample(ratio, {**run, "rank": str(rank)}) for rank, ratio in _slow_ranks(told)[:SLOW_RANKS]
        ],
        GPUS: _known(GPUS, told.gpus, run),
        SILENT_RANKS: _known(SILENT_RANKS, figures.silent_ranks, run),
        FIRST_SPAN: _known(FIRST_SPAN, None if figures.first_span is None else int(figures.first_span), run),
        QUEUE_WAIT: _known(QUEUE_WAIT, report.queue_wait_s, run),
    }  # fmt: skip
    return {family.name: "".join(samples) for family, samples in blocks.items()}


def last_event_block(run: str, at_ns: int) -> str:
    """The sample that says when a run was last heard from."""
    return LAST_EVENT.sample(at_ns / NS_PER_S, {"run": run})


def _slow_ranks(told: Told) -> list[tuple[int, float]]:
    """The ranks that were named as slow, the dearest first, each once though it may have moved between nodes."""
    found: dict[int, float] = {}
    for one in told.report.stragglers:
        if one.slowdown_ratio is not None:
            found.setdefault(one.rank, one.slowdown_ratio)
    return list(found.items())


def _known(family: Family, value: float | None, labels: Mapping[str, str]) -> list[str]:
    return [] if value is None else [family.sample(value, labels)]


def _moment(family: Family, at_ns: int | None, labels: Mapping[str, str]) -> list[str]:
    return _known(family, None if at_ns is None else at_ns / NS_PER_S, labels)
