"""Long runs in which no two times are alike, so that every median, limit and rounding shows in the figures.

The wild lives of the reference are short and on a coarse grid: there, ties and disorder show. Here the windows of an
attempt outnumber what a median looks at, steps cross a block of the clocks, and stalls lie about the limits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from reference.planned import T0, S
from reference.writing import Pen

Event = dict[str, Any]
NAMES = ("evaluation", "evaluation", "compile", "upload", "tidying", "rollout")
CATEGORIES = {"upload": "checkpoint", "rollout": "productive"}


@dataclass(kw_only=True)
class LongLife:
    """One run being made up."""

    rnd: Random
    events: list[Event] = field(default_factory=list)
    pens: list[Pen] = field(default_factory=list)
    now_ns: int = T0
    step: int = 0
    saved: list[int] = field(default_factory=list)
    sources: int = 0
    ids: int = 0
    busy_on: bool = True
    typical_ns: int = S

    def __post_init__(self) -> None:
        self.scheduler = Pen(run="long", source="scheduler", out=self.events)
        self.agent = Pen(run="long", source="agent", out=self.events)

    def up_to(self, ns: int) -> int:
        return self.rnd.randrange(1, max(ns, 2))

    def some(self, probability: float) -> bool:
        return self.rnd.random() < probability

    def live(self) -> list[Event]:
        rnd = self.rnd
        world, devices, grouped = rnd.choice([1, 2, 3, 4, 5]), rnd.choice([1, 2]), self.some(0.3)
        self.busy_on, self.typical_ns = self.some(0.8), rnd.choice([S // 2, S, 4 * S])
        self.step = rnd.choice([0, 0, 960, 1980])
        self.saved = [self.step]
        attempts, began_ns = rnd.randint(1, 3), self.now_ns
        ahead = {rank: rnd.randrange(-30 * S, 30 * S) for rank in range(world) if self.some(0.3)}
        for n in range(attempts):
            self.launch(n, world, devices, grouped, ahead)
            for _ in range(rnd.choice([3, 40, 70, 70])):
                self.happen()
            if n + 1 < attempts or self.some(0.4):
                self.abort()
            elif self.some(0.7):
                self.now_ns += self.up_to(20 * S)
                for pen in self.pens:
                    pen.tell("stop", self.now_ns + self.up_to(S), reason="finished")
            self.now_ns += self.up_to(40 * S)
        if self.some(0.5):
            end_ns = rnd.choice([None, self.now_ns + self.up_to(90 * S)])
            self.scheduler.tell(
                "allocation",
                end_ns or self.now_ns,
                job="job",
                gpus=world * devices + rnd.choice([0, 3]),
                submit_ns=began_ns - self.up_to(90 * S),
                start_ns=began_ns - self.up_to(9 * S),
                end_ns=end_ns,
                nulls=("end_ns",) if end_ns is None else (),
            )
        return self.events

    def launch(self, number: int, world: int, devices: int, grouped: bool, ahead: dict[int, int]) -> None:
        rnd = self.rnd
        self.pens = []
        began_ns = self.now_ns + self.up_to(90 * S if self.some(0.7) else 9 * S)
        for rank in range(world):
            self.sources += 1
            pen = Pen(run="long", source=f"s{self.sources:02d}", ahead_ns=ahead.get(rank, 0), out=self.events)
            process_ns = began_ns + self.up_to(S)
            pen.tell(
                "start",
                process_ns + self.up_to(3 * S),
                job="job",
                rank=rank,
                world_size=world,
                node=f"node-{rank // 2}",
                devices=devices,
                process_start_ns=process_ns,
                attempt_token=f"token-{number}",
                group=f"stage-{rank % 2}" if grouped else None,
            )
            self.pens.append(pen)
        self.now_ns = began_ns + 5 * S
        if self.some(0.5):
            self.span(rnd.choice(["init", "load_checkpoint", "evaluation"]))
        if number:
            self.step = rnd.choice(self.saved[-3:])
        for pen in self.pens:
            pen.tell("resume", self.now_ns, step=self.step, nulls=())
        self.now_ns += self.up_to(5 * S)
        self.make_step(extra_ns=self.up_to(9 * S))

    def happen(self) -> None:
        rnd = self.rnd
        limit_ns = max(10 * S, 3 * self.typical_ns)
        match rnd.choices(["step", "stall", "gap", "span", "save", "back", "slow"], [30, 1, 1, 2, 2, 0.3, 3])[0]:
            case "step":
                self.make_step()
            case "stall":
                self.make_step(extra_ns=self.up_to(3 * limit_ns))
            case "gap":
                self.now_ns += self.up_to(9 * S)
                self.make_step()
            case "span":
                self.span(rnd.choice(NAMES))
            case "save":
                self.save()
            case "back":
                self.go_back()
            case "slow":
                self.make_step(slow=len(self.pens) - 1)

    def make_step(self, *, extra_ns: int = 0, slow: int | None = None) -> None:
        rnd = self.rnd
        count = rnd.choice([1] * 9 + [3])
        self.step += count
        length = count * (self.typical_ns + rnd.randrange(-self.typical_ns // 3, self.typical_ns // 3)) + extra_ns
        started = self.now_ns + self.up_to(S // 20)
        end = started + length
        applied = False if self.some(0.03) else None
        for rank, pen in enumerate(self.pens):
            own_start = started + self.up_to(S // 20)
            data = self.up_to(length // 5)
            busy = length - self.up_to(length // 10) if rank == slow else length // 2 + self.up_to(length // 4)
            own_end = end + self.up_to(100_000)
            pen.tell(
                "step",
                own_end,
                step=self.step,
                start_ns=own_start,
                end_ns=own_end,
                data_ns=data if self.some(0.9) else None,
                busy_ns=busy if self.busy_on and self.some(0.9) else None,
                count=count if count > 1 else None,
                applied=applied,
            )
        self.now_ns = end + 100_000

    def span(self, name: str) -> None:
        self.ids += 1
        length = self.up_to(20 * S)
        for pen in self.pens:
            begin_ns = self.now_ns + self.up_to(S // 10)
            fields = {"span": name, "id": self.ids, "step": self.step}
            pen.tell("begin", begin_ns, **fields, category=CATEGORIES.get(name))
            pen.tell("end", self.now_ns + S // 5 + length + self.up_to(S // 10), **fields)
        self.now_ns += length + S // 2

    def save(self) -> None:
        self.ids += 1
        background, ok = self.some(0.3), self.some(0.9)
        saved, length = self.step, self.up_to(15 * S)
        for rank, pen in enumerate(self.pens):
            fields = {"span": "checkpoint", "id": self.ids, "step": saved}
            pen.tell("begin", self.now_ns + self.up_to(S // 10), **fields, **({"async": True} if background else {}))
            end_ns = self.now_ns + S // 5 + length + self.up_to(S)
            pen.tell("end", end_ns, **fields, ok=False if rank == 0 and not ok else None)
        self.now_ns += length + S + S // 2
        if background and ok:
            self.make_step()
            self.pens[0].tell("durable", self.now_ns + self.up_to(S // 100), step=saved, ok=True)
            self.now_ns += S // 50
        if ok:
            self.saved.append(saved)

    def go_back(self) -> None:
        to = self.saved[-1]
        if to >= self.step:
            return
        pause = self.up_to(6 * S)
        for pen in self.pens:
            pen.tell("resume", self.now_ns + pause // 2, step=to, nulls=())
        self.step = to
        self.now_ns += pause
        self.make_step()

    def abort(self) -> None:
        rnd = self.rnd
        at = self.now_ns + self.up_to(rnd.choice([2 * S, 20 * S, 90 * S]))
        if self.some(0.2):
            self.ids += 1
            for pen in self.pens:
                pen.tell("begin", self.now_ns, span="checkpoint", id=self.ids, step=self.step)
        how = rnd.choice(["exception", "signal", "seen", "silent"])
        latest = at
        for rank, pen in enumerate(self.pens):
            # The last one fell silent before the others.
            last_ns = self.now_ns + (at - self.now_ns) // (9 if rank == len(self.pens) - 1 and rank else 1)
            for when in range(self.now_ns + rank + 1, last_ns, 5 * S):
                pen.tell("heartbeat", when, step=self.step, phase=rnd.choice(["step", "step", "waiting", "between"]))
            when = at + self.up_to(3 * S)
            if how in ("exception", "signal"):
                pen.tell("stop", when, reason=how)
            elif how == "seen":
                self.agent.tell("exit_observed", when + pen.ahead_ns, of=pen.source, signal=9)
            latest = max(latest, when)
        self.now_ns = latest


def long_life(seed: int) -> list[Event]:
    """The events of the run `long` that belongs to a seed."""
    return LongLife(rnd=Random(seed)).live()
