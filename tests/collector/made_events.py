"""The events of the run that docs/ACCOUNTING.md checks by hand, and a writer of event files."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

S = 1_000_000_000
T0_NS = 1_767_225_600 * S  # 2026-01-01 00:00:00 UTC
Event = dict[str, Any]


def attempt(
    number: int,
    *,
    started_s: float,
    first_step_s: float,
    steps: range,
    resumed: int | None,
    save_after: int | None = None,
    save_s: float = 3,
    stop_s: float,
    reason: str,
) -> list[Event]:
    """One life of two ranks whose steps take a second each, as they would tell it."""
    events: list[Event] = []
    for rank in range(2):
        source, own = f"a{number}-r{rank}", []

        def add(kind: str, at_s: float, source: str = source, own: list[Event] = own, **fields: Any) -> None:
            head = {"kind": kind, "run": "by-hand", "source": source, "seq": len(own)}
            own.append({**head, "ts_ns": T0_NS + round(at_s * S), **fields})

        identity = {"rank": rank, "world_size": 2, "attempt_token": f"token-{number}"}
        add(
            "start", started_s + 1, v=1, job="local:host:1", restart_count=number, local_rank=rank, node="host",
            pid=100 + rank, devices=1, process_start_ns=T0_NS + round(started_s * S), **identity,
        )  # fmt: skip
        add("resume", first_step_s, step=resumed)
        now_s = first_step_s
        for step in steps:
            times = {"start_ns": T0_NS + round(now_s * S), "end_ns": T0_NS + round((now_s + 1) * S)}
            now_s += 1
            add("step", now_s, step=step, **times)
            if step == save_after:
                add("begin", now_s, span="checkpoint", id="save", step=step)
                now_s += save_s
                add("end", now_s, span="checkpoint", id="save", step=step, ok=True)
        add("stop", stop_s, reason=reason)
        events += own
    return events


def by_hand() -> list[Event]:
    """Two GPUs, 40 steps, one save, one crash that loses ten steps."""
    return [
        *attempt(
            0, started_s=0, first_step_s=10, steps=range(1, 31), resumed=None, save_after=20, stop_s=43.4,
            reason="exception",
        ),
        *attempt(1, started_s=45, first_step_s=53, steps=range(21, 41), resumed=20, stop_s=73, reason="finished"),
    ]  # fmt: skip


def write(path: Path, events: Iterable[Event]) -> Path:
    path.write_text("".join(json.dumps(event, separators=(",", ":")) + "\n" for event in events))
    return path
