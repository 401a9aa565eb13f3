"""Runs that train to a given step, whatever happens on the way: so that two of them differ by one thing only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from reference.planned import Life, S, Shape

STEP_NS = S
LONG_ENOUGH_STEPS = 60
"""Odd events must stay few among this many steps, so that no median moves."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What happens after, or in, which step. Lengths in ns.

    Attributes:
        saves, evaluations: after a step, for how long the loop is blocked.
        longer: by how much a step is longer than the others.
        stalls: by how much a step is longer than the longest that counts as a step.
        pauses: time before a step that is in no step.
        slow: by how much one rank works longer than the others in a step.
        crashes, hangs: after a step the attempt ends, with an unfinished step, or after the hang limit and this.
        wait_ns: from an attempt's release to the next one's start.
    """

    shape: Shape
    steps: int
    slow_rank: int = 0
    wait_ns: int = 0
    saves: Mapping[int, int] = field(default_factory=dict)
    evaluations: Mapping[int, int] = field(default_factory=dict)
    longer: Mapping[int, int] = field(default_factory=dict)
    stalls: Mapping[int, int] = field(default_factory=dict)
    pauses: Mapping[int, int] = field(default_factory=dict)
    slow: Mapping[int, int] = field(default_factory=dict)
    crashes: Mapping[int, int] = field(default_factory=dict)
    hangs: Mapping[int, int] = field(default_factory=dict)


@dataclass(kw_only=True)
class Trainee(Life):
    """A life that makes every step as its plan says, however often it comes to it, and none beyond."""

    plan: Plan
    stalled: set[int] = field(default_factory=set)

    def plain(self, n: int) -> None:
        """No steps of its own accord."""

    def advance(self, **how: Any) -> None:
        n = self.step + 1
        extra_ns = how.pop("extra_ns", 0) + self.plan.longer.get(n, 0)
        if n in self.plan.stalls and n not in self.stalled:
            self.stalled.add(n)
            extra_ns += self.hang_limit_ns() + self.plan.stalls[n]
        slow = (self.plan.slow_rank, self.plan.slow[n]) if n in self.plan.slow else None
        super().advance(extra_ns=extra_ns, slow=slow, **how)


def train(plan: Plan) -> Life:
    """Live it: each crash and hang once, and what was thrown away done again."""
    life = Trainee(shape=plan.shape, plan=plan)
    life.launch()
    ended: set[int] = set()
    while True:
        n = life.step
        if n in plan.saves:
            life.save(plan.saves[n])
        if n in plan.evaluations:
            life.evaluate(plan.evaluations[n])
        if n not in ended and (n in plan.crashes or n in plan.hangs):
            ended.add(n)
            if n in plan.crashes:
                life.crash(plan.crashes[n])
            else:
                life.hang(plan.hangs[n])
            life.launch(wait_ns=plan.wait_ns)
        elif n == plan.steps:
            life.finish(0, 0)
            return life
        else:
            life.advance(gap_ns=plan.pauses.get(n + 1, 0))


@st.composite
def plans(draw: st.DrawFn, *, ranks: int = 1) -> Plan:
    """A run of some ranks, one step a second, with a few saves, evaluations and longer steps."""
    steps = draw(st.integers(LONG_ENOUGH_STEPS, 80))

    def few(lengths: st.SearchStrategy[int]) -> dict[int, int]:
        return draw(st.dictionaries(st.integers(5, steps - 5), lengths, max_size=3))

    shape = Shape(
        ranks=draw(st.integers(ranks, 4)),
        step_ns=STEP_NS,
        warmup_ns=draw(st.sampled_from([0, 3 * S])),
        granted=draw(st.sampled_from([None, 6])),
    )
    return Plan(
        shape=shape,
        steps=steps,
        slow_rank=draw(st.integers(0, shape.ranks - 1)),
        wait_ns=draw(st.sampled_from([0, 5 * S, 90 * S])),
        saves=few(st.integers(1, 9 * S)),
        evaluations=few(st.integers(1, 40 * S)),
        longer=few(st.integers(1, S)),
        crashes=few(st.integers(0, 9 * S)),
    )


def somewhere(plan: Plan) -> st.SearchStrategy[int]:
    """A step of the plan with some steps on either side."""
    return st.integers(5, plan.steps - 5)
