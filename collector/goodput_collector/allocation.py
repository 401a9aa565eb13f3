"""What a scheduler granted, as `allocation` events. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from goodput_collector.errors import GoodputCollectorError

NS_PER_S = 1_000_000_000


class AllocationError(GoodputCollectorError):
    """What a scheduler was said to have told cannot be read."""


class EndReason(StrEnum):
    """Why a grant ended: the words of the event contract."""

    COMPLETED = "completed"
    FAILED = "failed"
    PREEMPTED = "preempted"
    TIMEOUT = "timeout"
    NODE_FAILURE = "node_failure"
    MAINTENANCE = "maintenance"
    OOM = "oom"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """GPUs that a job held, or holds.

    Attributes:
        job: as the recorder writes it.
        gpus: how many.
        start_ns, end_ns: from when to when; None while they are held.
        submit_ns: when it was asked for.
        end_reason: why it ended; None where nobody tells.
        run: the run, where it is known; else it is found through the job.
    """

    job: str
    gpus: int
    start_ns: int
    end_ns: int | None = None
    submit_ns: int | None = None
    end_reason: EndReason | None = None
    run: str | None = None

    def line(self) -> bytes:
        """The event. The same grant is the same event however often it is told; a later state of it is another one."""
        told: dict[str, Any] = {
            "job": self.job,
            "gpus": self.gpus,
            "submit_ns": self.submit_ns,
            "start_ns": self.start_ns,
            "end_ns": self.end_ns,
            "end_reason": None if self.end_reason is None else str(self.end_reason),
        }
        if self.run is not None:
            told["run"] = self.run
        content = json.dumps(told, sort_keys=True)
        digest = hashlib.sha256(content.encode()).hexdigest()[:16]
        at_ns = self.start_ns if self.end_ns is None else max(self.end_ns, self.start_ns)
        event = {"kind": "allocation", "source": f"allocation:{digest}", "seq": 0, "ts_ns": at_ns, **told}
        return json.dumps(event, separators=(",", ":")).encode() + b"\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grants:
    """What was found: the grants in order of their start, and why other jobs are not among them."""

    grants: tuple[Grant, ...]
    waiting: int = 0
    without_gpus: int = 0


def lines(grants: Iterable[Grant]) -> bytes:
    """The events of all grants."""
    return b"".join(one.line() for one in grants)


def load_json(text: str, what: str) -> Any:
    """JSON as Python objects. Raises AllocationError."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise AllocationError(f"This is not the JSON of {what}: {error}") from error


def moment_ns(text: str) -> int:
    """A time such as 2026-01-01T00:00:00Z, or without a zone in this machine's. Raises ValueError."""
    at = datetime.fromisoformat(text.replace("Z", "+00:00"))
    since = at.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * NS_PER_S + since.microseconds * 1000
