"""Reading: from event dicts to sources, each with its events in order."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

Event = dict[str, Any]

RANK_KINDS = frozenset({"start", "joined", "resume", "step", "begin", "end", "durable", "progress", "stop"})
KINDS = RANK_KINDS | {"heartbeat", "exit_observed", "allocation", "dropped"}


@dataclass(kw_only=True)
class Source:
    """One writing process, with its own events by `seq` and what others tell about it."""

    name: str
    start: Event
    events: list[Event]
    beats: list[Event] = field(default_factory=list)  # from sources of their own, `of` this one
    exits: list[Event] = field(default_factory=list)  # exit_observed, `of` this one


@dataclass(kw_only=True)
class Reading:
    """All that one run's events say, before any rule has looked at it."""

    sources: list[Source]
    allocations: list[Event]
    events: int
    gaps: int
    dropped: int
    without_start: int
    negative_durations: int
    others: list[Event]  # events whose clock nobody can align


def from_lines(lines: Iterable[str | bytes]) -> list[Event]:
    """Events of JSON Lines: carried `run` and `source`, each (source, seq) once. Bad lines are passed over.

    Of two events with the same (source, seq) the smaller line in byte order is kept.
    """
    kept: dict[tuple[str, int], tuple[bytes, Event]] = {}
    run: str | None = None
    source: str | None = None
    for line in lines:
        raw = line.encode() if isinstance(line, str) else line
        raw = raw.strip()
        if not raw:
            continue
        try:
            event = json.loads(raw)
        except ValueError:
            run = source = None
            continue
        if not isinstance(event, dict):
            run = source = None
            continue
        if "source" in event:
            source, run = event["source"], event.get("run", run)
        elif "run" in event:
            run = event["run"]
        if event.get("kind") not in KINDS:
            continue
        if event["kind"] != "allocation":
            event.setdefault("run", run)
        event.setdefault("source", source)
        if event["source"] is None or (event.get("run") is None and event["kind"] != "allocation"):
            continue
        key = (event["source"], event["seq"])
        if key not in kept or raw < kept[key][0]:
            kept[key] = (raw, event)
    return [event for _, event in kept.values()]


def read(events: Iterable[Event], run: str) -> Reading:
    """The run's events by source. An allocation without `run` is found through the jobs of the run's starts."""
    events = list(events)
    jobs = {e.get("job") for e in events if e["kind"] == "start" and e.get("run") == run}
    mine = [
        e
        for e in events
        if e.get("run") == run or (e["kind"] == "allocation" and e.get("run") is None and e["job"] in jobs)
    ]
    by_source: dict[str, list[Event]] = defaultdict(list)
    for event in mine:
        by_source[event["source"]].append(event)
    negative = 0
    sources: dict[str, Source] = {}
    without_start = 0
    others: list[Event] = []
    about: list[Event] = []
    for name in sorted(by_source):
        told = sorted(by_source[name], key=lambda e: e["seq"])
        starts = [e for e in told if e["kind"] == "start"]
        foreign = [e for e in told if e["kind"] == "exit_observed" or (e["kind"] == "heartbeat" and e.get("of"))]
        about += foreign
        own = [e for e in told if e["kind"] in RANK_KINDS or (e["kind"] == "heartbeat" and not e.get("of"))]
        others += [e for e in told if e["kind"] in ("allocation", "dropped")]
        if starts:
            negative += sum(e["kind"] == "step" and e["end_ns"] < e["start_ns"] for e in own)
            sources[name] = Source(name=name, start=starts[0], events=own)
        elif own:
            without_start += 1
            others += own
    for event in about:
        told_of = sources.get(event["of"])
        if told_of is None:
            others.append(event)
        elif event["kind"] == "heartbeat":
            told_of.beats.append(event)
        else:
            told_of.exits.append(event)
    return Reading(
        sources=list(sources.values()),
        allocations=[e for e in mine if e["kind"] == "allocation"],
        events=len(mine),
        gaps=sum(max(e["seq"] for e in told) + 1 - len(told) for told in by_source.values()),
        dropped=sum(e.get("count") or 1 for e in mine if e["kind"] == "dropped"),
        without_start=without_start,
        negative_durations=negative,
        others=others,
    )
