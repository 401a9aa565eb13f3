"""What saving more or less often would cost: the curve that the advice about the interval has its points on."""

from __future__ import annotations

import math
from dataclasses import dataclass

from goodput_analytics.advice_interval import IntervalAdvice

POINTS = 121
_REACH = 20.0
"""The curve goes from a twentieth of the best interval, or of the one in use, to twenty times that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """The curve of expected loss over the interval between saves.

    Attributes:
        advice: the points on it: Young's, Daly's, the exact best one, and the one in use.
        interval_s: seconds of useful work between two saves; waste_ratio: the share of GPU time lost at each.
    """

    advice: IntervalAdvice
    interval_s: tuple[float, ...]
    waste_ratio: tuple[float, ...]

    @property
    def saved_gpu_s(self) -> float | None:
        """What the best interval would have saved of the time held; None where the one in use is not known."""
        if self.advice.at_actual is None or self.advice.held_gpu_s is None:
            return None
        return (self.advice.at_actual.waste_ratio - self.advice.at_optimal.waste_ratio) * self.advice.held_gpu_s


def saving(advice: IntervalAdvice) -> Saving:
    """The curve of the advice's own model."""
    known = [advice.optimal_s, *([] if advice.actual_s is None else [advice.actual_s])]
    low, high = min(known) / _REACH, max(known) * _REACH
    intervals = tuple(low * math.exp(math.log(high / low) * i / (POINTS - 1)) for i in range(POINTS))
    return Saving(
        advice=advice,
        interval_s=intervals,
        waste_ratio=tuple(advice.model.shares(one).waste_ratio for one in intervals),
    )
