"""Members: a rank in one attempt. A source is cut into members where a second token begins a new attempt."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from .events import Event, Source

ABNORMAL = frozenset({"exception", "signal", "preempted"})


@dataclass(frozen=True, kw_only=True)
class Step:
    """One rank's account of one step; events with equal step numbers in a row are already one."""

    step: int
    count: int
    start_ns: int
    end_ns: int
    raw_start_ns: int  # on the rank's own clock
    raw_end_ns: int
    data_ns: int | None
    busy_ns: int | None
    applied: bool


@dataclass(kw_only=True)
class Passage:
    """What a rank did between two rollbacks that it saw: its steps and what it had resumed from."""

    moment_ns: int | None  # when the rank saw the rollback that begins it; None for the first
    steps: list[Step] = field(default_factory=list)
    resumes: list[tuple[int, int | None]] = field(default_factory=list)  # (when on the rank's own clock, step)
    raw_moment_ns: int | None = None  # `moment_ns` on the rank's own clock


@dataclass(kw_only=True)
class Member:
    """One source's part in one attempt. Times may be raw or aligned; `aligned` makes the second of the first."""

    source: str
    token: str | None
    rank: int
    world_size: int
    devices: int
    node: str | None
    job: str
    group: str | None
    process_start_ns: int
    start_ns: int
    events: list[Event]
    beats: list[Event]
    exit_ns: int | None
    later_ns: int | None = None  # when it was last heard, if what it did after its attempt's end is left out
    was_killed: bool = False  # it was seen to go by a signal that no launcher sends, or with a bad exit code

    @property
    def stop(self) -> Event | None:
        return next((e for e in self.events if e["kind"] == "stop"), None)

    @property
    def gone_ns(self) -> int | None:
        """When it went: its `stop`, or else its `exit_observed`; None when nobody saw it go."""
        stop = self.stop
        return int(stop["ts_ns"]) if stop else self.exit_ns

    @property
    def last_event_ns(self) -> int:
        return int(max((e["ts_ns"] for e in [*self.events, *self.beats]), default=self.start_ns))

    @property
    def last_heard_ns(self) -> int:
        """Its last sign of life, after its attempt's end too."""
        return self.last_event_ns if self.later_ns is None else max(self.last_event_ns, self.later_ns)

    def heard(self) -> list[Event]:
        """All heartbeats, its own and those of the source beside it, in order of time."""
        own = [e for e in self.events if e["kind"] == "heartbeat"]
        return sorted([*own, *self.beats], key=lambda e: (e["ts_ns"], e["seq"]))

    def up_to(self, end_ns: int) -> Member:
        """The member without what it did after its attempt's end. A step counts by its end, that of its last piece.

        A `stop` and a `durable` are kept: they have limits of their own.
        """
        late = {id(e) for row in self.rows_of_steps() for e in row if max(map(step_end, row)) > end_ns}

        def counts(e: Event) -> bool:
            return id(e) not in late if e["kind"] == "step" else bool(e["ts_ns"] <= end_ns)

        kept = [e for e in self.events if counts(e) or e["kind"] in ("stop", "durable")]
        return replace(
            self,
            events=kept,
            beats=[e for e in self.beats if e["ts_ns"] <= end_ns],
            later_ns=self.last_heard_ns,
        )

    def rows_of_steps(self) -> list[list[Event]]:
        """Its step events, those with equal step numbers in a row together: they are one step."""
        rows: list[list[Event]] = []
        begun = False
        for event in self.events:
            if event["kind"] == "resume":
                begun = False
            elif event["kind"] == "step":
                if begun and rows[-1][0]["step"] == event["step"]:
                    rows[-1].append(event)
                else:
                    rows.append([event])
                begun = True
        return rows

    def passages(self) -> list[Passage]:
        """Its steps, cut at each rollback: a step number that falls back, or a `resume` after the first step."""
        out = [Passage(moment_ns=None)]
        for event in self.events:
            here = out[-1]
            if event["kind"] == "resume":
                raw = event["ts_ns"] + event.get("_offset_ns", 0)
                if here.steps:
                    here = Passage(moment_ns=event["ts_ns"], raw_moment_ns=raw)
                    out.append(here)
                here.resumes.append((raw, event.get("step")))
            elif event["kind"] == "step":
                step = as_step(event)
                if here.steps and step.step < here.steps[-1].step:
                    out.append(Passage(moment_ns=step.start_ns, raw_moment_ns=step.raw_start_ns, steps=[step]))
                elif here.steps and step.step == here.steps[-1].step:
                    here.steps[-1] = joined(here.steps[-1], step)
                else:
                    here.steps.append(step)
        return out


def step_end(event: Event) -> int:
    """An end before its start counts as a step of no length."""
    return int(max(event["start_ns"], event["end_ns"]))


def as_step(e: Event) -> Step:
    end = step_end(e)
    shift = e.get("_offset_ns", 0)
    return Step(
        step=e["step"],
        count=e.get("count") or 1,
        start_ns=e["start_ns"],
        end_ns=end,
        raw_start_ns=e["start_ns"] + shift,
        raw_end_ns=end + shift,
        data_ns=e.get("data_ns"),
        busy_ns=e.get("busy_ns"),
        applied=e.get("applied") is not False,
    )


def joined(a: Step, b: Step) -> Step:
    """Two events of one step, such as the parts of an accumulated batch: what they waited and worked adds up."""

    def plus(x: int | None, y: int | None) -> int | None:
        return None if x is None and y is None else (x or 0) + (y or 0)

    return replace(
        a,
        count=max(a.count, b.count),
        start_ns=min(a.start_ns, b.start_ns),
        end_ns=max(a.end_ns, b.end_ns),
        raw_start_ns=min(a.raw_start_ns, b.raw_start_ns),
        raw_end_ns=max(a.raw_end_ns, b.raw_end_ns),
        data_ns=plus(a.data_ns, b.data_ns),
        busy_ns=plus(a.busy_ns, b.busy_ns),
        applied=a.applied or b.applied,
    )


def killed(exits: list[Event]) -> bool:
    first = min(exits, key=lambda x: (x["ts_ns"], x["seq"]), default=None)
    if first is None:
        return False
    if first.get("oom"):
        return True
    if first.get("signal") is not None:
        return first["signal"] not in (2, 15)
    return first.get("exit_code") not in (None, 0)


def members_of(source: Source) -> list[Member]:
    """The source's members, one per token that it told; one in all when it told none."""
    start = source.start
    cuts: list[tuple[int, str | None, Event]] = []  # index of the first event, token, the event that told it
    token: str | None = None
    for i, event in enumerate(source.events):
        told = event.get("attempt_token") if event["kind"] in ("start", "joined") else None
        if told is not None and told != token:
            if token is None:
                cuts = [(0, told, start)]
            else:
                cuts.append((i, told, event))
            token = told
    cuts = cuts or [(0, None, start)]
    out = []
    for n, (first, token, told_by) in enumerate(cuts):
        after = cuts[n + 1] if n + 1 < len(cuts) else None
        since = told_by["ts_ns"] if n else None
        until = after[2]["ts_ns"] if after else None
        joins = [e for e in source.events[first : after[0] if after else None] if e["kind"] == "joined"]
        who = joins[0] if joins else start
        process_start = start.get("process_start_ns")
        out.append(
            Member(
                source=source.name,
                token=token,
                rank=who["rank"] if who.get("rank") is not None else start["rank"],
                world_size=who.get("world_size") or start["world_size"],
                devices=start["devices"] if start.get("devices") is not None else 1,
                node=start.get("node"),
                job=start["job"],
                group=start.get("group"),
                process_start_ns=(
                    since if since is not None else start["ts_ns"] if process_start is None else process_start
                ),
                start_ns=since if since is not None else start["ts_ns"],
                events=source.events[first : after[0] if after else None],
                beats=[
                    b
                    for b in source.beats
                    if (since is None or b["ts_ns"] >= since) and (until is None or b["ts_ns"] < until)
                ],
                exit_ns=min((x["ts_ns"] for x in source.exits), default=None) if after is None else None,
                was_killed=after is None and killed(source.exits),
            )
        )
    return out
