"""Two runs side by side, before and after a change: which is better, by how much, and what makes the difference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from goodput_analytics.fleet import NOT_LOST
from goodput_analytics.model import Category, Report

SAME_RATIO = 0.005
"""Runs whose goodput differs by less are taken for equal: half a point."""
NAMED_RATIO = 0.005
"""A category whose share differs by less is not named as a reason."""
MOST_REASONS = 3

VERDICT_BETTER, VERDICT_WORSE, VERDICT_SAME, VERDICT_UNKNOWN = "better", "worse", "same", "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The share that one category has of the GPU time in both runs. `worse`: the second run loses more to it."""

    category: str
    before_ratio: float
    after_ratio: float

    @property
    def by_ratio(self) -> float:
        """How much larger the share is in the second run."""
        return self.after_ratio - self.before_ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """How the second run does beside the first.

    Attributes:
        before, after: their names.
        verdict: `better`, `worse`, `same`, or `unknown` where one of them held nothing yet.
        goodput_by_ratio: goodput of the second less that of the first.
        worth_gpu_s: what the second would have lost more (or less, below 0) with the goodput of the first.
        changes: by category, the largest difference first.
        says, evidence: the verdict and its reasons in sentences.
    """

    before: str
    after: str
    verdict: str
    goodput_by_ratio: float | None
    worth_gpu_s: float | None
    changes: tuple[Change, ...]
    says: str
    evidence: tuple[str, ...]


def compare(before: Report, after: Report) -> Comparison:
    """The second run held against the first, GPU-hour for GPU-hour: so runs of any two lengths and sizes compare."""
    if before.goodput_ratio is None or after.goodput_ratio is None:
        lacking = before.run if before.goodput_ratio is None else after.run
        return Comparison(
            before=before.run,
            after=after.run,
            verdict=VERDICT_UNKNOWN,
            goodput_by_ratio=None,
            worth_gpu_s=None,
            changes=(),
            says=f"Nothing can be said yet: {lacking} held no GPU time.",
            evidence=(),
        )
    by = after.goodput_ratio - before.goodput_ratio
    verdict = VERDICT_SAME if abs(by) < SAME_RATIO else VERDICT_BETTER if by > 0 else VERDICT_WORSE
    changes = _changes(before, after)
    return Comparison(
        before=before.run,
        after=after.run,
        verdict=verdict,
        goodput_by_ratio=by,
        worth_gpu_s=by * after.allocated_gpu_s,
        changes=changes,
        says=_says(before, after, verdict, by),
        evidence=(*_reasons(changes, by), *_cautions(before, after)),
    )


def _changes(before: Report, after: Report) -> tuple[Change, ...]:
    found = [
        Change(
            category=category.value,
            before_ratio=before.gpu_s[category] / before.allocated_gpu_s,
            after_ratio=after.gpu_s[category] / after.allocated_gpu_s,
        )
        for category in Category
        if category != Category.PRODUCTIVE
    ]
    return tuple(sorted(found, key=lambda one: -abs(one.by_ratio)))


def _says(before: Report, after: Report, verdict: str, by: float) -> str:
    ratios = f"{_percent(before.goodput_ratio)} before, {_percent(after.goodput_ratio)} after"
    if verdict == VERDICT_SAME:
        return f"{after.run} does as well as {before.run}: goodput {ratios}."
    return f"{after.run} is {verdict} than {before.run} by {abs(100 * by):.1f} points of goodput: {ratios}."


def _reasons(changes: Sequence[Change], by: float) -> list[str]:
    """The categories that moved goodput in the direction it went, or for equal runs those that moved at all."""
    same = abs(by) < SAME_RATIO
    moved = [one for one in changes if abs(one.by_ratio) >= NAMED_RATIO and (same or one.by_ratio * by < 0)]
    against = [one for one in changes if not same and one.by_ratio * by > 0 and abs(one.by_ratio) >= NAMED_RATIO]
    words = [
        f"{_named(one)} took {_percent(one.before_ratio)} before and {_percent(one.after_ratio)} after."
        for one in moved[:MOST_REASONS]
    ]
    words += [
        f"Against it: {_named(one)} went from {_percent(one.before_ratio)} to {_percent(one.after_ratio)}."
        for one in against[:1]
    ]
    return words


def _cautions(before: Report, after: Report) -> list[str]:
    words = []
    for one in (before, after):
        if one.state in ("running", "hung", "paused"):
            words.append(f"{one.run} is still at work; its figures will move.")
        if not one.incidents:
            words.append(f"{one.run} met no incident: its rework and restarts say nothing about how it would bear one.")
    return words


def _named(change: Change) -> str:
    return f"{change.category}{' (no loss)' if change.category in NOT_LOST else ''}"


def _percent(ratio: float | None) -> str:
    return "unknown" if ratio is None else f"{100 * ratio:.1f} %"
