"""Reads a spool as any reader of the event contract would."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from goodput.spool import list_segments


def read_events(spool: Path) -> list[dict[str, Any]]:
    """All events, with `run` and `source` carried over from each file's first line. Raises on a torn line."""
    events = []
    for segment in list_segments(spool):
        carried: dict[str, Any] = {}
        content = segment.path.read_bytes()
        assert content.endswith(b"\n"), f"{segment.path.name} ends in the middle of a line"
        for line in content.splitlines():
            event = json.loads(line)
            carried = {name: event.get(name, carried.get(name)) for name in ("run", "source")}
            assert None not in carried.values(), f"{segment.path.name} does not name its run and source first"
            events.append({**carried, **event})
    return events


def of_rank(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without heartbeats, in the order of `seq`."""
    return sorted((e for e in events if e["kind"] != "heartbeat"), key=lambda e: (e["source"], e["seq"]))


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [event["kind"] for event in of_rank(events)]


def done_steps(events: list[dict[str, Any]]) -> list[int]:
    """Every step number that the `step` events stand for."""
    return [
        step
        for event in of_rank(events)
        if event["kind"] == "step"
        for step in range(event["step"] - event.get("count", 1) + 1, event["step"] + 1)
    ]
