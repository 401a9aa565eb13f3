"""Which processes were one attempt, and which attempts were one launch.

Pure: facts about processes in, numbers out. Clocks here are the processes' own; they only order.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

FINISHED = frozenset({"finished", "exited"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PartFacts:
    """One life of one process, as the relation `part_facts` tells it. Times in ns on the process's own clock."""

    source_id: int
    part: int
    source: str
    from_seq: int
    to_seq: int
    token: str | None
    rank: int
    world_size: int
    node: str | None
    devices: int
    grp: str | None
    job: str | None
    process_ns: int
    told_ns: int
    first_step_ns: int | None
    last_step_ns: int | None
    first_done_ns: int | None
    last_told_ns: int | None
    stop_ns: int | None
    stop_reason: str | None
    exit_ns: int | None

    @property
    def gone_ns(self) -> int | None:
        """When the rank had gone: at its stop, or else when somebody saw that it had."""
        return self.stop_ns if self.stop_ns is not None else self.exit_ns


def align(part: PartFacts, marks: Sequence[tuple[int, int]]) -> PartFacts:
    """The facts of a part on aligned clocks.

    Args:
        part: on its own clock.
        marks: from when on (own clock, ascending) which offset is to be taken off; the first holds from the beginning.
    """
    froms = [from_ns for from_ns, _ in marks]
    first_ns = marks[0][1]

    def moved(ns: int | None) -> int | None:
        return None if ns is None else ns - marks[max(bisect_right(froms, ns) - 1, 0)][1]

    # Field by field: `replace` takes five times as long, and there may be thousands.
    return PartFacts(
        source_id=part.source_id,
        part=part.part,
        source=part.source,
        from_seq=part.from_seq,
        to_seq=part.to_seq,
        token=part.token,
        rank=part.rank,
        world_size=part.world_size,
        node=part.node,
        devices=part.devices,
        grp=part.grp,
        job=part.job,
        process_ns=part.process_ns - first_ns,
        told_ns=part.told_ns - first_ns,
        first_step_ns=moved(part.first_step_ns),
        last_step_ns=moved(part.last_step_ns),
        first_done_ns=moved(part.first_done_ns),
        last_told_ns=moved(part.last_told_ns),
        stop_ns=moved(part.stop_ns),
        stop_reason=part.stop_reason,
        exit_ns=moved(part.exit_ns),
    )


@dataclass(slots=True)
class Group:
    """An attempt being put together, with what the next process is held against."""

    members: list[PartFacts] = field(default_factory=list)
    token: str | None = None
    ranks: set[int] = field(default_factory=set)
    first_gone_ns: int | None = None
    first_done_ns: int | None = None

    def add(self, part: PartFacts) -> None:
        self.members.append(part)
        self.ranks.add(part.rank)
        self.first_gone_ns = _least(self.first_gone_ns, part.gone_ns)
        self.first_done_ns = _least(self.first_done_ns, part.first_done_ns)
        if self.token is None:
            self.token = part.token

    def takes(self, part: PartFacts) -> bool:
        """Whether a process without a known token may belong here."""
        if part.rank in self.ranks or part.world_size != self.members[-1].world_size:
            return False
        if self.first_done_ns is not None and self.first_done_ns <= part.process_ns:
            return False
        if self.first_gone_ns is None or self.first_gone_ns > part.process_ns:
            return True
        end_ns = ended_ns(self.members)
        return end_ns is None or end_ns > part.process_ns


def _least(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else min(a, b)


def ended_ns(members: Sequence[PartFacts]) -> int | None:
    """When an attempt of these processes ended by their own word or by what was seen of them; None while it lives."""
    n = len(members)
    stops = [m.stop_ns for m in members if m.stop_ns is not None]
    if 2 * sum(m.stop_reason in FINISHED for m in members) > n:
        return max(stops)
    bad = sorted(m.stop_ns for m in members if m.stop_ns is not None and m.stop_reason not in FINISHED)
    gone = sorted(m.gone_ns for m in members if m.gone_ns is not None)
    if not bad and not any(m.stop_ns is None and m.exit_ns is not None for m in members):
        return None
    moments = []
    if bad:
        moments.append(bad[len(bad) // 2])
    if 2 * len(gone) > n:
        moments.append(gone[n // 2])
    return max(moments) if moments else max(gone)


def group_attempts(parts: Iterable[PartFacts]) -> list[list[PartFacts]]:
    """Put processes together to attempts.

    Args:
        parts: the processes in order of `process_ns`.

    Returns:
        The attempts, each with its processes, in order of their first process's start.
    """
    groups: list[Group] = []
    by_token: dict[str, Group] = {}
    current: Group | None = None
    for part in parts:
        group = by_token.get(part.token) if part.token is not None else None
        if group is None:
            joins = current is not None and (part.token is None or current.token is None) and current.takes(part)
            if joins and current is not None:
                group = current
            else:
                group = Group()
                groups.append(group)
        group.add(part)
        if group.token is not None:
            by_token[group.token] = group
        current = group
    return [group.members for group in groups]


@dataclass(slots=True)
class _Lane:
    """One launch: its attempts, and those of them that may still progress beside a later one."""

    attempts: list[list[PartFacts]] = field(default_factory=list)
    recent: list[tuple[int, int]] = field(default_factory=list)

    def beside(self, span: tuple[int, int] | None, overlap_ns: int) -> bool:
        if span is None:
            return False
        return any(min(last, span[1]) - max(first, span[0]) > overlap_ns for first, last in self.recent)


def _progress(members: Sequence[PartFacts]) -> tuple[int, int] | None:
    """From the first step's start to the last step's end, without what came after the attempt's end."""
    firsts = [m.first_step_ns for m in members if m.first_step_ns is not None]
    lasts = [m.last_step_ns for m in members if m.last_step_ns is not None]
    if not firsts or not lasts:
        return None
    end_ns = ended_ns(members)
    last = max(lasts) if end_ns is None else min(max(lasts), end_ns)
    return min(firsts), last


def split_launches(attempts: Iterable[list[PartFacts]], overlap_ns: int) -> list[list[list[PartFacts]]]:
    """Tell launches apart that run side by side under one name.

    Args:
        attempts: in order of start.
        overlap_ns: two attempts that both progress for longer than this at the same time are two launches.

    Returns:
        The launches, the first one first; each holds its attempts in order of start.
    """
    lanes: list[_Lane] = []
    for members in attempts:
        span = _progress(members)
        began_ns = min(m.process_ns for m in members)
        free = [lane for lane in lanes if not lane.beside(span, overlap_ns)]
        jobs = {m.job for m in members if m.job is not None}
        same_job = [lane for lane in free if any(m.job in jobs for m in lane.attempts[-1])]
        fitting = same_job or free
        if not fitting:
            fitting = [_Lane()]
            lanes.extend(fitting)
        lane = fitting[0]
        lane.attempts.append(members)
        lane.recent = [r for r in lane.recent if r[1] > began_ns]
        if span is not None:
            lane.recent.append(span)
    return [lane.attempts for lane in lanes]
