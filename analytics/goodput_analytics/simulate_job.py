"""What a simulated job is: its work, its saves, how it fails, and how it comes back."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from goodput_analytics.advice_cost import LEAST_MTBF_S, MOST_S

MOST_NODES = 100_000
MOST_CHUNKS = 1e15
"""Beyond it the number of a save is no longer exact in a float."""


def _seconds(name: str, value: float, *, zero: bool = True) -> None:
    least = 0.0 if zero else LEAST_MTBF_S
    if not least <= value <= MOST_S:
        raise ValueError(f"{name} must be a number of seconds from {least:g} to {MOST_S:.0e}; it is {value}")


def _ratio(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must be a ratio from 0 to 1; it is {value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Elastic:
    """A job that goes on without a node that failed.

    With k of n nodes away it works at (n - k)/n of its speed, and fails as much more seldom. A node that was repaired
    is taken back at the first save after that, which is a restart too.

    Attributes:
        nodes: nodes of the whole job; each failure takes one of them away.
        repair_s: how long that node is away, from the moment that somebody acts on the failure.
        restart_s: a restart with the nodes that are there, which need not wait for another.
        min_nodes: with fewer the job waits for repairs.

    Raises:
        ValueError: a figure that cannot be.
    """

    nodes: int
    repair_s: float
    restart_s: float = 0.0
    min_nodes: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.nodes <= MOST_NODES:
            raise ValueError(f"nodes must be from 1 to {MOST_NODES:,}; it is {self.nodes}")
        if not 1 <= self.min_nodes <= self.nodes:
            raise ValueError(f"min_nodes must be from 1 to the {self.nodes} nodes; it is {self.min_nodes}")
        _seconds("repair_s", self.repair_s)
        _seconds("restart_s", self.restart_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job to simulate. Times in seconds.

    Attributes:
        useful_s: the work to be done, at full speed.
        checkpoint_s: how long a save blocks the loop. A failure in it loses the work since the save before.
        restart_s: from the moment that somebody acts on a failure to work again; a failure in it begins it again.
        mtbf_s: mean time between failures, which strike during work, saves and restarts; None with a trace.
        weibull_shape: 1 is a constant rate; below 1 failures come in bursts, above 1 they keep a distance. The mean
            stays `mtbf_s`, and each failure begins the clock anew.
        write_s: how long a save goes on in the background after it ceased to block; it is durable only then, and the
            next save waits for it.
        hang_ratio: of the failures, how many are hangs: nobody acts for `hang_timeout_s`, and nothing else can fail.
        hang_timeout_s: the collective timeout.
        elastic: how the job goes on without failed nodes; None: it waits `restart_s` for whole strength.
        failure_times_s: failures as they came, counted from the job's start; after the last there are none. One that
            falls into a hang, or while too few nodes are there to run, hits nothing.

    Raises:
        ValueError: a figure that cannot be, or neither or both of `mtbf_s` and `failure_times_s`.
    """

    useful_s: float
    checkpoint_s: float
    restart_s: float = 0.0
    mtbf_s: float | None = None
    weibull_shape: float = 1.0
    write_s: float = 0.0
    hang_ratio: float = 0.0
    hang_timeout_s: float = 0.0
    elastic: Elastic | None = None
    failure_times_s: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        _seconds("useful_s", self.useful_s, zero=False)
        for name in ("checkpoint_s", "restart_s", "write_s", "hang_timeout_s"):
            _seconds(name, getattr(self, name))
        if not (0.05 <= self.weibull_shape <= 100):
            raise ValueError(f"weibull_shape must be from 0.05 to 100; it is {self.weibull_shape}")
        _ratio("hang_ratio", self.hang_ratio)
        if (self.mtbf_s is None) == (self.failure_times_s is None):
            raise ValueError("give either mtbf_s or failure_times_s")
        if self.mtbf_s is not None:
            _seconds("mtbf_s", self.mtbf_s, zero=False)
        check_failure_times(self.failure_times_s or ())

    @property
    def mean_gap_s(self) -> float:
        """The mean time between failures, of a trace that of its failures; infinite without any."""
        if self.mtbf_s is not None:
            return self.mtbf_s
        times = self.failure_times_s or ()
        return times[-1] / len(times) if times else math.inf

    def check_interval(self, interval_s: float) -> None:
        """Refuse an interval that cannot be simulated, with a ValueError."""
        _seconds("an interval", interval_s, zero=False)
        if self.useful_s / interval_s > MOST_CHUNKS:
            raise ValueError(f"an interval of {interval_s} s is too short for {self.useful_s} s of work")


def check_failure_times(times_s: Sequence[float]) -> None:
    """Refuse times of failures that are not positive, finite and in order, with a ValueError."""
    for time_s in times_s:
        _seconds("the time of a failure", time_s, zero=False)
    if any(later <= earlier for earlier, later in itertools.pairwise(times_s)):
        raise ValueError("the times of failures must be in order, each later than the one before")
