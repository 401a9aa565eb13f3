"""The line: which steps the run's present state descends from, and which were thrown away."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise

from .saves import Save
from .windows import Course, Life, Window

NOTHING = -(1 << 80)  # resumed from nothing: below every step
EVERYTHING = 1 << 80

Key = tuple[int, int]  # attempt, life within it
Charge = tuple[str, int, int]  # "end" or "rollback", attempt, life (0 for an end)


@dataclass(kw_only=True)
class Line:
    """What was kept of each life: the steps in (low, high], none where it is missing."""

    kept: dict[Key, tuple[int, int]] = field(default_factory=dict)
    resumed_at: dict[Key, int | None] = field(default_factory=dict)  # None where a life says nothing
    durable_step: int | None = None  # the last durable checkpoint; None where none was ever reported
    order: list[Life] = field(default_factory=list)
    assumed: bool = False  # steps kept after an abort though no checkpoint was ever reported

    def kept_of(self, w: Window) -> int:
        """How many of the steps that the window stands for were kept."""
        low, high = self.kept.get((w.attempt, w.life), (EVERYTHING, NOTHING))
        return max(0, min(w.step, high) - max(w.step - w.count, low))

    def thrown_of(self, w: Window, life: Life) -> list[tuple[Charge, int]]:
        """The window's thrown-away steps in order, as runs of one charge with their number."""
        return [(charge, n) for charge, n in self.fates_of(w, life) if charge is not None]

    def fates_of(self, w: Window, life: Life) -> list[tuple[Charge | None, int]]:
        """The window's steps in order, as runs of one fate with their number: kept (None), or whose charge they are.

        What the window claims of steps before its life began has the fate of the life's first step.
        """
        first, last = w.step - w.count, w.step  # the steps in (first, last]
        low, high = self.kept.get((w.attempt, w.life), (EVERYTHING, EVERYTHING))
        began = self.resumed_at[w.attempt, w.life]
        above = first if began is None else max(first, began)
        resumed = [self.resumed_at[x.attempt, x.ordinal] for x in self.order]
        inner = {low, high, *(x for x in resumed if x is not None and not low < x < high)}
        inner = {x for x in inner if above < x < last}
        runs = pairwise(sorted({above, last, *inner}))
        fates = [(None if low <= a and b <= high else self.charged_to(life, a + 1), b - a) for a, b in runs]
        return [(fates[0][0], fates[0][1] + above - first), *fates[1:]]

    def keeps(self, life: Life, step: int) -> bool:
        """Whether an evaluation of `step`, made in `life`, still counts."""
        key = (life.attempt, life.ordinal)
        if key in self.kept:
            return step <= self.kept[key][1]
        resumed = self.resumed_at.get(key)
        return resumed is None or step <= resumed

    def charged_to(self, life: Life, step: int) -> Charge:
        """The interruption that cost a thrown-away step of `life`."""
        at = self.order.index(life)
        for n in range(at + 1, len(self.order)):
            later = self.order[n]
            resumed = self.resumed_at[later.attempt, later.ordinal]
            if resumed is not None and resumed < step:
                if later.ordinal > 0:
                    return ("rollback", later.attempt, later.ordinal)
                before = [x for x in self.order[:n] if x.windows]
                return ("end", before[-1].attempt, 0)
        return ("end", life.attempt, 0)


def resume_step(life: Life) -> int | None:
    """The step from which the life went on; NOTHING for none; None when it neither stepped nor resumed."""
    first = life.windows[0].step - life.windows[0].count if life.windows else None
    if life.all_said_null and (first is None or first <= 0):
        return NOTHING
    told = [r for r in life.resumes if r is not None]
    if told:
        return min(told) if first is None else min(min(told), first)
    if first is None and life.resumes:
        return NOTHING
    return first


def draw(courses: list[Course], saves: list[Save]) -> Line:
    """Follows the present state back through the lives."""
    line = Line(order=[life for c in courses for life in c.lives])
    for life in line.order:
        line.resumed_at[life.attempt, life.ordinal] = resume_step(life)
    begun = list(courses)
    while begun and all(not x.windows and not x.resumes for x in begun[-1].lives):
        begun.pop()
    lives = [life for c in begun for life in c.lives]
    b, reported = durable_step(lives, saves, line)
    line.durable_step = b if reported else None
    if not begun:
        return line
    rest = lives
    if begun[-1].attempt.ending.kind == "aborted" and reported:
        high = b
    else:
        line.assumed = begun[-1].attempt.ending.kind == "aborted"
        last = lives[-1]
        r = line.resumed_at[last.attempt, last.ordinal]
        assert r is not None
        line.kept[last.attempt, last.ordinal] = (r, EVERYTHING)
        rest = lives[:-1]
        high = r
    while True:
        chosen = next_on_line(rest, high, line)
        if chosen is None:
            return line
        life = rest[chosen]
        r = line.resumed_at[life.attempt, life.ordinal]
        assert r is not None
        line.kept[life.attempt, life.ordinal] = (r, high)
        rest = rest[:chosen]
        high = r


def next_on_line(rest: list[Life], b: int, line: Line) -> int | None:
    """Which of the lives in `rest` the step `b` was reached in."""
    best: tuple[int, int] | None = None
    for n in reversed(range(len(rest))):
        life = rest[n]
        if not life.windows:
            continue
        r = line.resumed_at[life.attempt, life.ordinal]
        m = max(w.step for w in life.windows)
        assert r is not None
        if r < b <= m:
            return n
        if r < b and (best is None or m > best[0]):
            best = (m, n)
    return None if best is None else best[1]


def durable_step(lives: list[Life], saves: list[Save], line: Line) -> tuple[int, bool]:
    """The step of the last durable checkpoint, and whether the run ever reported any checkpoint at all."""
    by_life: dict[Key, list[Save]] = defaultdict(list)
    for save in saves:
        by_life[save.attempt, save.life].append(save)
    reported = bool(saves) or any(r is not None for life in lives for r in life.resumes)
    for life in reversed(lives):
        key = (life.attempt, life.ordinal)
        durable = [s for s in by_life[key] if s.durable_ns is not None and s.step is not None]
        if durable:
            newest = max(durable, key=lambda s: (s.durable_ns or 0, s.step or 0))
            assert newest.step is not None
            return newest.step, reported
        if life.resumes:
            r = line.resumed_at[key]
            assert r is not None
            return r, reported
    return NOTHING, reported
