"""What a scenario is: a small run whose right figures were worked out by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from reference.stories import Story, at

Row = Mapping[str, Any]
Tell = Callable[[Story], None]


@dataclass(frozen=True, kw_only=True)
class Right:
    """What a report must say. Categories and phases that are not named are 0, what is None is not looked at.

    Attributes:
        gpu_s: by category; the sum is the allocation.
        phases: by (category, phase), those of the named categories in full.
        incidents, stragglers: the fields that are named, of all rows.
        attempts: the same.
        checkpoints, quality: the fields that are named.
        findings: codes that must be among the findings.
    """

    state: str
    gpu_s: Mapping[str, float]
    phases: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    incidents: tuple[Row, ...] = ()
    stragglers: tuple[Row, ...] = ()
    attempts: tuple[Row, ...] | None = None
    checkpoints: Row = field(default_factory=dict)
    quality: Row = field(default_factory=dict)
    findings: tuple[str, ...] = ()
    queue_wait_s: float | None = None
    at_risk_gpu_s: float | None = 0.0


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A run, told by `tell`, and what is right of it."""

    name: str
    tell: Tell
    right: Right
    run: str = "story"

    def events(self) -> list[dict[str, Any]]:
        story = Story(run=self.run.partition("~")[0])
        self.tell(story)
        return story.events


def scenario(right: Right, *, run: str = "story") -> Callable[[Tell], Scenario]:
    """Names a scenario after the function that tells it."""
    return lambda tell: Scenario(name=tell.__name__, tell=tell, right=right, run=run)


def grant(
    story: Story, job: str, gpus: int, *, submit: float, start: float, end: float | None, reason: str | None = None
) -> None:
    """The scheduler's word about a job."""
    story.other(f"scheduler of {job}").tell(
        "allocation",
        at(start if end is None else end),
        job=job,
        gpus=gpus,
        submit_ns=at(submit),
        start_ns=at(start),
        end_ns=None if end is None else at(end),
        end_reason=reason,
        nulls=("end_ns",) if end is None else (),
    )
