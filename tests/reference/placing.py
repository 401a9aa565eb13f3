"""Placing: in which of an attempt's lives each rank made each step, also where ranks tell of different rollbacks."""

from __future__ import annotations

from dataclasses import dataclass

from .members import Member, Passage, Step


@dataclass(frozen=True, kw_only=True)
class Placing:
    """An attempt's lives, the steps of every rank with theirs, and the words of what was resumed from with theirs."""

    moments: list[int | None]  # when each life began; None for the first
    steps: list[tuple[Member, int, Step]]
    resumes: list[tuple[Member, int, int | None]]
    full: list[Member]  # they tell as many rollbacks as any


@dataclass(frozen=True, kw_only=True)
class Cut:
    """Where the leading rank began a life, on its own clock."""

    told_ns: int
    between_ns: int  # in the middle between the ends of its steps on either side; when it told, if none came after


def place(members: list[Member]) -> Placing:
    """The ranks that saw the most rollbacks say where they were; the others follow the lowest of these by time.

    By the time of their own clocks: how far these are off is found from lives.
    """
    passages = {id(m): m.passages() for m in members}
    n = max(len(p) for p in passages.values())
    full = [m for m in members if len(passages[id(m)]) == n]
    moments: list[int | None] = [None]
    for k in range(1, n):
        seen = [passages[id(m)][k].moment_ns for m in full]
        moments.append(min(when for when in seen if when is not None))
    cuts = cuts_of(passages[id(min(full, key=lambda m: (m.rank, m.source)))])
    steps: list[tuple[Member, int, Step]] = []
    resumes: list[tuple[Member, int, int | None]] = []
    for member in members:
        own = len(passages[id(member)]) == n
        at = 0
        for k, passage in enumerate(passages[id(member)]):
            for when, loaded in passage.resumes:
                at = k if own else max([at, *(j for j, cut in enumerate(cuts, 1) if when >= cut.told_ns)])
                resumes.append((member, at, loaded))
            for step in passage.steps:
                at = k if own else max([at, *(j for j, cut in enumerate(cuts, 1) if step.raw_end_ns >= cut.between_ns)])
                steps.append((member, at, step))
    return Placing(moments=moments, steps=steps, resumes=resumes, full=full)


def cuts_of(passages: list[Passage]) -> list[Cut]:
    cuts = []
    last: int | None = None
    for k, passage in enumerate(passages):
        if k:
            told = passage.raw_moment_ns
            assert told is not None and last is not None
            following = passage.steps[0].raw_end_ns if passage.steps else None
            cuts.append(Cut(told_ns=told, between_ns=told if following is None else last + (following - last) // 2))
        if passage.steps:
            last = passage.steps[-1].raw_end_ns
    return cuts
