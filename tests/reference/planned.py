"""Planned lives: runs built from things that happen, whose truth is added up as they happen.

The truth knows nothing of windows, medians or lines. It is a stack of what was done since the beginning: whatever
goes back to an earlier step takes the top of the stack off, and that is what was thrown away.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from .events import Event
from .writing import Pen

S = 1_000_000_000
T0 = 1_767_225_600 * S


@dataclass(frozen=True, kw_only=True)
class Done:
    """Something on the stack: the time of a step (or of an evaluation of it) by category."""

    step: int
    steps: int  # 0 for an evaluation
    ns: dict[str, int]
    slow_rank: int | None = None
    attempt: int = 0


@dataclass(kw_only=True)
class TrueIncident:
    """What an interruption really cost, in GPU-ns (wall time of the steps lost times the GPUs)."""

    attempt: int
    cause: str
    detection_ns: int
    abort_ns: int
    lost_steps: int = 0
    hang_gpu_ns: int = 0
    rework_gpu_ns: int = 0
    restart_gpu_ns: int = 0
    recovered_ns: int | None = None
    suspect_ranks: list[int] | None = None  # None where the truth does not say


@dataclass(kw_only=True)
class Truth:
    """What the report has to say."""

    gpu_ns: Counter[str] = field(default_factory=Counter)
    incidents: list[TrueIncident] = field(default_factory=list)
    attempts: int = 0
    state: str = "running"
    named_ranks: set[int] = field(default_factory=set)
    saves: int = 0
    queue_wait_ns: int | None = None
    at_risk_gpu_ns: int | None = 0


@dataclass(kw_only=True)
class Shape:
    """What stays the same throughout a planned life."""

    ranks: int = 1
    devices: int = 1
    step_ns: int = S  # of one step; an event stands for `count` of them
    count: int = 1
    busy: bool = True
    warmup_ns: int = 0
    ahead_ns: dict[int, int] = field(default_factory=dict)  # by rank
    granted: int | None = None  # GPUs by the scheduler's word; None: it says nothing
    resume_events: bool = True

    @property
    def gpus(self) -> int:
        return self.ranks * self.devices


@dataclass(kw_only=True)
class Life:
    """A run as it is lived; each method is something that happens to it."""

    shape: Shape
    run: str = "planned"
    now_ns: int = T0
    job: int = 0
    attempt: int = -1
    step: int = 0
    last_save: int = 0
    ever_saved: bool = False
    pens: list[Pen] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    stack: list[Done] = field(default_factory=list)
    truth: Truth = field(default_factory=Truth)
    open_incident: TrueIncident | None = None
    released_ns: int = T0
    job_from_ns: int = T0
    spans: int = 0
    scheduler: Pen = field(init=False)

    def __post_init__(self) -> None:
        self.scheduler = Pen(run=self.run, source="scheduler", out=self.events)

    # -- attempts --------------------------------------------------------------------------------------------------

    def launch(self, *, wait_ns: int = 0, same_job: bool = True, to_step: int | None = None) -> None:
        """The next attempt, `wait_ns` after the release, from checkpoint `to_step` (the last save) on."""
        shape, gpus = self.shape, self.shape.gpus
        first = self.attempt < 0
        silent = self.open_incident is not None and self.open_incident.cause == "lost"
        if first or not same_job:
            if not first:
                self.close_job(0)
                self.job += 1
                self.now_ns += wait_ns
            self.open_job()
        elif silent and wait_ns > 60 * S:
            incident = self.open_incident
            assert incident is not None
            incident.cause = "hang"
            incident.hang_gpu_ns += wait_ns * gpus
            incident.detection_ns += wait_ns
            self.truth.gpu_ns["hang"] += wait_ns * gpus
            self.now_ns += wait_ns
        else:
            self.startup(wait_ns)
            self.now_ns += wait_ns
        self.attempt += 1
        self.truth.attempts += 1
        resumed = self.last_save if to_step is None else to_step
        if not first:
            self.fall_back(resumed)
        began = self.now_ns
        self.pens = [
            Pen(
                run=self.run,
                source=f"a{self.attempt}r{rank}",
                ahead_ns=shape.ahead_ns.get(rank, 0),
                out=self.events,
            )
            for rank in range(shape.ranks)
        ]
        for rank, pen in enumerate(self.pens):
            pen.tell(
                "start",
                began + 2 * S,
                v=1,
                job=f"job-{self.job}",
                restart_count=self.attempt,
                rank=rank,
                local_rank=rank,
                world_size=shape.ranks,
                node=f"node-{rank // 2}",
                pid=1000 + rank,
                devices=shape.devices,
                process_start_ns=began,
                attempt_token=f"token-{self.attempt}",
            )
            if shape.resume_events:
                loaded = resumed if resumed > 0 else None
                pen.tell("resume", began + 5 * S, step=loaded, nulls=() if loaded is not None else ("step",))
        self.now_ns = began + 8 * S
        self.startup(8 * S)
        if self.open_incident is not None:
            self.open_incident.recovered_ns = self.now_ns
            self.open_incident = None
        self.startup(shape.warmup_ns)
        self.advance(extra_ns=shape.warmup_ns)
        self.plain(3)

    def open_job(self) -> None:
        shape = self.shape
        self.job_from_ns = self.now_ns
        if shape.granted is not None:
            self.now_ns += 4 * S  # granted, but no process yet
            self.startup(4 * S)
            self.truth.queue_wait_ns = (self.truth.queue_wait_ns or 0) + 7 * S

    def close_job(self, idle_ns: int) -> None:
        """The scheduler takes the GPUs back `idle_ns` after the release."""
        if self.shape.granted is None:
            return
        self.now_ns += idle_ns
        spare = self.shape.granted - self.shape.gpus
        self.truth.gpu_ns["idle"] += spare * (self.now_ns - self.job_from_ns) + self.shape.gpus * idle_ns
        self.allocation(end_ns=self.now_ns)

    def allocation(self, end_ns: int | None) -> None:
        self.scheduler.tell(
            "allocation",
            self.now_ns,
            job=f"job-{self.job}",
            gpus=self.shape.granted,
            submit_ns=self.job_from_ns - 7 * S,
            start_ns=self.job_from_ns,
            end_ns=end_ns,
        )

    def startup(self, ns: int) -> None:
        self.truth.gpu_ns["startup"] += ns * self.shape.gpus
        if self.open_incident is not None:
            self.open_incident.restart_gpu_ns += ns * self.shape.gpus

    def fall_back(self, to_step: int) -> None:
        """All that was done beyond `to_step` is thrown away, and the open incident pays for it."""
        incident = self.open_incident
        assert incident is not None
        while self.stack and self.stack[-1].step > to_step:
            lost = self.stack.pop()
            incident.lost_steps += lost.steps
            gpu_ns = sum(lost.ns.values()) * self.shape.gpus
            incident.rework_gpu_ns += gpu_ns
            self.truth.gpu_ns["rework"] += gpu_ns
        self.step = to_step
        self.last_save = to_step

    # -- steps -----------------------------------------------------------------------------------------------------

    def advance(
        self,
        *,
        extra_ns: int = 0,
        gap_ns: int = 0,
        data_ns: int = 0,
        slow: tuple[int, int] | None = None,
        late: tuple[int, int] | None = None,
        **ns: int,
    ) -> None:
        """One step event. `slow` and `late`: a rank and by how much it works longer, or begins later, than the others.

        `ns`: what the truth puts on the stack beside the step itself.
        """
        shape = self.shape
        length = shape.count * shape.step_ns
        self.step += shape.count
        start = self.now_ns + gap_ns
        extra = extra_ns + data_ns + (slow[1] if slow else 0) + (late[1] if late else 0)
        end = start + length + extra
        for rank, pen in enumerate(self.pens):
            busy = data_ns + length // 2 + (slow[1] if slow and slow[0] == rank else 0)
            pen.tell(
                "step",
                end,
                step=self.step,
                start_ns=start + (late[1] if late and late[0] == rank else 0),
                end_ns=end,
                data_ns=data_ns or None,
                busy_ns=busy if shape.busy else None,
                count=shape.count if shape.count > 1 else None,
            )
        self.now_ns = end
        whose = slow or late
        told = {"productive": length, "data_wait": data_ns, "unattributed": gap_ns, **ns}
        if whose:
            told["straggler"] = whose[1]
        self.stack.append(
            Done(
                step=self.step,
                steps=shape.count,
                ns=told,
                slow_rank=whose[0] if whose else None,
                attempt=self.attempt,
            )
        )

    def plain(self, n: int) -> None:
        for _ in range(n):
            self.advance()

    def data_wait(self, ns: int) -> None:
        self.advance(data_ns=ns)
        self.plain(2)

    def gap(self, ns: int) -> None:
        self.advance(gap_ns=ns)
        self.plain(2)

    def slow_steps(self, rank: int, ns: int, n: int) -> None:
        """Shown by `busy_ns`, so only where the ranks tell it, and there is somebody to compare with."""
        for _ in range(n):
            if self.shape.busy and self.shape.ranks > 1:
                self.advance(slow=(rank % self.shape.ranks, ns))
            self.plain(2)

    def late_steps(self, rank: int, ns: int, n: int) -> None:
        """One rank begins later than the others: its own gap, which with three ranks is not the median's."""
        for _ in range(n):
            if self.shape.ranks > 2:
                self.advance(late=(rank % self.shape.ranks, ns))
            self.plain(2)

    def stall(self, ns: int) -> None:
        """A step that stood still for long and then went on."""
        ns += self.hang_limit_ns()
        self.truth.gpu_ns["hang"] += ns * self.shape.gpus
        self.advance(extra_ns=ns)
        self.plain(2)

    def hang_limit_ns(self) -> int:
        return max(10 * S, 3 * self.shape.step_ns) + self.shape.count * self.shape.step_ns

    # -- spans -----------------------------------------------------------------------------------------------------

    def span(self, name: str, ns: int, *, ok: bool = True, **fields: Any) -> None:
        self.spans += 1
        for rank, pen in enumerate(self.pens):
            pen.tell("begin", self.now_ns, span=name, id=self.spans, step=self.step, **fields)
            bad = rank == 0 and not ok
            pen.tell("end", self.now_ns + ns, span=name, id=self.spans, step=self.step, ok=False if bad else None)
        self.now_ns += ns

    def save(self, ns: int, *, ok: bool = True) -> None:
        self.span("checkpoint", ns, ok=ok)
        self.truth.gpu_ns["checkpoint"] += ns * self.shape.gpus
        self.ever_saved = True
        if ok:
            self.last_save = self.step
            self.truth.saves += 1
        self.plain(1)

    def background_save(self, ns: int, *, durable: bool) -> None:
        saved = self.step
        self.span("checkpoint", ns, **{"async": True})
        self.truth.gpu_ns["checkpoint"] += ns * self.shape.gpus
        self.ever_saved = True
        self.plain(2)
        if durable:
            self.pens[0].tell("durable", self.now_ns, step=saved, ok=True)
            self.last_save = saved
            self.truth.saves += 1
        self.plain(1)

    def evaluate(self, ns: int) -> None:
        self.span("evaluation", ns)
        self.stack.append(Done(step=self.step, steps=0, ns={"evaluation": ns}, attempt=self.attempt))
        self.plain(2)

    def tidy(self, ns: int, category: str | None) -> None:
        """A span of one's own. A productive one shares the fate of the step that follows it."""
        self.span("tidying", ns, category=category)
        if category == "productive":
            self.advance(rollout=ns)
        else:
            self.truth.gpu_ns[category or "unattributed"] += ns * self.shape.gpus
        self.plain(2)

    # -- endings ---------------------------------------------------------------------------------------------------

    def crash(self, unfinished_ns: int, *, reason: str = "exception", teardown_ns: int = 0) -> None:
        """All ranks stop. With three ranks or more, the last one may leave later than the others."""
        gpus = self.shape.gpus
        abort = self.now_ns + unfinished_ns
        self.truth.gpu_ns["rework"] += unfinished_ns * gpus
        self.open(
            "preempted" if reason == "preempted" else "crash",
            detection_ns=unfinished_ns,
            abort_ns=abort,
            rework_gpu_ns=unfinished_ns * gpus,
            suspect_ranks=[0] if reason == "exception" else [],
        )
        self.leave(abort, reason, teardown_ns)

    def hang(self, beyond_ns: int, *, teardown_ns: int = 0) -> None:
        """Nothing moves until the collective times out on every rank."""
        ns = self.hang_limit_ns() + beyond_ns
        self.truth.gpu_ns["hang"] += ns * self.shape.gpus
        self.open("hang", detection_ns=ns, abort_ns=self.now_ns + ns, hang_gpu_ns=ns * self.shape.gpus)
        self.leave(self.now_ns + ns, "exception", teardown_ns)

    def die_in_save(self, ns: int) -> None:
        """Killed inside a save that never ended: within a minute that is a save's time, beyond it a hang."""
        self.spans += 1
        for pen in self.pens:
            pen.tell("begin", self.now_ns, span="checkpoint", id=self.spans, step=self.step)
        self.ever_saved = True
        hung = ns > 60 * S
        self.truth.gpu_ns["hang" if hung else "checkpoint"] += ns * self.shape.gpus
        self.open(
            "hang" if hung else "crash",
            detection_ns=ns,
            abort_ns=self.now_ns + ns,
            hang_gpu_ns=ns * self.shape.gpus if hung else 0,
        )
        self.leave(self.now_ns + ns, "signal", 0)

    def vanish(self, unfinished_ns: int) -> None:
        """The last word is a heartbeat; nobody says that anything ended."""
        for pen in self.pens:
            pen.tell("heartbeat", self.now_ns + unfinished_ns, step=self.step, phase="step")
        self.truth.gpu_ns["rework"] += unfinished_ns * self.shape.gpus
        self.now_ns += unfinished_ns
        self.open(
            "lost",
            detection_ns=unfinished_ns,
            abort_ns=self.now_ns,
            rework_gpu_ns=unfinished_ns * self.shape.gpus,
        )

    def rollback(self, pause_ns: int) -> None:
        """Back to the last save without a restart."""
        self.open("rollback", detection_ns=0, abort_ns=self.now_ns)
        incident = self.open_incident
        assert incident is not None
        # The same number again would read as more of the same step: only a `resume` tells that apart.
        if self.shape.resume_events or self.last_save + self.shape.count >= self.step:
            loaded = self.last_save if self.last_save > 0 else None
            for pen in self.pens:
                nulls = () if loaded is not None else ("step",)
                pen.tell("resume", self.now_ns + pause_ns // 2, step=loaded, nulls=nulls)
        self.startup(pause_ns)
        self.fall_back(self.last_save)
        self.now_ns += pause_ns
        incident.recovered_ns = self.now_ns
        self.open_incident = None
        self.plain(3)

    def open(self, cause: str, **figures: Any) -> None:
        self.open_incident = TrueIncident(attempt=self.attempt, cause=cause, **figures)
        self.truth.incidents.append(self.open_incident)

    def leave(self, abort_ns: int, reason: str, teardown_ns: int) -> None:
        late = teardown_ns if len(self.pens) > 2 else 0
        for rank, pen in enumerate(self.pens):
            last = rank == len(self.pens) - 1
            pen.tell("stop", abort_ns + (late if last else 0), reason=reason)
        self.startup(late)
        self.now_ns = abort_ns + late

    # -- ends of the run -------------------------------------------------------------------------------------------

    def finish(self, tail_ns: int, idle_ns: int) -> None:
        self.truth.gpu_ns["unattributed"] += tail_ns * self.shape.gpus
        self.now_ns += tail_ns
        for pen in self.pens:
            pen.tell("stop", self.now_ns, reason="finished")
        self.close_job(idle_ns)
        self.settle("finished")

    def give_up(self, idle_ns: int) -> None:
        """The last attempt has ended, and none follows: back to the last save, if there ever was one."""
        self.close_job(idle_ns)
        if self.ever_saved or self.last_save > 0:
            self.fall_back(self.last_save)
        self.settle("failed")

    def look(self, since_ns: int, *, hung: bool) -> None:
        """The run lives, and somebody looks at it `since_ns` after its last step (further on, where it hangs)."""
        if hung:
            since_ns += self.hang_limit_ns()
        self.truth.gpu_ns["hang" if hung else "productive"] += since_ns * self.shape.gpus
        self.now_ns += since_ns
        for pen in self.pens:
            pen.tell("heartbeat", self.now_ns, step=self.step, phase="step")
        if self.shape.granted is not None:
            self.truth.gpu_ns["idle"] += (self.shape.granted - self.shape.gpus) * (self.now_ns - self.job_from_ns)
            self.allocation(end_ns=None)
        risky = [d for d in self.stack if d.step > self.last_save]
        self.truth.at_risk_gpu_ns = sum(d.ns.get("productive", 0) for d in risky) * self.shape.gpus
        self.settle("hung" if hung else "running")

    @property
    def reported(self) -> bool:
        """Whether anything told of a checkpoint, saved or loaded."""
        return self.ever_saved or (self.shape.resume_events and self.last_save > 0)

    def settle(self, state: str) -> None:
        """What is still on the stack was kept. Named is who was slow in enough of an attempt's kept steps."""
        self.truth.state = state
        if not self.reported:
            self.truth.at_risk_gpu_ns = None
        slow: Counter[tuple[int, int]] = Counter()
        for done in self.stack:
            for category, ns in done.ns.items():
                kept_as = "productive" if category == "rollout" else category
                self.truth.gpu_ns[kept_as] += ns * self.shape.gpus
            if done.slow_rank is not None:
                slow[done.attempt, done.slow_rank] += 1
        # One rank only is ever slow: of s steps it is the latest in all. Two ranks need 10 of them, more need 5.
        enough = 10 if self.shape.ranks == 2 else 5
        self.truth.named_ranks = {rank for (_, rank), n in slow.items() if n >= enough}
