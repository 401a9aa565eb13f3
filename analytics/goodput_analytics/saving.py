"""What saving more or less often would cost a run, from the figures of its report alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

from goodput_analytics.advice_cost import CostModel
from goodput_analytics.advice_interval import IntervalAdvice, advise_interval
from goodput_analytics.advice_rates import Rate, rate
from goodput_analytics.fleet import PLANNED_CAUSES
from goodput_analytics.model import Report
from goodput_analytics.settings import NS_PER_S

POINTS = 121
_REACH = 20.0
"""The curve goes from a twentieth of the best interval, or of the one in use, to twenty times that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """The curve of expected loss over the interval between saves.

    Attributes:
        advice: the points on it: Young's, Daly's, the exact best one, and the one in use.
        interval_s: seconds of useful work between two saves; waste_ratio: the share of GPU time lost at each.
        saved_gpu_s: what the best interval would have saved of the time held; None where the actual one is unknown.
    """

    advice: IntervalAdvice
    interval_s: tuple[float, ...]
    waste_ratio: tuple[float, ...]
    saved_gpu_s: float | None


def failure_rate(report: Report) -> Rate | None:
    """How often something unplanned ended the run while it worked, with its uncertainty; None where that is unknown."""
    failures = sum(1 for one in report.incidents if one.cause not in (*PLANNED_CAUSES, "rollback"))
    if failures == 0 or report.checkpoints.mtbf_s is None:
        return None
    return rate(failures, report.checkpoints.mtbf_s * failures)


def saving(report: Report) -> Saving | None:
    """The curve for a run's own saves, failures, restarts and hangs; None without a save or an unplanned failure."""
    saves = report.checkpoints
    if saves.mean_blocking_s is None or saves.mean_blocking_s <= 0 or saves.mtbf_s is None or saves.mtbf_s <= 0:
        return None
    ends = [one for one in report.incidents if one.cause not in (*PLANNED_CAUSES, "rollback")]
    restarts = [(one.recovered_ns - one.abort_ns) / NS_PER_S for one in ends if one.recovered_ns is not None]
    model = CostModel(
        checkpoint_s=saves.mean_blocking_s,
        mtbf_s=saves.mtbf_s,
        restart_s=max(sum(restarts) / len(restarts), 0.0) if restarts else 0.0,
        hang_s=sum(one.detection_s for one in ends) / len(ends) if ends else 0.0,
    )
    between = saves.mean_interval_s
    actual_s = None if between is None or between <= saves.mean_blocking_s else between - saves.mean_blocking_s
    advice = advise_interval(model, actual_s=actual_s, held_gpu_s=report.allocated_gpu_s)
    if advice is None:
        return None
    known = [advice.optimal_s, *([actual_s] if actual_s is not None else [])]
    low, high = min(known) / _REACH, max(known) * _REACH
    intervals = tuple(low * math.exp(math.log(high / low) * i / (POINTS - 1)) for i in range(POINTS))
    saved = None
    if advice.at_actual is not None:
        saved = (advice.at_actual.waste_ratio - advice.at_optimal.waste_ratio) * report.allocated_gpu_s
    return Saving(
        advice=advice,
        interval_s=intervals,
        waste_ratio=tuple(model.shares(one).waste_ratio for one in intervals),
        saved_gpu_s=saved,
    )
