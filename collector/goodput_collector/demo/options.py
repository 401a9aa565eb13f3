"""What a user may ask of the demonstration, and the plan that follows from it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

MAX_RANKS = 8
# What a step takes at the pace below on two cores, measured; only used to plan ahead.
PLANNED_STEP_S = 0.15
PLANNED_START_S = 10.0


class Fault(StrEnum):
    """What can be done to the training, in the order in which it is done."""

    SLOW_RANK = "slow_rank"
    SLOW_SAVE = "slow_save"
    KILL = "kill"
    HANG = "hang"


ALL_FAULTS = ("kill", "hang", "slow_rank", "slow_save")
NEED_PEERS = {Fault.HANG, Fault.SLOW_RANK}


class DemoUsageError(ValueError):
    """A demonstration was asked for that cannot be given; the message says what can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """What the user asked for.

    Attributes:
        seconds: about how long the training runs; longer where the faults need it.
        ranks: processes to train with, 1 to 8.
        faults: names of `Fault`; ("none",) or () for a training that nobody disturbs.
        keep: folder for everything that the demonstration leaves; None for a new temporary folder that keeps only
            what is needed to look at the result.
    """

    seconds: float = 120.0
    ranks: int = 4
    faults: tuple[str, ...] = ALL_FAULTS
    keep: Path | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.ranks <= MAX_RANKS:
            raise DemoUsageError(f"--ranks must be from 1 to {MAX_RANKS}, not {self.ranks}")
        if not (math.isfinite(self.seconds) and 0 < self.seconds <= 3600):
            raise DemoUsageError(f"--seconds must be from 1 to 3600, not {self.seconds:g}")
        known = {*Fault, "none"}
        for fault in self.faults:
            if fault not in known:
                raise DemoUsageError(f"--faults knows {', '.join(ALL_FAULTS)} and none, not {fault!r}")
        if "none" in self.faults and len(set(self.faults)) > 1:
            raise DemoUsageError("--faults none cannot stand beside other faults")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that is decided before the training starts.

    Attributes:
        faults: in the order in which they are done.
        left_out: asked for, but senseless with a single rank.
        pace_s: least time for a rank's own work in a step.
        save_every: steps between checkpoints.
        group_timeout_s: how long a collective waits for a peer. Beyond the ledger's 10 s, below which a standstill
            is an unfinished step and not a hang.
        fault_after_save: steps after a save at which a rank is killed or stopped: far from any save.
        slow_steps: steps in which one rank is slow, enough for the ledger's test of significance (see `slow_steps`).
        patience_s: how long after the abort the injector leaves a stopped process to torchrun.
        give_up_s: after this the demonstration ends itself.
    """

    seconds: float
    ranks: int
    faults: tuple[Fault, ...]
    left_out: tuple[Fault, ...]
    save_every: int
    fault_after_save: int
    slow_steps: int
    pace_s: float = 0.1
    group_timeout_s: float = 14.0
    slow_rank_sleep_s: float = 0.15
    slow_save_sleep_s: float = 3.0
    calm_steps: int = 15
    patience_s: float = 2.0
    give_up_s: float

    @property
    def slow_rank(self) -> int:
        return self.ranks // 2

    @property
    def kill_rank(self) -> int:
        return self.ranks - 1

    @property
    def hang_rank(self) -> int:
        return min(1, self.ranks - 1)

    @property
    def restarts(self) -> int:
        return sum(fault in (Fault.KILL, Fault.HANG) for fault in self.faults)


def make_plan(options: DemoOptions) -> Plan:
    """Turns wishes into a plan; leaves out what makes no sense with one rank."""
    wanted = [fault for fault in Fault if fault in options.faults]
    faults = tuple(fault for fault in wanted if options.ranks > 1 or fault not in NEED_PEERS)
    save_every = 40 if options.seconds >= 90 else 20
    ends_early = Fault.KILL in faults or Fault.HANG in faults
    other_steps = 15 + 3 * save_every if ends_early else math.ceil(max(0.0, options.seconds) / PLANNED_STEP_S)
    return Plan(
        seconds=options.seconds,
        ranks=options.ranks,
        faults=faults,
        left_out=tuple(fault for fault in wanted if fault not in faults),
        save_every=save_every,
        fault_after_save=save_every * 6 // 10,
        slow_steps=slow_steps(options.ranks, other_steps),
        give_up_s=options.seconds + 110.0 + 15.0 * max(0, options.ranks - 4),  # more ranks start more slowly
    )


def slow_steps(ranks: int, other_steps: int) -> int:
    """How many steps one rank must be slow in an attempt of `other_steps` further ones, to be named for it.

    The ledger names a rank that was the latest in k of s steps if k > s/n + 3·√(s/n·(1 − 1/n)). A rank that is the
    latest in all its slow steps and by chance in one of n others has k = slow + (s − slow)/n, so it must be slow in
    more than 3·√(s/(n − 1)) steps. Twice that leaves chance three more standard deviations.
    """
    if ranks < 2:
        return 0
    steps = 20
    for _ in range(20):  # s counts the slow steps too: a few rounds settle it
        steps = max(20, math.ceil(6 * math.sqrt((steps + other_steps) / (ranks - 1))))
    return min(steps, 200)
