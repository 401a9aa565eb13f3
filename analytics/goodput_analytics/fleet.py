"""All runs together: what was held, what was lost to what, and how much of an error budget that used up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from goodput_analytics.model import Category, Incident, Report, RunState

PLANNED_CAUSES = ("preempted",)
"""Ends that somebody wanted: preemption, maintenance, time limits. All other causes are unplanned."""
NOT_LOST = (Category.PRODUCTIVE, Category.EVALUATION)
TROUBLED = (RunState.HUNG, RunState.FAILED, RunState.LOST)


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseLoss:
    """What the incidents of one cause cost together: GPU-seconds of hang, of work done again, and of restarts."""

    cause: str
    planned: bool
    incidents: int
    hang_gpu_s: float
    rework_gpu_s: float
    restart_gpu_s: float
    gpu_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Several runs as one.

    Attributes:
        runs: how many. troubled: the names of those that hang, failed or fell silent.
        allocated_gpu_s, productive_gpu_s, lost_gpu_s: held; made steps that were kept; all but that and evaluation.
        goodput_ratio: productive over held; None where nothing was held.
        at_risk_gpu_s: of the runs that report checkpoints.
        gpu_s: by category, all of them, in their order.
        causes: the loss by cause, the dearest first.
    """

    runs: int
    troubled: tuple[str, ...]
    allocated_gpu_s: float
    productive_gpu_s: float
    lost_gpu_s: float
    goodput_ratio: float | None
    at_risk_gpu_s: float
    gpu_s: dict[str, float]
    causes: tuple[CauseLoss, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """An objective for goodput, and what is left of the loss that it allows.

    Attributes:
        target_ratio: the goodput wanted.
        allowed_gpu_s: the loss that it allows; lost_gpu_s: the loss that there was: all that was not productive.
        burned_ratio: lost over allowed; above 1 the budget is overdrawn. None where nothing was held.
    """

    target_ratio: float
    allowed_gpu_s: float
    lost_gpu_s: float
    burned_ratio: float | None


def price_gpu_s(incident: Incident) -> float:
    """What an incident cost: hang, work done again and restart."""
    return incident.hang_gpu_s + incident.rework_gpu_s + incident.restart_gpu_s


def lost_gpu_s(report: Report) -> float:
    """All that a run held but what was productive or evaluation."""
    return sum(gpu_s for category, gpu_s in report.gpu_s.items() if category not in NOT_LOST)


def fleet(reports: Sequence[Report]) -> Fleet:
    """The runs of `reports` as one."""
    gpu_s = {category.value: sum(one.gpu_s.get(category, 0.0) for one in reports) for category in Category}
    allocated = sum(one.allocated_gpu_s for one in reports)
    productive = gpu_s[Category.PRODUCTIVE]
    return Fleet(
        runs=len(reports),
        troubled=tuple(one.run for one in reports if one.state in TROUBLED),
        allocated_gpu_s=allocated,
        productive_gpu_s=productive,
        lost_gpu_s=sum(map(lost_gpu_s, reports)),
        goodput_ratio=productive / allocated if allocated > 0 else None,
        at_risk_gpu_s=sum(one.at_risk_gpu_s or 0.0 for one in reports),
        gpu_s=gpu_s,
        causes=_causes([incident for one in reports for incident in one.incidents]),
    )


def budget(allocated_gpu_s: float, productive_gpu_s: float, target_ratio: float) -> Budget:
    """How much of the loss that `target_ratio` allows was used up.

    Raises:
        ValueError: a target that leaves nothing to lose, or that is no ratio.
    """
    if not 0 <= target_ratio < 1:
        raise ValueError(f"a target for goodput is a ratio from 0 to less than 1; it is {target_ratio}")
    allowed = (1.0 - target_ratio) * allocated_gpu_s
    lost = allocated_gpu_s - productive_gpu_s
    return Budget(
        target_ratio=target_ratio,
        allowed_gpu_s=allowed,
        lost_gpu_s=lost,
        burned_ratio=lost / allowed if allowed > 0 else None,
    )


def _causes(incidents: Sequence[Incident]) -> tuple[CauseLoss, ...]:
    found = []
    for cause in sorted({incident.cause for incident in incidents}):
        of_it = [incident for incident in incidents if incident.cause == cause]
        found.append(
            CauseLoss(
                cause=cause,
                planned=cause in PLANNED_CAUSES,
                incidents=len(of_it),
                hang_gpu_s=sum(one.hang_gpu_s for one in of_it),
                rework_gpu_s=sum(one.rework_gpu_s for one in of_it),
                restart_gpu_s=sum(one.restart_gpu_s for one in of_it),
                gpu_s=sum(map(price_gpu_s, of_it)),
            )
        )
    return tuple(sorted(found, key=lambda one: (-one.gpu_s, one.cause)))
