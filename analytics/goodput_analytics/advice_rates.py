"""How often something interrupts a run, and how sure that is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

CONFIDENCE_RATIO = 0.95
FEW = 10
"""With fewer interruptions than this the mean time between them is known to no better than a factor of two or so."""

_EXACT_UP_TO = 1000
_HALVINGS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Interruptions counted in a time at risk, and the mean time between them.

    Attributes:
        count: how many there were.
        exposed_s: the time in which they could happen.
        mean_s: the mean time between two; None where there was none.
        low_s, high_s: the interval that holds the true mean in `confidence_ratio` of all such records, if they come at
            a constant rate. `low_s` is None without any time at risk, `high_s` where there was none to count.
        confidence_ratio: how sure the interval is.
    """

    count: int
    exposed_s: float
    mean_s: float | None
    low_s: float | None
    high_s: float | None
    confidence_ratio: float = CONFIDENCE_RATIO

    @property
    def few(self) -> bool:
        """Whether there were so few that the mean says little."""
        return self.count < FEW


def rate(count: int, exposed_s: float, confidence_ratio: float = CONFIDENCE_RATIO) -> Rate:
    """The mean time between events of which `count` came in `exposed_s` seconds.

    The interval is the exact one for a Poisson count (Garwood 1936): the means for which a count as high, or as low, as
    this has half of the remaining probability.

    Raises:
        ValueError: a negative count or time, or a confidence that is not between 0 and 1.
    """
    if count < 0 or not (math.isfinite(exposed_s) and exposed_s >= 0):
        raise ValueError("count and exposed_s must not be negative")
    if not 0 < confidence_ratio < 1:
        raise ValueError(f"confidence_ratio must be between 0 and 1; it is {confidence_ratio}")
    tail = (1.0 - confidence_ratio) / 2.0
    most = _mean_where(count, tail)
    least = _mean_where(count - 1, 1.0 - tail) if count else 0.0
    return Rate(
        count=count,
        exposed_s=exposed_s,
        mean_s=exposed_s / count if count and exposed_s > 0 else None,
        low_s=exposed_s / most if exposed_s > 0 else None,
        high_s=exposed_s / least if least > 0 and exposed_s > 0 else None,
        confidence_ratio=confidence_ratio,
    )


def _mean_where(count: int, chance: float) -> float:
    """The Poisson mean at which `count` or fewer come with the probability `chance`."""
    if count > _EXACT_UP_TO:
        return _wilson_hilferty(count, chance)
    low, high = 0.0, 2.0 * count + 60.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        if _at_most(count, middle) > chance:
            low = middle
        else:
            high = middle
        if high - low <= 1e-12 * high:
            break
    return high


def _at_most(count: int, mean: float) -> float:
    """The probability that a Poisson count is `count` or less, summed from its largest term downwards."""
    if mean <= 0:
        return 1.0
    if count > mean:
        return 1.0 - _above(count, mean)
    term = math.exp(count * math.log(mean) - mean - math.lgamma(count + 1))
    total = 0.0
    for k in range(count, -1, -1):
        total += term
        term *= k / mean
    return min(total, 1.0)


def _above(count: int, mean: float) -> float:
    """The probability that it is more, where the terms fall from there on."""
    k = count + 1
    term = math.exp(k * math.log(mean) - mean - math.lgamma(k + 1))
    total = 0.0
    while term > 1e-18 * max(total, 1e-300):
        total += term
        k += 1
        term *= mean / k
    return min(total, 1.0)


def _wilson_hilferty(count: int, chance: float) -> float:
    """The same for large counts: a chi-square's cube root is nearly normal (Wilson and Hilferty 1931)."""
    half = count + 1.0
    z = NormalDist().inv_cdf(1.0 - chance)
    return half * (1.0 - 1.0 / (9.0 * half) + z / (3.0 * math.sqrt(half))) ** 3
