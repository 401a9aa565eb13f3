"""The line of a run: the chain of steps that its present state descends from.

Pure: lives in, fates out. A *life* is an attempt, or what follows a rollback inside one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

BEYOND = 1 << 62
"""Above every step: an evaluation may speak of a step whose own event never came."""

NOTHING = -1
"""The step of a state that descends from no step at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One life, in order of time.

    Attributes:
        attempt, life: which one.
        base: the step that its state began from (the resume step r).
        resumed: whether a rank said what it resumed from.
        last_step: its last step, None if it made none.
        durable_step: the step of the newest checkpoint that became durable in it, None if none did.
    """

    attempt: int
    life: int
    base: int
    resumed: bool
    last_step: int | None
    durable_step: int | None

    @property
    def went_on(self) -> bool:
        """Whether it made a step or said from which it would; a save alone tells nothing of where it came from."""
        return self.resumed or self.last_step is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """What became of the steps in (after_step, to_step] of a life.

    Attributes:
        kept: whether the present state descends from them.
        lowest: the life's first range: what an event claims of steps before its life began counts to it too.
        charged_attempt, charged_life: for steps thrown away: the life whose end is charged with them.
    """

    attempt: int
    life: int
    after_step: int
    to_step: int
    kept: bool
    lowest: bool
    charged_attempt: int | None
    charged_life: int | None


def last_durable(lives: Sequence[Life]) -> int:
    """The step that the run would go on from if it died now: the newest durable save of the last life that has one,
    unless a later life resumed, and then the step that it resumed from."""
    for life in reversed(lives):
        if life.durable_step is not None:
            return life.durable_step
        if life.resumed:
            return life.base
    return NOTHING


def base_step(*, resumes: Sequence[int | None], every_rank: bool, first_step: int | None, count: int) -> int:
    """The resume step of a life.

    Args:
        resumes: what its ranks said they resumed from; None for nothing.
        every_rank: whether every rank said so.
        first_step, count: its first step (None if it made none) and how many steps that event stands for.
    """
    told = [r for r in resumes if r is not None]
    limit = first_step - count if first_step is not None else None
    if told:
        return min(told) if limit is None else min(min(told), limit)
    if limit is None:
        return NOTHING
    if resumes and every_rank and limit <= 0:
        return min(limit, 0)
    return limit


def kept_until(lives: Sequence[Life], *, aborted: bool, reported: bool) -> list[int | None]:
    """For each life the step up to which it is kept, BEYOND for all; None for a life off the line.

    Args:
        lives: in order of time. A last attempt with neither a step nor a resume is not among them.
        aborted: whether the last attempt aborted, so that the state is that of the last durable checkpoint.
        reported: whether the run ever reported a checkpoint, saved or loaded.
    """
    until: list[int | None] = [None] * len(lives)
    if not lives:
        return until
    position = len(lives)
    if aborted and reported:
        bound = last_durable(lives)
    else:
        position -= 1
        until[position] = BEYOND
        bound = lives[position].base
    while True:
        found = _before(lives, position, bound)
        if found is None:
            return until
        until[found] = bound
        position, bound = found, lives[found].base


def _before(lives: Sequence[Life], position: int, bound: int) -> int | None:
    """The life before `position` in which the state at step `bound` was made."""
    best: int | None = None
    best_step = NOTHING
    for i in range(position - 1, -1, -1):
        life = lives[i]
        if life.last_step is None or life.base >= bound:
            continue
        if bound <= life.last_step:
            return i
        if best is None or life.last_step > best_step:
            best, best_step = i, life.last_step
    return best


def fates(lives: Sequence[Life], *, aborted: bool, reported: bool) -> list[Fate]:
    """What became of every step of every life: kept, or thrown away and charged to the end of which life.

    A thrown-away step is charged to the end of the last life with steps before the life that resumed below it, or to
    its own attempt's end if none did.
    """
    bounds = kept_until(lives, aborted=aborted, reported=reported)
    until = [
        None if bound is None or life.last_step is None else min(bound, life.last_step)
        for bound, life in zip(bounds, lives, strict=True)
    ]
    own_end = _last_of_attempt(lives)
    found: list[Fate] = []
    for i, life in enumerate(lives):
        if life.last_step is None:
            continue
        kept = until[i]
        if kept is not None:
            found.append(_fate(life, life.base, kept, None))
        found.append(_beyond(lives, i, bounds[i], own_end))
        low = life.base if kept is None else kept
        high = life.last_step
        with_steps = i
        for later in range(i + 1, len(lives)):
            if high <= low:
                break
            if lives[later].went_on and lives[later].base < high:
                cut = max(low, lives[later].base)
                found.append(_fate(life, cut, high, _payer(lives, with_steps, later, own_end)))
                high = cut
            if lives[later].last_step is not None:
                with_steps = later
        if high > low:
            found.append(_fate(life, low, high, lives[own_end[life.attempt]]))
    return found


def _beyond(lives: Sequence[Life], i: int, bound: int | None, own_end: dict[int, int]) -> Fate:
    """The fate of what is said of steps above a life's last one; steps that are merely missing were not thrown away."""
    life = lives[i]
    last_step = life.last_step
    assert last_step is not None
    if bound is not None and bound > last_step:
        return _fate(life, last_step, BEYOND, None)
    with_steps = i
    for later in range(i + 1, len(lives)):
        if lives[later].went_on and lives[later].base <= last_step:
            return _fate(life, last_step, BEYOND, _payer(lives, with_steps, later, own_end))
        if lives[later].last_step is not None:
            with_steps = later
    return _fate(life, last_step, BEYOND, lives[own_end[life.attempt]])


def _payer(lives: Sequence[Life], with_steps: int, later: int, own_end: dict[int, int]) -> Life:
    """The life whose end pays when life `later` resumes below: a rollback's, or the last one of its attempt."""
    life = lives[with_steps]
    return life if life.attempt == lives[later].attempt else lives[own_end[life.attempt]]


def _last_of_attempt(lives: Sequence[Life]) -> dict[int, int]:
    return {life.attempt: i for i, life in enumerate(lives)}


def _fate(life: Life, after_step: int, to_step: int, charged: Life | None) -> Fate:
    return Fate(
        attempt=life.attempt,
        life=life.life,
        after_step=after_step,
        to_step=to_step,
        kept=charged is None,
        lowest=after_step == life.base,
        charged_attempt=None if charged is None else charged.attempt,
        charged_life=None if charged is None else charged.life,
    )
