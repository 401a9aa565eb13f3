"""What the ranks' own logs show of how regular the training was: the causes from which tolerances come."""

from __future__ import annotations

import math
import statistics

from goodput_collector.demo.figures import NS_PER_S
from goodput_collector.demo.truth import Record


def longest_step_s(record: Record, attempt: int) -> float:
    """The longest of the attempt's last 25 steps, by the ranks' logs."""
    steps = sorted(record.of(attempt, "step"), key=lambda line: line.end_ns)[-25 * record.ranks :]
    return max(((line.end_ns - line.start_ns) / NS_PER_S for line in steps), default=0.0)


def own_work_spread_s(record: Record, attempt: int, leave_out: set[int | None]) -> float:
    """By how much the ranks' own work may differ, on average over as many steps as are left out, by chance alone.

    From largest minus smallest in each other step: the mean, and three standard errors of a mean of so many.
    """
    own: dict[int, list[int]] = {}
    for line in record.of(attempt, "step"):
        if line.step is not None and line.own_ns is not None and line.step not in leave_out:
            own.setdefault(line.step, []).append(line.own_ns)
    spreads = [(max(times) - min(times)) / NS_PER_S for times in own.values()]
    if not spreads or not leave_out:
        return 0.0
    return statistics.mean(spreads) + 3 * statistics.pstdev(spreads) / math.sqrt(len(leave_out))


def first_step_excess_s(record: Record, attempt: int) -> float:
    """What the first step took beyond the median of the attempt's next 25."""
    spans: dict[int, tuple[int, int]] = {}
    for line in record.of(attempt, "step"):
        if line.step is not None:
            start_ns, end_ns = spans.get(line.step, (line.start_ns, line.end_ns))
            spans[line.step] = min(start_ns, line.start_ns), max(end_ns, line.end_ns)
    lengths = [end_ns - start_ns for _, (start_ns, end_ns) in sorted(spans.items())]
    return max(0.0, lengths[0] - statistics.median(lengths[1:26])) / NS_PER_S if len(lengths) > 1 else 0.0


def uneven_s(record: Record, attempt: int) -> float:
    """How unevenly the ranks leave a step together: the 90th percentile of latest minus earliest end."""
    ends: dict[int, list[int]] = {}
    for line in record.of(attempt, "step"):
        if line.step is not None:
            ends.setdefault(line.step, []).append(line.end_ns)
    return _high([max(times) - min(times) for times in ends.values()])


def _high(values_ns: list[int]) -> float:
    """The 90th percentile, in seconds; 0 of nothing."""
    return sorted(values_ns)[len(values_ns) * 9 // 10] / NS_PER_S if values_ns else 0.0


def save_lengths_s(record: Record) -> dict[tuple[int, int], float]:
    """By attempt and step: how long the job was blocked, from the first rank's entry to the last one's leaving."""
    starts: dict[tuple[int, int], int] = {}
    ends: dict[tuple[int, int], int] = {}
    attempt_of = {worker.pid: worker.attempt for worker in record.workers}
    for line in record.witnessed:
        if line.what == "save" and line.step is not None and line.pid in attempt_of:
            key = (attempt_of[line.pid], line.step)
            starts[key] = min(starts.get(key, line.start_ns), line.start_ns)
            ends[key] = max(ends.get(key, 0), line.end_ns)
    return {key: (ends[key] - start_ns) / NS_PER_S for key, start_ns in starts.items()}
