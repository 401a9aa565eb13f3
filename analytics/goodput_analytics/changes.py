"""Where a series of step times changes for good: robust against outliers, and linear in the length of the series.

The series is cut into at most MOST_BLOCKS blocks, whose medians are looked at; a change found among them is then put on
the step where it lies. Beside that there are two tests, since step times are neither normal nor independent: the ranks
of the values must tell the two sides apart, and the medians of stretches on either side must lie apart by more than
they wander by themselves.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MOST_BLOCKS = 1024
"""Medians that are looked at, whatever the length of the series."""
LEAST_BLOCKS = 16
"""Values, or blocks of them, on either side of a change: what is shorter is an outlier."""
LEAST_RATIO = 0.01
"""A change by less than this share is not worth a sentence."""
RANKS_APART = 5.5
"""Standard deviations that the ranks of two sides must lie apart: of independent values, some ten thousand splits of
which are tried, less than one series in a thousand has a split beyond it."""
STRETCHES = 8
"""Stretches on either side whose medians tell how the series wanders by itself."""
WANDERS = 4.0
"""Standard errors, from the medians of the stretches, that two sides must lie apart."""
NORMAL_MEDIAN = 0.6745
"""Half of all normal values lie within this many standard deviations."""
SHRINKS = math.sqrt(2.0)
"""Intervals of one layer are this much shorter than those of the layer before."""


def change_points(values: Floats) -> list[int]:
    """Where the level of a series changes: the places of the first values after a change, in order.

    Seeded binary segmentation (Kovács, Bühlmann, Li and Munk, Biometrika 2023): intervals of all lengths, half of each
    shared with the next; in each the split with the greatest Wilcoxon statistic; the greatest first, then no other in
    an interval that it lies in.

    Args:
        values: positive, in order of time; what is a change is judged by ratios.
    """
    if values.size < 2 * LEAST_BLOCKS:
        return []
    logs = np.log(values)
    width = -(-values.size // MOST_BLOCKS)
    medians = logs if width == 1 else _block_medians(logs, width)
    found = _verified(medians, _candidates(medians))
    return [_placed(logs, medians, width, found, number) for number in range(len(found))]


def _block_medians(values: Floats, width: int) -> Floats:
    """The medians of blocks of `width` values; what is left at the end joins the last block."""
    blocks = values.size // width
    medians = np.median(values[: blocks * width].reshape(blocks, width), axis=1)
    medians[-1] = np.median(values[(blocks - 1) * width :])
    return np.asarray(medians, dtype=np.float64)


def _intervals(size: int) -> list[tuple[int, int]]:
    """The intervals that are looked at, from the whole down to the shortest in which a change can be told."""
    found = []
    length, layers = float(size), 0
    while length >= 2 * LEAST_BLOCKS:
        count = 2 * math.ceil(SHRINKS**layers) - 1
        shift = (size - length) / (count - 1) if count > 1 else 0.0
        found += [(int(i * shift), min(math.ceil(i * shift + length), size)) for i in range(count)]
        length, layers = length / SHRINKS, layers + 1
    return sorted(set(found))


def _ranks(values: Floats) -> Floats:
    """The rank of each value from 1; equal values share the mean of their ranks."""
    _, where, counts = np.unique(values, return_inverse=True, return_counts=True)
    upto = np.cumsum(counts)
    return np.asarray((upto - (counts - 1) / 2)[where], dtype=np.float64)


def _best_split(values: Floats) -> tuple[float, int]:
    """The greatest Wilcoxon statistic of a split, in standard deviations, and the place of the split."""
    n = values.size
    ranks = _ranks(values)
    spread = float(np.var(ranks))
    if spread == 0:
        return 0.0, 0
    left = np.arange(1, n)
    sums = np.abs(np.cumsum(ranks - (n + 1) / 2)[:-1])
    apart = sums / np.sqrt(left * (n - left) / (n - 1) * spread)
    inner = apart[LEAST_BLOCKS - 1 : n - LEAST_BLOCKS]
    best = int(np.argmax(inner))
    return float(inner[best]), best + LEAST_BLOCKS


def _candidates(medians: Floats) -> list[int]:
    told = []
    for begin, end in _intervals(medians.size):
        apart, split = _best_split(medians[begin:end])
        if apart > RANKS_APART:
            told.append((apart, begin, end, begin + split))
    told.sort(key=lambda one: (-one[0], one[1], one[2]))
    chosen: list[int] = []
    for _, begin, end, split in told:
        if all(not begin < other < end for other in chosen):
            chosen.append(split)
    return sorted(chosen)


def _verified(medians: Floats, candidates: list[int]) -> list[int]:
    """Without those whose two sides lie no further apart than the series wanders: the least first, one at a time."""
    found, rough = list(candidates), _roughness(medians)
    while found:
        bounds = [0, *found, medians.size]
        marks = [
            _apart(medians[a:b], medians[b:c], rough) for a, b, c in zip(bounds, bounds[1:], bounds[2:], strict=False)
        ]
        least = int(np.argmin(marks))
        if marks[least] >= 1:
            break
        del found[least]
    return found


def _roughness(medians: Floats) -> float:
    """The standard deviation of the level of LEAST_BLOCKS values, from how far such stretches lie from the next: what
    wanders slowly, so that single values look as if they belonged together, does not pass for a row of changes."""
    stretches = medians[: medians.size // LEAST_BLOCKS * LEAST_BLOCKS].reshape(-1, LEAST_BLOCKS)
    steps = np.abs(np.diff(np.median(stretches, axis=1)))
    return float(np.median(steps)) / (NORMAL_MEDIAN * math.sqrt(2.0))


def _apart(before: Floats, after: Floats, rough: float) -> float:
    """How far two sides lie apart, in what is asked for: from 1 on it is a change."""
    if min(before.size, after.size) < LEAST_BLOCKS:
        return 0.0
    difference = abs(float(np.median(after) - np.median(before)))
    error = math.hypot(_wandering(before, rough), _wandering(after, rough))
    needed = max(math.log1p(LEAST_RATIO), WANDERS * error)
    return difference / needed


def _wandering(values: Floats, rough: float) -> float:
    """The standard error of a side's level: from the medians of its stretches, and from the whole series' roughness."""
    stretches = min(STRETCHES, values.size // 4)
    medians = [float(np.median(part)) for part in np.array_split(values, stretches)]
    own = float(np.std(medians, ddof=1)) / math.sqrt(stretches)
    return max(own, rough * math.sqrt(LEAST_BLOCKS / values.size))


def _placed(logs: Floats, medians: Floats, width: int, found: list[int], number: int) -> int:
    """The value with which a change begins: where the two levels fit best, by the sum of distances."""
    bounds = [0, *found, medians.size]
    before = float(np.median(medians[bounds[number] : bounds[number + 1]]))
    after = float(np.median(medians[bounds[number + 1] : bounds[number + 2]]))
    reach = LEAST_BLOCKS // 2 if width == 1 else 2
    begin = (found[number] - reach) * width
    near = logs[begin : (found[number] + reach) * width]
    # Taken as "before" rather than "after", the values up to a place cost the running sum of this.
    cost = np.concatenate([[0.0], np.cumsum(np.abs(near - before) - np.abs(near - after))])
    return begin + int(np.argmin(cost))
