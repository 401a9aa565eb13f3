"""What slow ranks cost at scale: a synchronous step takes as long as its slowest rank."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SLOW_FROM_RATIO = 1.2
"""A rank counts as slow in a step from this many times its usual length on."""
LEAST_STEPS = 30
MOST_RANKS = 10_000_000
MOST_STEPS = 10_000_000
MOST_FACTOR = 1e9


def _check(ranks: int, slow_ratio: float, slow_factor: float) -> None:
    if not 1 <= ranks <= MOST_RANKS:
        raise ValueError(f"ranks must be from 1 to {MOST_RANKS:,}; it is {ranks}")
    if not 0 <= slow_ratio <= 1:
        raise ValueError(f"the share of slow steps must be a ratio from 0 to 1; it is {slow_ratio}")
    if not 1 <= slow_factor <= MOST_FACTOR:
        raise ValueError(f"a slow step must take from 1 to {MOST_FACTOR:.0e} times a normal one; it is {slow_factor}")


def any_slow_ratio(ranks: int, slow_ratio: float) -> float:
    """The share of steps in which at least one of `ranks` is slow, each by itself in `slow_ratio` of them."""
    _check(ranks, slow_ratio, 1.0)
    return 1.0 if slow_ratio == 1 else -math.expm1(ranks * math.log1p(-slow_ratio))


def slowdown(ranks: int, slow_ratio: float, slow_factor: float = 2.0) -> float:
    """The expected length of a synchronous step, in normal ones: 1 + (s - 1) (1 - (1 - p)^n).

    Args:
        ranks: ranks that wait for one another (n).
        slow_ratio: the share of steps in which a rank is slow, independently of the others (p).
        slow_factor: how long such a step takes, in normal ones (s).

    Raises:
        ValueError: a figure that cannot be.
    """
    _check(ranks, slow_ratio, slow_factor)
    return 1.0 + (slow_factor - 1.0) * any_slow_ratio(ranks, slow_ratio)


def simulated_slowdown(
    ranks: int, slow_ratio: float, slow_factor: float = 2.0, *, steps: int = 20_000, seed: int = 1
) -> float:
    """The mean length of `steps` simulated steps, in normal ones: in each, how many ranks are slow is drawn.

    Raises:
        ValueError: a figure that cannot be.
    """
    _check(ranks, slow_ratio, slow_factor)
    if not 1 <= steps <= MOST_STEPS:
        raise ValueError(f"steps must be from 1 to {MOST_STEPS:,}; it is {steps}")
    slow = np.random.default_rng(seed).binomial(ranks, slow_ratio, steps)
    return float(np.mean(np.where(slow > 0, slow_factor, 1.0)))


def expected_greatest(values: Sequence[float] | Floats, draws: int) -> float:
    """The expected greatest of `draws` values drawn at random, with replacement, from those that were seen.

    Of N values in order the i-th is the greatest with probability (i/N)^draws - ((i - 1)/N)^draws. It never exceeds
    the greatest that was seen, so it is too low where `draws` comes near N.
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    ranks = np.arange(ordered.size + 1) / ordered.size
    return float(np.sum(ordered * np.diff(ranks**draws)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """What the ranks of a run are apart from one another in a step, beside lasting differences between them.

    Attributes:
        ranks: ranks that wait for one another.
        steps: steps looked at.
        quiet_s: what a step would take without noise.
        slow_ratio: the share of a rank's steps in which it was slow (p): SLOW_FROM_RATIO times its usual length.
        slow_factor: how long these took, in usual ones (s); None where there were none.
        observed_slowdown: the mean step, in quiet ones.
        slowdown_by_ranks: for numbers of ranks, what the same noise would make of a step if it strikes each rank by
            itself; drawn from what was seen. At the run's own number it shows how far that is true: where more was
            observed than this, ranks are slow together.
        formula_by_ranks: the same by the formula, from p and s; None where no step was slow.
        seen: values that the noise is known from; beyond a tenth as many ranks the figures are too low.
    """

    ranks: int
    steps: int
    quiet_s: float
    slow_ratio: float
    slow_factor: float | None
    observed_slowdown: float
    slowdown_by_ranks: Mapping[int, float]
    formula_by_ranks: Mapping[int, float] | None
    seen: int


def fit_noise(late_s: Floats, step_s: Floats, at_ranks: Sequence[int] = ()) -> Noise | None:
    """Fit the noise of a run's own steps.

    A rank that is always later than the others is no noise: each rank is held against its own median. Nor is what all
    ranks have in common, such as a longer batch: of each step what the lower quartile of the ranks has is taken off.

    Args:
        late_s: by step and rank, how long the rank did its own work; NaN where it did not report.
        step_s: by step, how long the step took.
        at_ranks: further numbers of ranks that the noise is wanted at; ten times the run's own is always there.

    Returns:
        None where there is too little to go by: one rank, or fewer than LEAST_STEPS steps that all ranks reported.
    """
    whole = ~np.isnan(late_s).any(axis=1)
    late_s, step_s = late_s[whole], step_s[whole]
    steps, ranks = late_s.shape
    if ranks < 2 or steps < LEAST_STEPS:
        return None
    apart = late_s - np.median(late_s, axis=0)
    excess = apart - np.sort(apart, axis=1)[:, math.ceil(ranks / 4) - 1 : math.ceil(ranks / 4)]
    greatest = excess.max(axis=1)
    quiet_s = float(np.median(step_s - greatest))
    if quiet_s <= 0:
        return None
    lengths = 1.0 + excess / quiet_s
    slow = lengths[lengths >= SLOW_FROM_RATIO]
    p = slow.size / lengths.size
    s = float(np.mean(slow)) if slow.size else None
    wanted = sorted({ranks, 10 * ranks, *at_ranks})
    flat = np.sort(lengths, axis=None)
    return Noise(
        ranks=ranks,
        steps=steps,
        quiet_s=quiet_s,
        slow_ratio=p,
        slow_factor=s,
        observed_slowdown=1.0 + float(np.mean(greatest)) / quiet_s,
        slowdown_by_ranks={n: expected_greatest(flat, n) for n in wanted},
        formula_by_ranks=None if s is None else {n: slowdown(n, p, s) for n in wanted},
        seen=int(flat.size),
    )
