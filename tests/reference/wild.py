"""Wild lives: valid events of runs in which everything goes wrong at once. No truth is known of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from .events import Event
from .planned import T0, S
from .writing import Pen

MAX_EVENTS = 150
OWN_NAMES = ("upload", "rollout", "tidying")
STARTUP_NAMES = ("init", "load_checkpoint", "compile", "data_skip")
SPAN_NAMES = ("checkpoint", "checkpoint", *["evaluation"] * 5, *STARTUP_NAMES, *OWN_NAMES, *OWN_NAMES)
CATEGORIES = (None, None, "productive", "productive", "data_wait", "startup", "checkpoint", "idle", "unattributed")
LENGTHS_NS = (0, S, S, S, S, S, 2 * S, 3 * S, 14 * S, 61 * S, 200 * S)
PAUSES_NS = (0, 0, 0, S, S, 5 * S)


@dataclass(kw_only=True)
class Rank:
    """One process being made up: what it will tell, with times, before it is written down in order."""

    rank: int
    pen: Pen
    beat_pen: Pen
    told: list[tuple[int, int, str, dict[str, Any]]] = field(default_factory=list)
    steps_since_rollback: int = 0
    last_step: int | None = None
    from_ns: int = 0  # says nothing before
    until_ns: int | None = None  # says nothing after
    gone: bool = False

    def say(self, kind: str, ts_ns: int, **fields: Any) -> None:
        if ts_ns >= self.from_ns and (self.until_ns is None or ts_ns <= self.until_ns):
            self.told.append((ts_ns, len(self.told), kind, fields))

    def speaks_at(self, ts_ns: int) -> bool:
        return ts_ns >= self.from_ns and (self.until_ns is None or ts_ns <= self.until_ns)


@dataclass(kw_only=True)
class Wild:
    """Makes up one run. `disputed` lets in what the rules leave open: ranks that see different rollbacks or count
    differently, allocations smaller than what runs on them, processes seen to exit after a good end."""

    rnd: Random
    disputed: bool
    run: str = "wild"
    events: list[Event] = field(default_factory=list)
    now_ns: int = T0
    step: int = 0
    job: int = 0
    attempt: int = -1
    sources: int = 0
    ids: int = 0
    ranks: list[Rank] = field(default_factory=list)
    world: int = 1
    busy_on: float = 1.0
    drop: float = 0.0
    in_process: bool = False
    agent: Pen = field(init=False)
    scheduler: Pen = field(init=False)
    job_spans: dict[int, list[int]] = field(default_factory=dict)  # job: [first start, last end, most GPUs]

    def __post_init__(self) -> None:
        self.agent = Pen(run=self.run, source="agent", out=self.events)
        self.scheduler = Pen(run=self.run, source="scheduler", out=self.events)

    def some(self, probability: float) -> bool:
        return self.rnd.random() < probability

    def fine(self, ns: int) -> int:
        """Mostly the coarse grid, so that ties occur; sometimes a little off."""
        return ns + (self.rnd.randrange(1, S) if self.some(0.3) else 0)

    # -- attempts --------------------------------------------------------------------------------------------------

    def live(self) -> list[Event]:
        attempts = self.rnd.randint(1, 4)
        in_process = False
        for n in range(attempts):
            self.begin(in_process)
            for _ in range(self.rnd.randint(0, 12)):
                if self.size() > MAX_EVENTS * (n + 1) // attempts:
                    break
                self.happen()
            last = n + 1 == attempts
            in_process = not last and self.some(0.1) and not any(r.gone for r in self.ranks)
            if not in_process:
                self.end(last)
        self.write_down()
        self.allocate()
        if self.some(0.1):
            Pen(run=self.run, source="orphan", out=self.events).tell("progress", self.now_ns)
        if self.some(0.2):
            self.agent.tell("dropped", self.now_ns, reason="full", count=self.rnd.randint(1, 9))
        return self.events

    def size(self) -> int:
        return len(self.events) + sum(len(r.told) for r in self.ranks)

    def begin(self, in_process: bool) -> None:
        rnd = self.rnd
        self.attempt += 1
        self.in_process = in_process
        self.busy_on = rnd.choice([0.0, 0.6, 1.0, 1.0])
        self.drop = rnd.choice([0.0, 0.0, 0.1])
        token = f"token-{self.attempt}"
        if in_process:
            self.now_ns += rnd.choice([0, S, 30 * S, 100 * S])
            for rank in self.ranks:
                rank.steps_since_rollback, rank.last_step = 0, None
                rank.say("joined", self.now_ns, attempt_token=token, rank=rank.rank, world_size=self.world)
            self.resume(self.ranks, None)
            self.now_ns += rnd.choice(PAUSES_NS)
            return
        self.write_down()
        if self.attempt:
            self.now_ns += rnd.choice([-5 * S, -S, 0, S, 10 * S, 60 * S, 61 * S, 1000 * S])
            self.job += self.some(0.4)
        self.world = rnd.randint(1, 4)
        devices = rnd.choice([1, 1, 1, 2])
        began = self.now_ns
        tokens = rnd.choice(["start", "start", "joined", "some", "none"])
        groups = self.some(0.2)
        self.ranks = []
        for number in range(self.world):
            if self.world > 1 and self.some(0.03):
                continue  # a rank that never reported
            self.sources += 1
            name = f"s{self.sources:03d}"
            ahead = rnd.choice([0] * 9 + [1, 3_000_000, 2 * S, -100 * S, 100 * S])
            pen = Pen(run=self.run, source=name, ahead_ns=ahead, out=self.events)
            beats = Pen(run=self.run, source=f"{name}-beats", ahead_ns=ahead, out=self.events)
            rank = Rank(rank=number, pen=pen, beat_pen=beats if self.some(0.5) else pen)
            process_start = began + rnd.choice([0, 0, 0, S, 2 * S])
            rank.from_ns = process_start
            rank.say(
                "start",
                process_start + rnd.choice([0, S, 2 * S]),
                v=1,
                job=f"job-{self.job}",
                restart_count=self.attempt,
                rank=number,
                local_rank=number,
                world_size=self.world,
                node=f"node-{number // 2}",
                pid=number,
                devices=devices,
                process_start_ns=process_start,
                group=f"stage-{number % 2}" if groups else None,
                attempt_token=token if tokens == "start" or (tokens == "some" and self.some(0.5)) else None,
            )
            if tokens == "joined":
                rank.say("joined", process_start + 3 * S, attempt_token=token, rank=number, world_size=self.world)
            self.ranks.append(rank)
        if not self.ranks:
            self.attempt -= 1
            return self.begin(False)
        first, _, most = self.job_spans.get(self.job, [began, began, 0])
        self.job_spans[self.job] = [min(first, began), began, max(most, self.world * devices)]
        self.now_ns = began + 4 * S
        if self.some(0.3):
            self.span(in_startup=True)
        if self.some(0.7):
            self.resume(self.ranks if self.some(0.8) else self.ranks[:1], None)
        self.now_ns += rnd.choice(PAUSES_NS)

    def resume(self, ranks: list[Rank], step: int | None) -> None:
        """Before the first step: from where it goes on. `self.step` follows."""
        if step is None:
            step = self.rnd.choice([None, self.step, max(0, self.step - 3), self.step // 2, self.step + 2])
        for rank in ranks:
            rank.say("resume", self.now_ns, step=step, nulls=() if step is not None else ("step",))
        self.step = step or 0
        if self.some(0.1):
            self.step = max(0, self.step + self.rnd.choice([-1, 2]))

    # -- what happens ----------------------------------------------------------------------------------------------

    def happen(self) -> None:
        match self.rnd.choices(
            ["steps", "step", "slow", "span", "save", "rollback", "beat", "progress", "death", "late"],
            [6, 6, 1, 4, 3, 1, 2, 0.5, 0.5, 0.3],
        )[0]:
            case "steps":
                for _ in range(self.rnd.randint(2, 6)):
                    self.make_step(plain=True)
            case "step":
                self.make_step(plain=False)
            case "slow":
                self.slow_steps()
            case "span":
                self.span(in_startup=False)
            case "save":
                self.save()
            case "rollback":
                self.rollback()
            case "beat":
                self.beat()
            case "progress":
                self.rnd.choice(self.ranks).say("progress", self.fine(self.now_ns))
            case "death":
                rank = self.rnd.choice(self.ranks)
                rank.until_ns, rank.gone = self.now_ns, True
            case "late":
                rank = self.rnd.choice(self.ranks)
                if rank.last_step is None and not rank.gone and not self.in_process:
                    rank.from_ns = max(rank.from_ns, self.now_ns + 3 * S)
                    rank.told = [t for t in rank.told if t[2] in ("start", "joined")]

    def make_step(self, *, plain: bool, must: bool = False) -> None:
        """One step of all ranks. `must`: nobody's event is missing."""
        rnd = self.rnd
        count = 1 if plain else rnd.choice([1, 1, 1, 5])
        self.step += count + (0 if plain else rnd.choice([0, 0, 0, 1]))
        length = S if plain else rnd.choice(LENGTHS_NS)
        start = self.now_ns + (0 if plain else rnd.choice(PAUSES_NS))
        end = start + (length if plain else self.fine(length))
        halves = 2 if not plain and self.some(0.1) else 1
        applied = None if plain or self.some(0.85) else False
        data = rnd.choice([None, None, S // 4, length // 2, 1000 * S])
        backwards = not plain and self.some(0.05)
        for rank in self.ranks:
            if not rank.speaks_at(end) or (not must and self.some(self.drop)):
                continue
            own_start = start + rnd.choice([0, 0, 0, 0, S // 10, S // 2])
            own_start = min(own_start, end) if not backwards else end + S
            own_end = end + (rnd.choice([1, 1000, 1_000_000]) if not plain and self.some(0.2) else 0)
            for half in range(halves):
                middle = (own_start + own_end) // 2
                busy = rnd.choice([length // 4, length // 2, length // 2, length, 2 * length])
                a = middle if half else own_start
                b = own_end if half + 1 == halves else middle
                rank.say(
                    "step",
                    b,
                    step=self.step,
                    start_ns=a,
                    end_ns=b,
                    data_ns=data if data is None or self.some(0.9) else 0,
                    busy_ns=busy if self.some(self.busy_on) else None,
                    count=count if count > 1 else None,
                    applied=applied,
                )
            rank.steps_since_rollback += 1
            rank.last_step = self.step
        self.now_ns = end
        if self.disputed and self.some(0.1) and self.ranks[0].last_step == self.step:
            self.ranks[0].told[-1][3]["count"] = 3

    def slow_steps(self) -> None:
        """One rank is late in a row of steps, often enough to be named."""
        slow = self.rnd.choice(self.ranks).rank
        for _ in range(self.rnd.randint(5, 10)):
            self.step += 1
            end = self.now_ns + S
            for rank in self.ranks:
                if rank.speaks_at(end):
                    busy = S - 1 if rank.rank == slow else self.rnd.choice([S // 2, S // 3])
                    rank.say("step", end, step=self.step, start_ns=self.now_ns, end_ns=end, busy_ns=busy)
                    rank.steps_since_rollback += 1
                    rank.last_step = self.step
            self.now_ns = end

    def span(self, *, in_startup: bool) -> None:
        rnd = self.rnd
        name = rnd.choice(SPAN_NAMES)
        category = rnd.choice(CATEGORIES) if name in OWN_NAMES else None
        who = self.ranks if self.some(0.6) else [rnd.choice(self.ranks)]
        length = self.fine(rnd.choice([0, S, S, 5 * S, 20 * S, 70 * S, 200 * S]))
        begin = max(self.now_ns + (0 if in_startup else rnd.choice([0, 0, 0, -S // 2, S // 2])), T0)
        opened = self.some(0.12)
        self.ids += 1
        for rank in who:
            own = begin + rnd.choice([0, 0, 0, S // 5, S])
            rank.say("begin", own, span=name, id=self.ids, step=self.step, category=category)
            if not opened:
                ok = None if self.some(0.9) else False
                rank.say("end", max(own, begin + length), span=name, id=self.ids, step=self.step, ok=ok)
        # Most spans block the loop; the others go on while the ranks do.
        if self.some(0.7):
            self.now_ns = max(self.now_ns, begin + (0 if opened else length))

    def save(self) -> None:
        rnd = self.rnd
        background = self.some(0.4)
        length = self.fine(rnd.choice([S, 2 * S, 10 * S, 100 * S]))
        opened, failed, saved = self.some(0.08), self.some(0.1), self.step
        self.ids += 1
        for rank in self.ranks:
            fields: dict[str, Any] = {"async": True} if background else {}
            rank.say("begin", self.now_ns, span="checkpoint", id=self.ids, step=saved, **fields)
            if not opened:
                ok = False if failed and rank is self.ranks[0] else None
                rank.say("end", self.now_ns + length, span="checkpoint", id=self.ids, step=saved, ok=ok)
        self.now_ns += 0 if opened else length
        if background and self.some(0.7):
            late = self.now_ns + rnd.choice([S, 5 * S, 50 * S])
            rnd.choice(self.ranks).say("durable", late, step=saved, ok=self.some(0.9))

    def rollback(self) -> None:
        """Back inside the attempt: by a `resume`, by a step number that falls, or by both. All ranks see it."""
        rnd = self.rnd
        to = max(0, self.step - rnd.choice([0, 1, 3, 7, 8, 10, 15]))
        if not all(r.steps_since_rollback and r.speaks_at(self.now_ns + 5 * S) for r in self.ranks):
            return
        falls = all(r.last_step is not None and r.last_step > to + 6 for r in self.ranks)
        pause = rnd.choice([S, 5 * S])  # so that no step is still told after a `resume`
        who = rnd.choice([self.ranks, [], self.ranks[:1]]) if falls or self.disputed else self.ranks
        for rank in who:
            rank.say("resume", self.now_ns + pause // 2, step=to, nulls=())
        for rank in self.ranks:
            rank.steps_since_rollback = 0
        self.step = to
        self.now_ns += pause
        self.make_step(plain=self.some(0.5), must=True)

    def beat(self) -> None:
        rnd = self.rnd
        at = self.now_ns + rnd.choice([0, S, 4 * S])
        phase = rnd.choice(["step", "waiting", "between", "checkpoint"])
        for rank in self.ranks:
            if self.some(0.2):
                continue
            of = rank.pen.source if rank.beat_pen is not rank.pen else None
            ahead = rnd.choice([0, 0, 0, 1])
            rank.say(
                "heartbeat",
                at + rnd.choice([0, 0, S // 10]),
                of=of,
                step=self.step + ahead,
                phase=phase if self.some(0.8) else "step",
                phase_since_ns=at,
            )

    # -- endings ---------------------------------------------------------------------------------------------------

    def end(self, last: bool) -> None:
        rnd = self.rnd
        how = rnd.choice(["finished", "exception", "signal", "preempted", "mixed", "silent", "observed"])
        if last and self.some(0.5):
            how = "finished"
        at = self.now_ns + rnd.choice([0, 0, S, S, 5 * S, 9 * S, 11 * S, 700 * S])
        latest = at
        for rank in self.ranks:
            when = at + rnd.choice([0, 0, 0, S, 30 * S])
            reason = rnd.choice(["finished", "exited", "exception", "signal", "preempted"]) if how == "mixed" else how
            if how == "silent" or (how != "finished" and self.some(0.1)):
                continue
            if how == "observed" or self.some(0.05):
                if how == "finished" and not self.disputed:
                    continue
                told_ns = max(when, rank.until_ns or 0) + rnd.choice([0, S])
                self.agent.tell("exit_observed", told_ns + rank.pen.ahead_ns, of=rank.pen.source, signal=9)
                latest = max(latest, told_ns)
                if how == "observed" or self.some(0.5):
                    continue
            if rank.gone:
                continue
            rank.told = [t for t in rank.told if t[0] <= when]
            rank.say("stop", when, reason=reason)
            latest = max(latest, when)
        if how in ("silent", "observed") and self.some(0.3) and self.ranks:
            zombie = self.ranks[-1]
            zombie.say("step", latest + 5 * S, step=self.step + 1, start_ns=latest + 4 * S, end_ns=latest + 5 * S)
        self.now_ns = latest

    def write_down(self) -> None:
        """Each source's events in order of time, a number now and then missing."""
        for rank in self.ranks:
            start = next(t for t in rank.told if t[2] == "start")
            others = [t for t in rank.told if t is not start]
            for ts, _, kind, fields in [start, *sorted(others, key=lambda t: t[:2])]:
                pen = rank.beat_pen if kind == "heartbeat" else rank.pen
                if self.some(0.01):
                    pen.seq += 1
                pen.tell(kind, ts, **fields)
                self.now_ns = max(self.now_ns, ts) if kind == "step" else self.now_ns
        self.ranks = []

    def allocate(self) -> None:
        """What the scheduler says of some jobs. By default never fewer GPUs than the job drives."""
        rnd = self.rnd
        for job, (first, _, most) in self.job_spans.items():
            if self.some(0.6):
                continue
            start = first - rnd.choice([0, S, 20 * S])
            gpus = most + rnd.choice([0, 0, 1, 8])
            if self.disputed:
                gpus = rnd.randint(1, most + 2)
            length = max(S, self.now_ns - start)
            end = rnd.choice([None, start + length, start + length // 2, start + length + 50 * S])
            pieces = [(start, gpus)]
            if self.some(0.3):
                pieces.append((start + length // 3, gpus + rnd.choice([0, 2])))
            for at, size in pieces:
                fields = {
                    "job": f"job-{job}",
                    "gpus": size,
                    "submit_ns": start - rnd.choice([0, 10 * S]),
                    "start_ns": at,
                    "end_reason": rnd.choice([None, "completed", "failed", "preempted", "timeout"]),
                }
                self.scheduler.tell("allocation", at, **fields, nulls=("end_ns",))
                if end is not None and self.some(0.9):
                    self.scheduler.tell("allocation", max(end, at), **fields, end_ns=end)


def make_wild(rnd: Random, *, disputed: bool) -> list[Event]:
    return Wild(rnd=rnd, disputed=disputed).live()
