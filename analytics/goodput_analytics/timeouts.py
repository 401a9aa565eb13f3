"""How long to wait for a rank that says nothing: the shortest collective timeout that seldom ends a healthy job."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

DAYS_30_S = 30 * 86_400.0
DEFAULT_RISK_RATIO = 0.01
DEFAULT_TIMEOUT_S = 600.0
"""What PyTorch waits by default for a collective of the NCCL backend."""

FLOOR_S = 10.0
"""Below it the ledger never speaks of a hang."""

LEAST_SILENCES = 20
"""Of fewer silences of a kind no tail can be told."""
UNKNOWN_TIMES = 3.0
"""Then the longest counts so many times, as with the ledger's hang limit."""

_MOST_TAIL = 1_000
_MOST_SHAPE = 0.9
_ONE_SIDED_Z = 1.645
_NO_SHAPE = 1e-6
_MOST_MISFIT = 1.2
"""Beyond it a tail is no generalized Pareto distribution; of tails that are, hardly any lies as far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KindOfSilence:
    """The legal silences of one kind, and the timeout that they ask for.

    Attributes:
        kind: `checkpoint`, `evaluation` or `other` where a declared span was part of the silence, else `step`.
        count: how many were seen.
        median_s, longest_s: how long they were.
        timeout_s: the shortest timeout for this kind at its share of the risk.
        risk_known: whether there were enough of them to tell, and a tail to tell it by; else `timeout_s` is
            UNKNOWN_TIMES the longest.
    """

    kind: str
    count: int
    median_s: float
    longest_s: float
    timeout_s: float
    risk_known: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeoutAdvice:
    """The advised collective timeout.

    Attributes:
        timeout_s: the shortest that no kind of silence forbids.
        risk_ratio: the expected number of healthy jobs that it aborts in `over_s` of running; None where a kind of
            silence is too rare to tell, or its longest are apart from all others.
        over_s: the time that the risk speaks of.
        kinds: the kinds of silence, the one that asks for most first.
        recovered_stalls_s: stalls that the ledger calls hangs and that ended by themselves; they do not count as legal.
    """

    timeout_s: float
    risk_ratio: float | None
    over_s: float
    kinds: tuple[KindOfSilence, ...]
    recovered_stalls_s: tuple[float, ...] = ()

    @property
    def cut_stalls(self) -> int:
        """How many of the stalls that recovered this timeout would have ended."""
        return sum(stall_s > self.timeout_s for stall_s in self.recovered_stalls_s)


def hang_cost_gpu_s(timeout_s: float, gpus: float) -> float:
    """What one hang costs until the timeout acts: every GPU of the job is held and does nothing."""
    return timeout_s * gpus


def advise_timeout(
    silences_s: Mapping[str, Sequence[float] | Floats],
    running_s: float,
    *,
    risk_ratio: float = DEFAULT_RISK_RATIO,
    over_s: float = DAYS_30_S,
    floor_s: float = FLOOR_S,
    recovered_stalls_s: Sequence[float] = (),
) -> TimeoutAdvice | None:
    """The shortest timeout whose risk of a false abort stays below `risk_ratio` in `over_s` of running.

    Each kind gets an equal part of the risk, for the tails of steps and of saves have nothing to do with each other.

    Args:
        silences_s: by kind, how long nothing was heard although all was well, in seconds.
        running_s: the time in which they were seen, which tells how often such silences come.
        risk_ratio: the expected number of false aborts in `over_s`.
        floor_s: never advise less. Steps that were all equally long tell nothing of a small disturbance.
        recovered_stalls_s: stalls that ended by themselves.

    Returns:
        None where no silence was seen.

    Raises:
        ValueError: a risk that is not between 0 and 1, or a time that is not positive.
    """
    if not 0 < risk_ratio < 1:
        raise ValueError(f"a risk must be a ratio between 0 and 1; it is {risk_ratio}")
    if not (math.isfinite(over_s) and over_s > 0):
        raise ValueError(f"over_s must be a number of seconds above 0; it is {over_s}")
    seen = {kind: np.sort(np.asarray(values, dtype=np.float64)) for kind, values in silences_s.items() if len(values)}
    if not seen or running_s <= 0:
        return None
    share = risk_ratio / len(seen)
    kinds = []
    for kind, values in seen.items():
        chance = share / (len(values) / running_s * over_s)  # of each such silence to be cut
        told = quantile_beyond(values, chance) if len(values) >= LEAST_SILENCES else None
        kinds.append(
            KindOfSilence(
                kind=kind,
                count=len(values),
                median_s=float(values[len(values) // 2]),
                longest_s=float(values[-1]),
                timeout_s=UNKNOWN_TIMES * float(values[-1]) if told is None else told,
                risk_known=told is not None,
            )
        )
    kinds.sort(key=lambda k: -k.timeout_s)
    return TimeoutAdvice(
        timeout_s=max(kinds[0].timeout_s, floor_s),
        risk_ratio=risk_ratio if all(k.risk_known for k in kinds) else None,
        over_s=over_s,
        kinds=tuple(kinds),
        recovered_stalls_s=tuple(sorted(recovered_stalls_s)),
    )


def quantile_beyond(ordered: Sequence[float] | Floats, chance: float) -> float | None:
    """The value that a further draw exceeds with the probability `chance`, also where that is rarer than was seen; None
    where the greatest values are no tail that could be drawn out.

    The tail, the greatest tenth (at least twenty values or the upper half, at most a thousand), is taken for a
    generalized Pareto distribution, fitted by probability-weighted moments (Hosking and Wallis, Technometrics 29,
    1987). Where it plainly is none, as where one step in fifty does something else and takes ten times as long, the
    greater half of the tail is taken, and so on, down to twenty. To draw the tail out its shape is held between the
    exponential's 0, so that nothing is taken to be bounded because it was so far, and 0.9; its scale is raised by what
    its own uncertainty may be. Never less than the greatest that was seen.

    Args:
        ordered: the values seen, in order, two at least.
        chance: between 0 and 1.
    """
    values = np.asarray(ordered, dtype=np.float64)
    count, longest = values.size, float(values[-1])
    tail = max(min(max(count // 10, LEAST_SILENCES), _MOST_TAIL, count // 2), 1)
    while True:
        threshold = float(values[count - tail - 1])
        over = values[count - tail :] - threshold
        mean = float(np.mean(over))
        if mean <= 0:
            return longest
        weighted = float(np.mean((tail - np.arange(tail) - 0.5) / tail * over))
        gap = mean - 2.0 * weighted
        shape = min(2.0 - mean / gap, _MOST_SHAPE) if gap > 0 else 0.0
        if _misfit(over, mean * (1.0 - shape), shape) <= _MOST_MISFIT:
            break
        if tail < 2 * LEAST_SILENCES:
            return None
        tail //= 2
    shape = max(shape, 0.0)
    scale = mean * (1.0 - shape) * (1.0 + _ONE_SIDED_Z / math.sqrt(tail))
    rarer = max(tail / count / chance, 1.0)
    beyond = scale * (math.log(rarer) if shape < _NO_SHAPE else math.expm1(shape * math.log(rarer)) / shape)
    return max(threshold + beyond, longest)


def _misfit(over: Floats, scale: float, shape: float) -> float:
    """How far values in order are from a generalized Pareto distribution: Kolmogorov's distance, times the root of
    their number."""
    excess = over / scale
    if abs(shape) < _NO_SHAPE:
        below = -np.expm1(-excess)
    else:  # with a shape below 0 nothing is greater than -1 / shape
        below = 1.0 - np.maximum(1.0 + shape * excess, 0.0) ** (-1.0 / shape)
    steps = np.arange(over.size + 1) / over.size
    return float(np.max(np.maximum(steps[1:] - below, below - steps[:-1]))) * math.sqrt(over.size)
