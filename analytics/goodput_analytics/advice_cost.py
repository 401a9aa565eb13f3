"""What a checkpoint interval costs: a job that saves, fails at random and starts again, in closed form.

Failures come at a constant rate and strike during work, saves and restarts alike. The job works for an interval, is
blocked for a save, and so on; a failure throws away what was not yet durable, and a failure in a restart begins the
restart again. The figures are those of a long job, without approximation. With blocking saves and failures that are
noticed at once this is the cost function of J. T. Daly (Future Generation Computer Systems 22, 2006).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields

from goodput_analytics.advice import optimal_s

POINT_RATIO = 0.01
"""How much worse than the best an interval may be to count as just as good: one point of goodput."""

MOST_S = 1e12
LEAST_MTBF_S = 1e-6
LEAST_CHECKPOINT_S = 1e-15
"""Times beyond these are slips, and floats would lose what makes the difference."""

_HALVINGS = 80
_TINY_RATIO = 1e-9
_HUGE_RATIO = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Where the time that a job holds its GPUs goes, in ratios that add up to 1.

    Attributes:
        goodput_ratio: useful work, counted once.
        checkpoint_ratio: the loop is blocked by saves; a save that a failure cut short counts too.
        rework_ratio: work that a failure threw away.
        restart_ratio: restarts, those too that a failure cut short.
        hang_ratio: from a failure until somebody acts on it.
    """

    goodput_ratio: float
    checkpoint_ratio: float
    rework_ratio: float
    restart_ratio: float
    hang_ratio: float

    @property
    def waste_ratio(self) -> float:
        """All but the useful work."""
        return 1.0 - self.goodput_ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class CostModel:
    """A job's own figures, from which the cost of any interval follows.

    Attributes:
        checkpoint_s: how long a save blocks the loop (delta).
        mtbf_s: mean time between failures, while the job works, saves or restarts (M).
        restart_s: from the moment that somebody acts on a failure to the first step again (R).
        hang_s: from a failure until somebody acts on it, on average over all failures. Nothing more can fail then.
        write_s: how long a save goes on in the background after it ceased to block; it is durable only then, and the
            next save waits for it. 0 where saves block until they are safe.

    Raises:
        ValueError: a figure is negative or beyond MOST_S, or `mtbf_s` is not positive.
    """

    checkpoint_s: float
    mtbf_s: float
    restart_s: float = 0.0
    hang_s: float = 0.0
    write_s: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not 0 <= value <= MOST_S:
                raise ValueError(f"{field.name} must be a number of seconds from 0 to {MOST_S:.0e}; it is {value}")
        if 0 < self.checkpoint_s < LEAST_CHECKPOINT_S:
            raise ValueError(
                f"checkpoint_s must be 0, or {LEAST_CHECKPOINT_S} seconds or more; it is {self.checkpoint_s}"
            )
        if self.mtbf_s < LEAST_MTBF_S:
            raise ValueError(f"mtbf_s must be {LEAST_MTBF_S} seconds or more; it is {self.mtbf_s}")

    @property
    def optimal_s(self) -> float:
        """The interval of useful work between two saves with the highest goodput; 0 where saves cost nothing.

        While a background write takes less than the interval it only adds to what each failure costs. An interval
        shorter than the write waits for it, which never pays.
        """
        return max(optimal_s(self.checkpoint_s, self.mtbf_s), min(self.write_s, self.mtbf_s))

    def shares(self, interval_s: float) -> Shares:
        """Where the time goes at an interval of `interval_s` of useful work between two saves.

        Derivation: between two failures (or from a failure to the next) there are M + hang_s seconds on average, and a
        restart survives with probability exp(-R/M). Save i of a life is durable at D_i = (T + delta + write) + (i-1) C
        with C = delta + max(T, write), so that exp(-D_1/M) / (1 - exp(-C/M)) saves get that far on average; and the
        time in a stretch [a, b] of a life is M (exp(-a/M) - exp(-b/M)).

        Raises:
            ValueError: `interval_s` is not positive and finite.
        """
        if not 0 < interval_s < math.inf:
            raise ValueError(f"an interval must be a number of seconds above 0; it is {interval_s}")
        m = self.mtbf_s
        work, save, write, restart = (x / m for x in (interval_s, self.checkpoint_s, self.write_s, self.restart_s))
        cycle = save + max(work, write)
        lives = math.exp(-restart)  # of one failure's consequences, how often work begins again
        again = -1.0 / math.expm1(-cycle)
        useful = lives * work * math.exp(-(work + save + write)) * again
        # The first save of a life has no write of the one before to wait for.
        blocked = -lives * math.exp(-work) * math.expm1(-save)
        blocked += -lives * math.exp(-(work + save + work)) * math.expm1(work - cycle) * again
        restarting = -math.expm1(-restart)
        hanging = self.hang_s / m
        whole = 1.0 + hanging
        return Shares(
            goodput_ratio=useful / whole,
            checkpoint_ratio=blocked / whole,
            rework_ratio=max(1.0 - restarting - blocked - useful, 0.0) / whole,
            restart_ratio=restarting / whole,
            hang_ratio=hanging / whole,
        )

    def goodput_ratio(self, interval_s: float) -> float:
        """Useful time over held time at an interval."""
        return self.shares(interval_s).goodput_ratio

    def first_order_ratio(self, interval_s: float) -> float:
        """The goodput that the first-order model expects: 1 / (1 + delta/T + (T/2 + R + hang)/M).

        It takes failures during saves and restarts for impossible, so it is a few points too high.
        """
        lost_s = interval_s / 2.0 + self.restart_s + self.hang_s + self.write_s
        return 1.0 / (1.0 + self.checkpoint_s / interval_s + lost_s / self.mtbf_s)

    def flat_range_s(self, within_ratio: float = POINT_RATIO) -> tuple[float, float]:
        """The shortest and the longest interval whose goodput is within `within_ratio` of the best."""
        best_s = self.optimal_s or self.mtbf_s * _TINY_RATIO
        floor = self.goodput_ratio(best_s) - within_ratio

        def good(interval_s: float) -> bool:
            return self.goodput_ratio(interval_s) >= floor

        return _edge(good, best_s, best_s * _TINY_RATIO), _edge(good, best_s, best_s * _HUGE_RATIO)


def _edge(good: Callable[[float], bool], inside: float, outside: float) -> float:
    """Where `good` ends between two positive numbers, found by halving their ratio."""
    if good(outside):
        return outside
    for _ in range(_HALVINGS):
        middle = math.sqrt(inside * outside)
        if good(middle):
            inside = middle
        else:
            outside = middle
    return inside
