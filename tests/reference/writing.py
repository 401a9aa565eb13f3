"""Writing events down: a rank's events with their sequence numbers, and events as JSON Lines."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from .events import Event

TIMES = ("ts_ns", "start_ns", "end_ns", "process_start_ns", "phase_since_ns")


@dataclass(kw_only=True)
class Pen:
    """Writes one source's events. `ahead_ns`: by how much its clock is wrong."""

    run: str
    source: str
    ahead_ns: int = 0
    out: list[Event] = field(default_factory=list)
    seq: int = 0

    def tell(self, kind: str, ts_ns: int, **fields: Any) -> None:
        """One event; fields that are None are left out, `nulls` names those that are to stand as null."""
        nulls = fields.pop("nulls", ())
        event: Event = {"kind": kind, "run": self.run, "source": self.source, "seq": self.seq, "ts_ns": ts_ns}
        event |= {k: v for k, v in fields.items() if v is not None} | dict.fromkeys(nulls)
        for name in TIMES:
            if event.get(name) is not None:
                event[name] += self.ahead_ns
        self.seq += 1
        self.out.append(event)


def to_lines(events: Iterable[Event]) -> list[str]:
    """Each event as one line of JSON, without the newline."""
    return [json.dumps(e, separators=(",", ":")) for e in events]
