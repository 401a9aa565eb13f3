"""Attempts: which members lived together, and how and when each such life ended."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from goodput_analytics.settings import Settings

from .events import Source
from .holds import Grant
from .members import ABNORMAL, Member, members_of, step_end


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How a worker group ended. `end_ns` and `release_ns` are None while it lives."""

    kind: str  # finished, aborted, live
    end_ns: int | None
    release_ns: int | None
    seen: bool  # somebody was seen to go
    by_allocation: bool = False


@dataclass(kw_only=True)
class Attempt:
    """One life of the worker group, on aligned clocks; what was done after its end is already left out."""

    number: int
    members: list[Member]
    ending: Ending = field(default_factory=lambda: Ending(kind="live", end_ns=None, release_ns=None, seen=False))

    @property
    def chief(self) -> Member:
        """The member of the lowest rank."""
        return min(self.members, key=lambda m: (m.rank, m.process_start_ns, m.source))

    @property
    def job(self) -> str:
        """What most ranks say, among equals what the lowest rank says."""
        return job_of(self.members)

    @property
    def world_size(self) -> int:
        return max(m.world_size for m in self.members)

    @property
    def size(self) -> int:
        """The GPUs that it drives."""
        by_rank: dict[int, int] = {}
        for m in self.members:
            by_rank[m.rank] = max(by_rank.get(m.rank, 0), m.devices)
        missing = max(0, self.world_size - len(by_rank))
        return sum(by_rank.values()) + missing * max(by_rank.values())

    @property
    def process_start_ns(self) -> int:
        return min(m.process_start_ns for m in self.members)

    @property
    def start_ns(self) -> int:
        """The first `start` event."""
        return min(m.start_ns for m in self.members)

    @property
    def first_step_ns(self) -> int | None:
        """Where its first step starts, the earliest over ranks; None without a step."""
        starts = [m.passages()[0].steps[0].start_ns for m in self.members if m.passages()[0].steps]
        return min(starts, default=None)


def job_of(members: list[Member]) -> str:
    votes = Counter(m.job for m in members)
    return max(votes, key=lambda job: (votes[job], -min(m.rank for m in members if m.job == job)))


def ending(members: list[Member], *, next_start_ns: int | None, grant_end_ns: int | None) -> Ending:
    """How the group of `members` ended, given when the next attempt began and its allocation ended, if they did."""
    n = len(members)
    stops = [m.stop for m in members if m.stop is not None]
    gone = sorted(m.gone_ns for m in members if m.gone_ns is not None)
    last_gone = gone[-1] if gone else None
    well = [s for s in stops if s["reason"] not in ABNORMAL]
    if 2 * len(well) > n:
        end = max(s["ts_ns"] for s in stops)
        return Ending(kind="finished", end_ns=end, release_ns=max(end, gone[-1]), seen=True)
    said = sorted(s["ts_ns"] for s in stops if s["reason"] in ABNORMAL)
    exited = any(m.exit_ns is not None and m.stop is None for m in members)
    if not said and not exited and next_start_ns is None and grant_end_ns is None:
        return Ending(kind="live", end_ns=None, release_ns=None, seen=bool(gone))
    moments = []
    if said:
        moments.append(said[len(said) // 2])
    if 2 * len(gone) > n:
        moments.append(gone[n // 2])
    by_allocation = False
    if moments:
        end = max(moments)
    elif last_gone is not None:
        end = last_gone
    elif grant_end_ns is not None and (next_start_ns is None or grant_end_ns < next_start_ns):
        end, by_allocation = max(grant_end_ns, min(m.process_start_ns for m in members)), True
    else:
        end = max(m.last_event_ns for m in members)
    release = end if last_gone is None else max(end, last_gone)
    return Ending(
        kind="aborted", end_ns=end, release_ns=release, seen=last_gone is not None, by_allocation=by_allocation
    )


def assemble(sources: list[Source], grants: dict[str, Grant], now_ns: int) -> list[list[Member]]:
    """Members that lived together, by tokens, else by the order in which their processes started (raw clocks)."""
    members = [m for source in sources for m in members_of(source)]
    members.sort(key=lambda m: (m.process_start_ns, m.source))
    groups: list[list[Member]] = []
    by_token: dict[str, list[Member]] = {}
    before: list[Member] | None = None
    for member in members:
        group = None if member.token is None else by_token.get(member.token)
        if group is None and before is not None:
            has_token = any(m.token for m in before)
            if (member.token is None or not has_token) and fits(member, before, grants, now_ns):
                group = before
        if group is None:
            group = []
            groups.append(group)
        group.append(member)
        if member.token is not None:
            by_token.setdefault(member.token, group)
        before = group
    return groups


def fits(member: Member, group: list[Member], grants: dict[str, Grant], now_ns: int) -> bool:
    """Whether a member whose own word does not say so may belong to the group."""
    over = ending(group, next_start_ns=None, grant_end_ns=None)
    steps = [step_end(e) for m in group for e in m.events if e["kind"] == "step"]
    return not (
        any(m.rank == member.rank for m in group)
        or any(m.world_size != member.world_size for m in group)
        or (over.end_ns is not None and over.end_ns <= member.process_start_ns)
        or any(end <= member.process_start_ns for end in steps)
    )


def ended(grant: Grant | None, since_ns: int) -> int | None:
    """When the job's allocation first ended after `since_ns`, if it has."""
    if grant is None:
        return None
    for i, piece in enumerate(grant.pieces):
        following = grant.pieces[i + 1]["start_ns"] if i + 1 < len(grant.pieces) else None
        end = piece.get("end_ns")
        if end is None or (following is not None and following <= end):
            continue
        end = max(end, piece["start_ns"])
        if end > since_ns:
            return int(end)
    return None


def lanes(attempts: list[Attempt], settings: Settings) -> list[list[Attempt]]:
    """Attempts that progress side by side for long are launches of their own: the later goes to another lane."""
    out: list[list[tuple[Attempt, int | None, int | None]]] = []
    for attempt in attempts:
        over = ending(attempt.members, next_start_ns=None, grant_end_ns=None)
        limit = over.end_ns
        steps = [
            step
            for m in (attempt.members if limit is None else [m.up_to(limit) for m in attempt.members])
            for p in m.passages()
            for step in p.steps
        ]
        first = min((s.start_ns for s in steps), default=None)
        last = max((s.end_ns for s in steps), default=None)

        def beside(lane: list[tuple[Attempt, int | None, int | None]], a: int | None, b: int | None) -> bool:
            if a is None or b is None:
                return False
            return any(
                x is not None and y is not None and min(b, y) - max(a, x) > settings.overlap_ns for _, x, y in lane
            )

        free = [lane for lane in out if not beside(lane, first, last)]
        same_job = [lane for lane in free if any(a.job == attempt.job for a, _, _ in lane)]
        if not free:
            out.append([])
        (same_job or free or out[-1:])[0].append((attempt, first, last))
    return [[attempt for attempt, _, _ in lane] for lane in out]


def settle(attempts: list[Attempt], grants: dict[str, Grant], now_ns: int) -> None:
    """Gives each attempt its number and its ending, and leaves out what came after.

    Within a job the GPUs can serve one attempt at a time: the first step of a later one ends those before it.
    """
    for n, attempt in enumerate(attempts):
        attempt.number = n
        following = attempts[n + 1].process_start_ns if n + 1 < len(attempts) else None
        attempt.ending = ending(
            attempt.members,
            next_start_ns=following,
            grant_end_ns=ended(grants.get(attempt.job), attempt.process_start_ns),
        )
        leave_out_what_follows(attempt)
    for n in reversed(range(len(attempts))):
        attempt = attempts[n]
        later = [a.first_step_ns for a in attempts[n + 1 :] if a.job == attempt.job and a.first_step_ns is not None]
        if not later or attempt.ending.end_ns is None or attempt.ending.release_ns is None:
            continue
        cap = min(later)
        attempt.ending = Ending(
            kind=attempt.ending.kind,
            end_ns=min(attempt.ending.end_ns, cap),
            release_ns=min(attempt.ending.release_ns, cap),
            seen=attempt.ending.seen,
            by_allocation=attempt.ending.by_allocation,
        )
        leave_out_what_follows(attempt)


def leave_out_what_follows(attempt: Attempt) -> None:
    if attempt.ending.end_ns is not None:
        attempt.members = [m.up_to(attempt.ending.end_ns) for m in attempt.members]
