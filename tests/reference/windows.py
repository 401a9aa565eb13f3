"""Windows: the steps of an attempt at job level, and the parts that each divides into."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from goodput_analytics.settings import Settings

from .attempts import Attempt
from .members import Member, Step
from .numbers import covered, median
from .placing import place
from .spans import Patch, Span, blocking, patches, spans_of

NEIGHBOURS = 25


@dataclass(kw_only=True)
class Life:
    """An attempt, or what follows a rollback inside one."""

    attempt: int
    ordinal: int  # within the attempt
    moment_ns: int | None  # when the rollback that begins it was first seen
    windows: list[Window] = field(default_factory=list)
    resumes: list[int | None] = field(default_factory=list)
    all_said_null: bool = False


@dataclass(kw_only=True)
class Window:
    """One step at job level. Parts are nanoseconds of wall time, filled in by `divide`."""

    attempt: int
    life: int
    step: int
    count: int  # steps that it stands for
    missing: int  # of these, the ones assumed because no event told of them
    applied: bool
    start_ns: int
    end_ns: int
    of_rank: dict[int, Step]
    gap_ns: dict[int, int]  # own gaps, by rank
    first_of_attempt: bool
    restart_from_ns: int | None  # first of a life after a rollback: the end of the window before
    patches: list[Patch] = field(default_factory=list)
    net_ns: int = 0
    warmup_ns: int = 0
    data_wait_ns: int = 0
    gaps_ns: int = 0
    rest_ns: int = 0
    hang_ns: int = 0
    straggler_ns: int = 0
    over_expected_ns: int = 0
    productive_ns: int = 0
    latest_rank: int | None = None
    lateness_ns: dict[int, int] = field(default_factory=dict)

    @property
    def net_per_step_ns(self) -> int:
        return self.net_ns // self.count

    @property
    def rest_per_step_ns(self) -> int:
        return self.rest_ns // self.count


@dataclass(kw_only=True)
class Course:
    """What an attempt did, step by step."""

    attempt: Attempt
    end_ns: int  # its end, or now
    lives: list[Life]
    spans: list[Span]

    @property
    def windows(self) -> list[Window]:
        return [w for life in self.lives for w in life.windows]

    @property
    def first_step_ns(self) -> int | None:
        windows = self.windows
        return windows[0].start_ns if windows else None

    @property
    def later_windows(self) -> list[Window]:
        """Those that medians look at."""
        return [w for w in self.windows if not w.first_of_attempt]

    def life_at(self, time_ns: int) -> Life:
        """The life in which something happened that is no step."""
        return [x for x in self.lives if x.moment_ns is None or x.moment_ns <= time_ns][-1]


def course(attempt: Attempt, now_ns: int) -> Course:
    """The attempt's lives and windows; parts come later, since they look at the whole run."""
    end = now_ns if attempt.ending.end_ns is None else attempt.ending.end_ns
    lives, told = lives_of(attempt)
    spans = [s for m in attempt.members for s in spans_of(m, end)]
    by_window = [list(by_rank.values()) for by_step in told for by_rank in by_step.values()]
    spans = [blocking(s, by_window) for s in spans]
    previous: Window | None = None
    for life, by_step in zip(lives, told, strict=True):
        for number in sorted(by_step):
            of_rank = by_step[number]
            window = window_of(life, number, of_rank, previous, spans)
            life.windows.append(window)
            previous = window
    return Course(attempt=attempt, end_ns=end, lives=lives, spans=spans)


def lives_of(attempt: Attempt) -> tuple[list[Life], list[dict[int, dict[int, Step]]]]:
    """The attempt's lives, and for each its steps by number and rank."""
    placing = place(attempt.members)
    lives = [Life(attempt=attempt.number, ordinal=k, moment_ns=when) for k, when in enumerate(placing.moments)]
    told: list[dict[int, dict[int, Step]]] = [defaultdict(dict) for _ in lives]
    for member, k, step in placing.steps:
        add(told[k][step.step], member, step)
    for _, k, loaded in placing.resumes:
        lives[k].resumes.append(loaded)
    reached = {id(m): len(lives) - 1 for m in placing.full}
    for member, k, _ in (*placing.steps, *placing.resumes):
        reached[id(member)] = max(k, reached.get(id(member), 0))
    for k, life in enumerate(lives):
        said = {id(member) for member, at, _ in placing.resumes if at == k}
        there = {id(m) for m in attempt.members if reached.get(id(m), 0) >= k}
        life.all_said_null = said >= there and all(r is None for r in life.resumes)
    return lives, told


def add(by_rank: dict[int, Step], member: Member, step: Step) -> None:
    """Two sources of one rank: the one that ended last speaks for it."""
    if member.rank not in by_rank or by_rank[member.rank].end_ns < step.end_ns:
        by_rank[member.rank] = step


def window_of(life: Life, number: int, of_rank: dict[int, Step], previous: Window | None, spans: list[Span]) -> Window:
    own_start = min(s.start_ns for s in of_rank.values())
    count = max(s.count for s in of_rank.values())
    stands_for = count
    same_life = bool(life.windows)
    if same_life:
        stands_for = max(count, number - life.windows[-1].step)
    restart_from = None
    start = own_start
    if previous is not None:
        start = previous.end_ns
        if not same_life:
            restart_from = previous.end_ns
            start = max(previous.end_ns, own_start)
    gaps = {}
    for rank, step in of_rank.items():
        before = life.windows[-1].of_rank.get(rank) if same_life else None
        missing = before is None or before.step < step.step - step.count
        gaps[rank] = 0 if before is None or missing else own_gap(before, step, spans)
    return Window(
        attempt=life.attempt,
        life=life.ordinal,
        step=number,
        count=stands_for,
        missing=stands_for - count,
        applied=all(s.applied for s in of_rank.values()),
        start_ns=start,
        end_ns=max(start, *(s.end_ns for s in of_rank.values())),
        of_rank=of_rank,
        gap_ns=gaps,
        first_of_attempt=previous is None,
        restart_from_ns=restart_from,
    )


def own_gap(before: Step, step: Step, spans: list[Span]) -> int:
    """Between a rank's two steps, on its own clock, less what any rank's spans cover."""
    gap = step.raw_start_ns - before.raw_end_ns
    cover = covered(before.end_ns, step.start_ns, [(s.begin_ns, s.blocks_until_ns) for s in spans])
    return max(0, gap - cover)


def around(windows: Sequence[Window], window: Window) -> list[Window]:
    """Up to 25 before and 25 after it, itself and first steps left out."""
    before = [w for w in windows if (w.life, w.step) < (window.life, window.step)]
    after = [w for w in windows if (w.life, w.step) > (window.life, window.step)]
    return before[-NEIGHBOURS:] + after[:NEIGHBOURS]


def divide(courses: list[Course], settings: Settings) -> None:
    """Fills in every window's parts."""
    for c in courses:
        for w in c.windows:
            w.patches = patches(w.start_ns, w.end_ns, c.spans)
            w.net_ns = sum(p.end_ns - p.start_ns for p in w.patches if p.span is None)
    all_later = [w for c in courses for w in c.later_windows]
    for c in courses:
        for w in c.windows:
            left = w.net_ns
            if w.first_of_attempt:
                typical = median([x.net_per_step_ns for x in c.later_windows[:NEIGHBOURS] or all_later])
                if typical is not None:
                    w.warmup_ns = max(0, left - w.count * typical)
                    left -= w.warmup_ns
            w.data_wait_ns = min(left, median([s.data_ns for s in w.of_rank.values() if s.data_ns is not None]) or 0)
            left -= w.data_wait_ns
            w.gaps_ns = min(left, median(list(w.gap_ns.values())) or 0)
            w.rest_ns = left - w.gaps_ns
    for c in courses:
        for w in c.windows:
            divide_rest(w, c, all_later, settings)


def divide_rest(w: Window, c: Course, all_later: list[Window], settings: Settings) -> None:
    left = w.rest_ns
    near = around(c.later_windows, w) or all_later
    typical = median([x.rest_per_step_ns for x in near])
    if typical is not None and left > (w.count - 1) * typical + max(settings.hang_floor_ns, 3 * typical):
        w.hang_ns = left - w.count * typical
        left -= w.hang_ns
    w.lateness_ns = lateness(w, c.spans)
    late, w.latest_rank = excess(w, c.attempt.members)
    w.straggler_ns = min(left, late)
    left -= w.straggler_ns
    if settings.expected_step_ns is not None:
        over = w.net_ns - w.warmup_ns - w.count * settings.expected_step_ns
        over -= w.data_wait_ns + w.gaps_ns + w.hang_ns + w.straggler_ns
        w.over_expected_ns = min(left, max(0, over))
        left -= w.over_expected_ns
    w.productive_ns = left


def lateness(w: Window, spans: list[Span]) -> dict[int, int]:
    """By rank, how long it kept the others waiting: its gap, and its own work less its own spans in the step."""
    busy = {rank: s.busy_ns for rank, s in w.of_rank.items() if s.busy_ns is not None}
    if 2 * len(busy) < len(w.of_rank) or not busy:
        return dict(w.gap_ns)
    out = {}
    for rank, busy_ns in busy.items():
        step = w.of_rank[rank]
        own = [(s.begin_ns, s.blocks_until_ns) for s in spans if s.rank == rank]
        out[rank] = w.gap_ns[rank] + max(0, busy_ns - covered(step.start_ns, step.end_ns, own))
    return out


def excess(w: Window, members: list[Member]) -> tuple[int, int | None]:
    """The greatest lateness over the lower quartile of the rank's own group, and whose it is."""
    if len(w.lateness_ns) < 2:
        return 0, None
    group = {m.rank: m.group for m in members}
    beyond = {}
    for rank, late in w.lateness_ns.items():
        peers = sorted(v for r, v in w.lateness_ns.items() if group[r] == group[rank])
        beyond[rank] = late - peers[-(-len(peers) // 4) - 1]
    latest = min(beyond, key=lambda r: (-beyond[r], r))
    return (beyond[latest], latest) if beyond[latest] > 0 else (0, None)
