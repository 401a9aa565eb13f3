"""Claims: what each attempt says its time was, before it is held against the GPUs that its job held."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from goodput_analytics.model import Category
from goodput_analytics.settings import Settings

from .attempts import Attempt
from .line import Charge, Line
from .naming import Names
from .spans import Patch, Span, patches
from .tail import Tail, ended_badly, phases
from .windows import Course, Life, Window

SAFE = Fraction(0)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A stretch of one attempt's time with its category, on `size` GPUs."""

    start_ns: int
    end_ns: int
    category: str
    phase: str | None
    attempt: int | None
    size: int
    step: int | None = None
    charge: Charge | None = None  # the interruption that pays for it, of rework and hang
    at_risk: Fraction = SAFE  # how much of it would be lost if the run died now
    rank: int | None = None  # to whom a straggler's loss is charged
    assumed: str | None = None  # why it rests on an assumption


@dataclass(kw_only=True)
class Context:
    """What decides how an attempt's time reads."""

    settings: Settings
    line: Line
    names: Names
    tails: dict[int, Tail | None]
    live: bool  # the last attempt is


@dataclass(kw_only=True)
class Writer:
    """Writes claims of one attempt in order of time, never twice over the same moment."""

    attempt: Attempt
    claims: list[Claim]
    at_ns: int

    def write(self, claim: Claim) -> None:
        start = max(claim.start_ns, self.at_ns)
        if claim.end_ns > start:
            self.claims.append(replace(claim, start_ns=start))
            self.at_ns = claim.end_ns

    def add(self, until_ns: int, category: str, phase: str | None, **more: object) -> None:
        self.write(
            Claim(
                start_ns=self.at_ns,
                end_ns=until_ns,
                category=category,
                phase=phase,
                attempt=self.attempt.number,
                size=self.attempt.size,
                **more,  # type: ignore[arg-type]
            )
        )


def active_claims(course: Course, start_ns: int, context: Context) -> list[Claim]:
    """From the moment the attempt has the GPUs to its end."""
    writer = Writer(attempt=course.attempt, claims=[], at_ns=start_ns)
    first_step = course.first_step_ns
    startup(writer, course, course.end_ns if first_step is None else min(first_step, course.end_ns))
    for life in course.lives:
        for window in life.windows:
            if window.restart_from_ns is not None:
                restart(writer, course, life, window, context)
            for claim in window_claims(window, life, course, context):
                writer.write(claim)
    if first_step is not None:
        finish(writer, course, context)
    return writer.claims


def startup(writer: Writer, course: Course, until_ns: int) -> None:
    for patch in patches(writer.at_ns, until_ns, course.spans) if until_ns > writer.at_ns else []:
        if patch.span is not None:
            writer.add(patch.end_ns, Category.STARTUP, patch.span.name)
            continue
        writer.add(min(patch.end_ns, course.attempt.start_ns), Category.STARTUP, "launch")
        writer.add(patch.end_ns, Category.STARTUP, "init")


def restart(writer: Writer, course: Course, life: Life, window: Window, context: Context) -> None:
    """Before the first step after a rollback: what no span covers is startup."""
    if window.start_ns <= writer.at_ns:
        return
    for patch in patches(writer.at_ns, window.start_ns, course.spans):
        if patch.span is None:
            writer.add(patch.end_ns, Category.STARTUP, "restart")
            continue
        category, phase, charge = fate(patch.span, course, context)
        if category != Category.PRODUCTIVE:
            writer.add(patch.end_ns, category, phase, charge=charge)
            continue
        # The window of a life's first step reaches back to the step before, and so does its fate.
        at = patch.start_ns
        for share in split(patch.end_ns - at, window, life, category, phase, context):
            at += share.ns
            writer.add(at, share.category, share.phase, charge=share.charge)


def span_outside(writer: Writer, patch: Patch, span: Span, life: Life, context: Context, course: Course) -> None:
    """A span in no window. After the last window of an aborted attempt the window it lies in never ended: rework."""
    category, phase, charge = fate(span, course, context)
    if category == Category.PRODUCTIVE and course.attempt.ending.kind == "aborted" and not follows(course, patch):
        category, charge = Category.REWORK, ("end", course.attempt.number, 0)
    writer.add(patch.end_ns, category, phase, charge=charge)


def follows(course: Course, patch: Patch) -> bool:
    """Whether a window of the attempt comes after the stretch."""
    return any(w.end_ns >= patch.end_ns for w in course.windows)


def fate(span: Span, course: Course, context: Context) -> tuple[str, str | None, Charge | None]:
    """The span's category, unless it is an evaluation of a step that was thrown away."""
    if span.category == Category.EVALUATION and span.name == "evaluation":
        life = course.life_at(span.begin_ns)
        before = [w.step for w in course.windows if w.end_ns <= span.begin_ns]
        step = span.step if span.step is not None else before[-1] if before else None
        if step is not None and not context.line.keeps(life, step):
            return Category.REWORK, None, context.line.charged_to(life, step)
    return span.category, span.phase, None


@dataclass(frozen=True, kw_only=True)
class Share:
    """An amount of a window's time with where it goes."""

    ns: int
    category: str
    phase: str | None
    charge: Charge | None = None
    at_risk: Fraction = SAFE  # how much of it would be lost if the run died now
    rank: int | None = None


def split(ns: int, window: Window, life: Life, category: str, phase: str | None, context: Context) -> list[Share]:
    """An amount that shares the fate of the window's steps: one share per run of one fate, in their order.

    The first n of c steps have ⌊ns * n / c⌋ of it, so that the shares add up.
    """
    line = context.line
    skipped = None if window.applied else "skipped"
    if skipped:
        category, phase = Category.REWORK, skipped
    out: list[Share] = []
    done, ns_done = 0, 0
    for charge, n in line.fates_of(window, life):
        done += n
        share_ns = ns * done // window.count - ns_done
        ns_done += share_ns
        if charge is not None:
            out.append(Share(ns=share_ns, category=Category.REWORK, phase=skipped, charge=charge))
            continue
        at_risk = SAFE
        if context.live and line.durable_step is not None and category == Category.PRODUCTIVE:
            at_risk = Fraction(min(n, max(0, window.step - window.count + done - line.durable_step)), n)
        out.append(Share(ns=share_ns, category=category, phase=phase, at_risk=at_risk))
    return out


def shares_of(w: Window, life: Life, context: Context) -> list[Share]:
    """The window's time in order: warm-up, then step by step what those of one fate took, and what hung last."""

    def both(ns: int, category: str, phase: str | None) -> list[Share]:
        return split(ns, w, life, category, phase, context)

    named = w.latest_rank is not None and context.names.is_named(w.attempt, w.latest_rank)
    straggler = [
        replace(s, rank=w.latest_rank) if s.category == Category.STRAGGLER else s
        for s in both(w.straggler_ns, Category.STRAGGLER, "rank" if named else "jitter")
    ]
    parts = [
        both(w.data_wait_ns, Category.DATA_WAIT, None),
        both(w.gaps_ns, Category.UNATTRIBUTED, None),
        straggler,
        both(w.over_expected_ns, Category.STRAGGLER, "jitter"),
        both(w.productive_ns, Category.PRODUCTIVE, None),
    ]
    return [
        Share(ns=w.warmup_ns, category=Category.STARTUP, phase="warmup"),
        *(share for of_one_fate in zip(*parts, strict=True) for share in of_one_fate),
        Share(ns=w.hang_ns, category=Category.HANG, phase="step"),
    ]


def window_claims(w: Window, life: Life, course: Course, context: Context) -> list[Claim]:
    """Spans where they lie, the other parts in order in what is left."""
    waiting = [s for s in shares_of(w, life, context) if s.ns > 0]
    out = []

    def claim(start: int, share: Share) -> None:
        out.append(
            Claim(
                start_ns=start,
                end_ns=start + share.ns,
                category=share.category,
                phase=share.phase,
                attempt=w.attempt,
                size=course.attempt.size,
                step=w.step,
                charge=share.charge,
                at_risk=share.at_risk,
                rank=share.rank,
            )
        )

    for patch in w.patches:
        at = patch.start_ns
        if patch.span is not None:
            category, phase, charge = fate(patch.span, course, context)
            length = patch.end_ns - at
            if category == Category.PRODUCTIVE:
                shares = split(length, w, life, category, phase, context)
            else:
                shares = [Share(ns=length, category=category, phase=phase, charge=charge)]
            for share in shares:
                claim(at, replace(share, at_risk=SAFE))
                at += share.ns
            continue
        while at < patch.end_ns:
            share = waiting.pop(0)
            now = min(share.ns, patch.end_ns - at)
            claim(at, replace(share, ns=now))
            at += now
            if now < share.ns:
                waiting.insert(0, replace(share, ns=share.ns - now))
    assert not waiting, "a window's parts must fill what its spans left"
    return out


def finish(writer: Writer, course: Course, context: Context) -> None:
    """From the last window to the attempt's end."""
    attempt = course.attempt
    tail = context.tails[attempt.number]
    assert tail is not None
    kind = attempt.ending.kind
    own_end: Charge = ("end", attempt.number, 0)
    life = course.lives[-1]
    mark = min(tail.last_mark_ns, course.end_ns)
    whole = kind != "finished" or (tail.beyond and ended_badly(attempt))
    painted_to = mark if whole else course.end_ns
    if painted_to > writer.at_ns:
        for patch in patches(writer.at_ns, painted_to, course.spans):
            if patch.span is None:
                writer.add(patch.end_ns, Category.UNATTRIBUTED, None)
            else:
                span_outside(writer, patch, patch.span, life, context, course)
    if not whole:
        return
    if tail.beyond:
        all_between = set(phases(attempt).values()) == {"between"}
        if kind == "live" and all_between:
            writer.add(course.end_ns, Category.UNATTRIBUTED, None)
        else:
            writer.add(course.end_ns, Category.HANG, tail.activity, charge=own_end)
    elif tail.open_span is not None:
        rest = Patch(start_ns=writer.at_ns, end_ns=course.end_ns, span=tail.open_span)
        span_outside(writer, rest, tail.open_span, life, context, course)
    elif kind == "live":
        writer.add(course.end_ns, Category.PRODUCTIVE, None)
    else:
        writer.add(course.end_ns, Category.REWORK, None, charge=own_end)
