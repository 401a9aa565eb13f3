"""A plain, slow simulator of a job that saves and fails: one activity after another, as one would tell it.

It knows nothing of arrays, cycles or divisions; what it shares with the one under test is the description of the job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from goodput_analytics.simulate_job import Job


class Failed(Exception):  # noqa: N818 - it reads as what it says
    """A failure struck; the clock stands at it."""


class SlowRun:
    """One run. `next_failure(now)` gives the moment of the first failure after `now`."""

    def __init__(self, job: Job, interval_s: float, next_failure: Callable[[float], float]) -> None:
        self.job, self.interval_s, self.next_failure = job, interval_s, next_failure
        self.now = 0.0
        self.spent: Counter[str] = Counter()
        self.fails_at = next_failure(0.0)
        self.safe = 0.0  # useful seconds that are durable
        self.back = [0.0] * (job.elastic.nodes if job.elastic else 1)

    @property
    def speed(self) -> float:
        return sum(moment <= self.now for moment in self.back) / len(self.back)

    def pass_time(self, name: str, seconds: float, speed: float) -> None:
        """Let time pass as `name`; a failure in it ends it."""
        failed = self.now + seconds > self.fails_at
        told = min(seconds, self.fails_at - self.now)
        self.spent[name] += told * speed
        self.spent["degraded"] += told * (1 - speed)
        self.now = self.fails_at if failed else self.now + seconds
        if failed:
            raise Failed

    def fail(self) -> None:
        job = self.job
        if job.hang_ratio == 1:
            self.spent["hang"] += job.hang_timeout_s * self.speed
            self.spent["degraded"] += job.hang_timeout_s * (1 - self.speed)
            self.now += job.hang_timeout_s
        if job.elastic:
            there = self.back.index(min(self.back))
            self.back[there] = self.now + job.elastic.repair_s
        self.fails_at = self.next_failure(self.now)

    def wait_for_nodes(self) -> None:
        elastic = self.job.elastic
        if elastic is None:
            return
        speed, began = self.speed, self.now
        while sum(moment <= self.now for moment in self.back) < elastic.min_nodes:
            self.now = min(moment for moment in self.back if moment > self.now)
        if self.now > began:
            self.spent["restart"] += (self.now - began) * speed
            self.spent["degraded"] += (self.now - began) * (1 - speed)
            self.fails_at = self.next_failure(self.now)

    def go(self) -> dict[str, float]:
        """Run to the end, and return the shares of time."""
        restart_s = 0.0
        while self.safe < self.job.useful_s:
            self.wait_for_nodes()
            speed = self.speed  # who comes back during the restart is too late for it
            returns = min((moment for moment in self.back if moment > self.now), default=None)
            try:
                self.pass_time("restart", restart_s, speed)
            except Failed:
                self.fail()
                restart_s = self.restart_s()
                continue
            try:
                self.live(speed, returns)
            except Failed:
                self.fail()
            restart_s = self.restart_s()
        total = sum(self.spent.values())
        assert abs(total - self.now) < 1e-6 * self.now
        return {name: self.spent[name] / self.now for name in SHARES}

    def restart_s(self) -> float:
        return self.job.elastic.restart_s if self.job.elastic else self.job.restart_s

    def live(self, speed: float, returns: float | None) -> None:
        """Work and save until a failure, the end, or a save at which a repaired node comes back."""
        job, before = self.job, self.spent["goodput"]
        writing: list[tuple[float, float]] = []  # (when durable, useful seconds that are then safe)
        done, began_with = self.safe, self.safe
        try:
            while done < job.useful_s:
                chunk = min(self.interval_s, job.useful_s - done)
                if job.useful_s - done - chunk < 1e-9 * job.useful_s:
                    chunk = job.useful_s - done
                self.pass_time("goodput", chunk / speed, speed)
                if writing and writing[-1][0] > self.now:
                    self.pass_time("checkpoint", writing[-1][0] - self.now, speed)
                self.pass_time("checkpoint", job.checkpoint_s, speed)
                done += chunk
                writing.append((self.now + job.write_s, done))
                joining = returns is not None and writing[-1][0] >= returns
                if done >= job.useful_s or joining:
                    self.pass_time("checkpoint", job.write_s, speed)
                    self.now = writing[-1][0]
                    return
        finally:
            for durable, useful in writing:
                if durable <= self.now:
                    self.safe = useful
            worked = self.spent["goodput"] - before
            self.spent["rework"] += worked - (self.safe - began_with)
            self.spent["goodput"] = before + (self.safe - began_with)


SHARES = ("goodput", "checkpoint", "rework", "restart", "hang", "degraded")
