"""Clocks: how far each source's clock is ahead, and its times with that taken off."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

from .events import Event
from .members import Member, step_end
from .numbers import lower_median, median
from .placing import place

BLOCK_STEPS = 1000
TIMES = ("ts_ns", "start_ns", "end_ns", "process_start_ns", "phase_since_ns")


@dataclass(frozen=True, kw_only=True)
class Clock:
    """One source's offsets by block of step numbers, and where in its life each block applies."""

    by_block: dict[int, int]
    step_seqs: list[tuple[int, int]]  # (seq, block) of its step events
    step_ends: list[tuple[int, int]]  # (raw end, block)

    def at_block(self, block: int) -> int:
        """The block's offset, else the nearest earlier one's, else the next one's, else 0."""
        earlier = [b for b in self.by_block if b <= block]
        later = [b for b in self.by_block if b > block]
        if earlier:
            return self.by_block[max(earlier)]
        return self.by_block[min(later)] if later else 0

    def at_seq(self, seq: int) -> int:
        """For an event of the source: the block of its last step so far, before the first step that one's."""
        if not self.step_seqs:
            return 0
        past = [block for s, block in self.step_seqs if s <= seq]
        return self.at_block(past[-1] if past else self.step_seqs[0][1])

    def at_time(self, raw_ns: int) -> int:
        """The same for an event that another source tells, by its time."""
        if not self.step_ends:
            return 0
        past = [block for end, block in self.step_ends if end <= raw_ns]
        return self.at_block(past[-1] if past else self.step_ends[0][1])


def clocks(attempts: list[list[Member]]) -> dict[str, Clock]:
    """Each source's clock, from the steps that it shared with others of its attempt."""
    apart: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for members in attempts:
        shared: dict[tuple[int, int], list[tuple[str, int]]] = defaultdict(list)
        for member, life, step in place(members).steps:
            shared[life, step.step].append((member.source, step.end_ns))
        for (_, step_number), ends in shared.items():
            if len(ends) > 1:
                middle = lower_median([end for _, end in ends])
                for source, end in ends:
                    apart[source][step_number // BLOCK_STEPS].append(end - middle)
    steps: dict[str, list[Event]] = defaultdict(list)
    for members in attempts:
        for member in members:
            steps[member.source] += [e for e in member.events if e["kind"] == "step"]
    out = {}
    for source in {m.source for members in attempts for m in members}:
        told = sorted(steps[source], key=lambda e: e["seq"])
        offsets = {block: median(values) for block, values in apart[source].items()}
        out[source] = Clock(
            by_block={block: offset for block, offset in offsets.items() if offset is not None},
            step_seqs=[(e["seq"], e["step"] // BLOCK_STEPS) for e in told],
            step_ends=[(step_end(e), e["step"] // BLOCK_STEPS) for e in told],
        )
    return out


def shifted(event: Event, offset_ns: int) -> Event:
    moved = {k: event[k] - offset_ns for k in TIMES if event.get(k) is not None}
    return {**event, **moved, "_offset_ns": offset_ns}


def aligned(member: Member, clock: Clock) -> Member:
    """The member with all its times on the common clock."""
    offset = clock.at_seq(member.events[0]["seq"])
    return replace(
        member,
        process_start_ns=member.process_start_ns - offset,
        start_ns=member.start_ns - offset,
        events=[shifted(e, clock.at_seq(e["seq"])) for e in member.events],
        beats=[shifted(e, clock.at_time(e["ts_ns"])) for e in member.beats],
        exit_ns=None if member.exit_ns is None else member.exit_ns - clock.at_time(member.exit_ns),
    )
