"""The ledger: claims held against what each job held, so that every GPU-nanosecond is entered once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

from goodput_analytics.model import Category

from .attempts import Attempt
from .claims import Claim, Context, active_claims
from .holds import Grant, Hold
from .windows import Course


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One interval of the ledger."""

    run: str
    job: str
    claim: Claim
    gpus: int

    @property
    def gpu_ns(self) -> int:
        return (self.claim.end_ns - self.claim.start_ns) * self.gpus

    def as_tuple(self) -> tuple[str, int | None, str, str | None, int, int, int, int | None]:
        c = self.claim
        return (self.run, c.attempt, str(c.category), c.phase, c.start_ns, c.end_ns, self.gpus, c.step)


def job_claims(
    courses: list[Course], following: dict[int, int | None], granted: list[Hold] | None, context: Context
) -> tuple[list[Claim], list[Hold]]:
    """One job's claims in order of time, and the holds that follow from its attempts where no scheduler told any.

    `following` says for each attempt when the run's next one began.
    """
    claims: list[Claim] = []
    holds: list[Hold] = []
    previous: Attempt | None = None
    at = 0
    for c in courses:
        attempt = c.attempt
        if previous is None:
            # From the start of the allocation the GPUs wait for the first process.
            at = attempt.process_start_ns
            if granted:
                at = min([at, *(h.start_ns for h in granted)])
        else:
            began = (
                attempt.process_start_ns if c.first_step_ns is None else min(attempt.process_start_ns, c.first_step_ns)
            )
            if began > at:
                claims += between(previous, attempt, at, began, following, granted is not None, context)
                holds.append(Hold(start_ns=at, end_ns=began, gpus=previous.size))
                at = began
        start = at
        own = active_claims(c, start, context)
        claims += own
        at = max(at, c.end_ns)
        release = at if attempt.ending.release_ns is None else max(at, attempt.ending.release_ns)
        holds.append(Hold(start_ns=start, end_ns=release, gpus=attempt.size))
        if release > at:
            over = attempt.ending.kind == "finished"
            claims.append(
                Claim(
                    start_ns=at,
                    end_ns=release,
                    category=Category.IDLE if over else Category.STARTUP,
                    phase=None if over else "teardown",
                    attempt=None if over else attempt.number,
                    size=attempt.size,
                )
            )
        at = release
        previous = attempt
    if previous is not None and granted is not None and is_silent(previous, following, context):
        # The next attempt belongs to another job, yet this one was held through the silence.
        until = following[previous.number]
        assert until is not None
        if until > at:
            claims.append(silence(previous, at, until))
    return claims, holds


def is_silent(attempt: Attempt, following: dict[int, int | None], context: Context) -> bool:
    """Whether the attempt ended without a word, and was silent for long before the next one began."""
    began = following[attempt.number]
    end = attempt.ending.end_ns
    return (
        attempt.ending.kind == "aborted"
        and not attempt.ending.seen
        and not attempt.ending.by_allocation
        and began is not None
        and end is not None
        and context.tails[attempt.number] is not None
        and began - end > context.settings.silence_ns
    )


def silence(attempt: Attempt, start: int, end: int) -> Claim:
    return Claim(
        start_ns=start,
        end_ns=end,
        category=Category.HANG,
        phase="silent",
        attempt=attempt.number,
        size=attempt.size,
        charge=("end", attempt.number, 0),
        assumed="silence",
    )


def between(
    previous: Attempt,
    attempt: Attempt,
    start: int,
    end: int,
    following: dict[int, int | None],
    granted: bool,
    context: Context,
) -> list[Claim]:
    """From one attempt's release to the next one's first process."""
    out = []
    if is_silent(previous, following, context):
        until = min(end, following[previous.number] or end)
        if until > start:
            out.append(silence(previous, start, until))
            start = until
    if end > start:
        out.append(
            Claim(
                start_ns=start,
                end_ns=end,
                category=Category.STARTUP,
                phase="restart",
                attempt=attempt.number,
                size=attempt.size if granted else previous.size,
                assumed=None if granted else "gap",
            )
        )
    return out


def enter(run: str, job: str, claims: list[Claim], holds: list[Hold]) -> list[Entry]:
    """Every held GPU-nanosecond once: to the claim on it as far as its size goes, the others idle."""
    ordered = sorted(claims, key=lambda c: c.start_ns)
    assert all(a.end_ns <= b.start_ns for a, b in pairwise(ordered)), "claims overlap"
    stretches: list[Claim | Hold] = [*claims, *holds]
    edges = sorted({t for x in stretches for t in (x.start_ns, x.end_ns)})
    out: list[Entry] = []
    at = 0
    for a, b in pairwise(edges):
        held = sum(h.gpus for h in holds if h.start_ns <= a and h.end_ns >= b)
        while at < len(ordered) and ordered[at].end_ns <= a:
            at += 1
        claim = ordered[at] if at < len(ordered) and ordered[at].start_ns <= a else None
        driven = 0 if claim is None else min(held, claim.size)
        if claim is not None and driven:
            out.append(Entry(run=run, job=job, claim=replace(claim, start_ns=a, end_ns=b), gpus=driven))
        if held > driven:
            idle = Claim(start_ns=a, end_ns=b, category=Category.IDLE, phase=None, attempt=None, size=held - driven)
            out.append(Entry(run=run, job=job, claim=idle, gpus=held - driven))
    return joined(out)


def joined(entries: list[Entry]) -> list[Entry]:
    """Neighbours that say the same are one entry."""
    out: list[Entry] = []
    ending: dict[tuple[int, int, Claim], int] = {}  # (end, gpus, what it says): index in `out`
    for entry in entries:
        c = entry.claim
        says = replace(c, start_ns=0, end_ns=0)
        n = ending.pop((c.start_ns, entry.gpus, says), None)
        if n is None:
            n = len(out)
            out.append(entry)
        else:
            out[n] = replace(out[n], claim=replace(out[n].claim, end_ns=c.end_ns))
        ending[c.end_ns, entry.gpus, says] = n
    return out


def grants_held(grant: Grant | None, now_ns: int) -> list[Hold] | None:
    """What the scheduler said the job held; None where it said nothing of the job."""
    return None if grant is None else grant.holds(now_ns)
