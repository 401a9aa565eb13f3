"""Whether a report says what is right of a scenario."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from scenario import Right

CATEGORIES = (
    "productive",
    "startup",
    "checkpoint",
    "rework",
    "hang",
    "straggler",
    "data_wait",
    "evaluation",
    "unattributed",
    "idle",
)


def faults(report: Mapping[str, Any], right: Right) -> list[str]:
    """Every figure that is not as it should be."""
    found: list[str] = []

    def hold(what: str, told: Any, wanted: Any) -> None:
        if not _same(told, wanted):
            found.append(f"{what}: {told!r}, right is {wanted!r}")

    allocated = sum(right.gpu_s.values())
    hold("state", report["state"], right.state)
    hold("gpu_s", report["gpu_s"], dict.fromkeys(CATEGORIES, 0) | right.gpu_s)
    hold("allocated_gpu_s", report["allocated_gpu_s"], allocated)
    hold("goodput_ratio", report["goodput_ratio"], right.gpu_s.get("productive", 0) / allocated)
    hold("queue_wait_s", report["queue_wait_s"], right.queue_wait_s)
    hold("at_risk_gpu_s", report["at_risk_gpu_s"], right.at_risk_gpu_s)
    for category, phases in right.phases.items():
        hold(f"phases of {category}", report["phases_gpu_s"].get(category), phases)
    for rows, wanted in (
        ("incidents", right.incidents),
        ("stragglers", right.stragglers),
        ("attempts", right.attempts),
    ):
        if wanted is None:
            continue
        hold(f"number of {rows}", len(report[rows]), len(wanted))
        for i, (row, fields) in enumerate(zip(report[rows], wanted, strict=False)):
            for key, value in fields.items():
                hold(f"{rows}[{i}].{key}", row[key], value)
    for part in ("checkpoints", "quality"):
        for key, value in getattr(right, part).items():
            hold(f"{part}.{key}", report[part][key], value)
    codes = {finding["code"] for finding in report["findings"]}
    found += [f"no finding {code}" for code in right.findings if code not in codes]
    return found


def _same(told: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping) and isinstance(told, Mapping):
        return set(told) == set(wanted) and all(_same(told[key], value) for key, value in wanted.items())
    if isinstance(wanted, Sequence) and not isinstance(wanted, str):
        return len(told) == len(wanted) and all(_same(a, b) for a, b in zip(told, wanted, strict=True))
    if isinstance(wanted, float):
        return told is not None and math.isclose(told, wanted, rel_tol=1e-9)
    return bool(told == wanted)
