"""The advice itself: which interval, what it costs, how flat the optimum is, and what else would be worth more."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from goodput_analytics.advice import daly_s, young_s
from goodput_analytics.advice_cost import CostModel, Shares

GPU_S_PER_GPU_HOUR = 3600.0
ASYNC_BLOCKING_RATIO = 0.1
"""What an asynchronous save is taken to block, of a blocking one: the copy to memory."""
FASTER_RESTART_RATIO = 0.5
LEAST_FOR_ASYNC_S = 1e-3
"""A save that blocks for less has nothing to gain in the background."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """What a change would be worth, at the best interval before and after it.

    Attributes:
        change: `async_save`, `faster_restart`, `shorter_timeout` or `all`.
        assumes: the change in figures, for a person.
        optimal_s, goodput_ratio: the best interval after it, and its goodput.
        gained_ratio: goodput that it adds.
        gained_gpu_s: the same of the time held; None where that is not known.
    """

    change: str
    assumes: str
    optimal_s: float
    goodput_ratio: float
    gained_ratio: float
    gained_gpu_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalAdvice:
    """How much useful work to do between two saves.

    Attributes:
        model: the figures that the advice follows from.
        young_s, daly_s: the approximations; optimal_s: the exact optimum of the model.
        at_optimal: where the time goes at the optimum.
        flat_low_s, flat_high_s: intervals between them cost less than one point of goodput more.
        actual_s, at_actual: the interval that is used now, and where the time goes at it; None where it is not known.
        held_gpu_s: the GPU time that waste is told of; None where it is not known.
        what_ifs: what other changes would be worth, largest first.
    """

    model: CostModel
    young_s: float
    daly_s: float
    optimal_s: float
    at_optimal: Shares
    flat_low_s: float
    flat_high_s: float
    actual_s: float | None
    at_actual: Shares | None
    held_gpu_s: float | None
    what_ifs: tuple[WhatIf, ...]

    @property
    def waste_gpu_s(self) -> float | None:
        """The GPU time that the optimum still loses, of the time held."""
        return None if self.held_gpu_s is None else self.at_optimal.waste_ratio * self.held_gpu_s

    @property
    def actual_waste_gpu_s(self) -> float | None:
        """The GPU time that the interval used now loses, by the model."""
        if self.held_gpu_s is None or self.at_actual is None:
            return None
        return self.at_actual.waste_ratio * self.held_gpu_s


def advise_interval(
    model: CostModel,
    *,
    actual_s: float | None = None,
    held_gpu_s: float | None = None,
    shorter_hang_s: float | None = None,
) -> IntervalAdvice | None:
    """Advise an interval for a job with the figures of `model`.

    Args:
        model: the job's figures.
        actual_s: useful work between saves now, to compare with.
        held_gpu_s: the GPU time that waste is told of.
        shorter_hang_s: what hangs would cost per failure with another timeout, to tell what that is worth.

    Returns:
        None where saves cost nothing, so that the model knows no best interval.
    """
    if model.optimal_s <= 0:
        return None
    best = model.shares(model.optimal_s)
    low_s, high_s = model.flat_range_s()
    return IntervalAdvice(
        model=model,
        young_s=young_s(model.checkpoint_s, model.mtbf_s),
        daly_s=daly_s(model.checkpoint_s, model.mtbf_s),
        optimal_s=model.optimal_s,
        at_optimal=best,
        flat_low_s=low_s,
        flat_high_s=high_s,
        actual_s=actual_s,
        at_actual=None if actual_s is None else model.shares(actual_s),
        held_gpu_s=held_gpu_s,
        what_ifs=tuple(sorted(_what_ifs(model, best, held_gpu_s, shorter_hang_s), key=lambda w: -w.gained_ratio)),
    )


def _what_ifs(
    model: CostModel, best: Shares, held_gpu_s: float | None, shorter_hang_s: float | None
) -> Iterable[WhatIf]:
    changes: dict[str, tuple[str, dict[str, float]]] = {}
    if model.write_s == 0 and model.checkpoint_s > LEAST_FOR_ASYNC_S:
        blocked_s = ASYNC_BLOCKING_RATIO * model.checkpoint_s
        changes["async_save"] = (
            f"a save blocks for {blocked_s:.3g} s and is durable {model.checkpoint_s:.3g} s later",
            {"checkpoint_s": blocked_s, "write_s": model.checkpoint_s},
        )
    if model.restart_s > 0:
        faster_s = FASTER_RESTART_RATIO * model.restart_s
        changes["faster_restart"] = (f"a restart takes {faster_s:.3g} s", {"restart_s": faster_s})
    if shorter_hang_s is not None and shorter_hang_s < model.hang_s:
        changes["shorter_timeout"] = (
            f"a failure is noticed after {shorter_hang_s:.3g} s on average",
            {"hang_s": shorter_hang_s},
        )
    if len(changes) > 1:
        together = {field: value for _, fields in changes.values() for field, value in fields.items()}
        changes["all"] = ("all of these", together)
    for change, (assumes, fields) in changes.items():
        after = replace(model, **fields)
        goodput = after.goodput_ratio(after.optimal_s)
        gained = goodput - best.goodput_ratio
        yield WhatIf(
            change=change,
            assumes=assumes,
            optimal_s=after.optimal_s,
            goodput_ratio=goodput,
            gained_ratio=gained,
            gained_gpu_s=None if held_gpu_s is None else gained * held_gpu_s,
        )


def cost(gpu_s: float | None, price_per_gpu_hour: float | None) -> float | None:
    """GPU time in money; None where either is not known."""
    if gpu_s is None or price_per_gpu_hour is None:
        return None
    return gpu_s / GPU_S_PER_GPU_HOUR * price_per_gpu_hour
