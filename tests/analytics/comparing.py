"""What two reports of one run disagree about, figure by figure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import duckdb

from goodput_analytics import Settings, report

# The reference reads events, not deliveries: it cannot know these. The landing's own tests hold them.
OF_DELIVERY = frozenset({"duplicates", "conflicts", "rejected"})
# Sentences are for people; test_findings.py holds them.
NOT_FIGURES = frozenset({"findings"})
Key = tuple[int | None, str, str | None]


def product_report(
    con: duckdb.DuckDBPyConnection, run: str, *, now_ns: int | None = None, settings: Settings | None = None
) -> dict[str, Any]:
    """The product's report, with its ledger's exact sums beside, as `_sums`; `_empty` intervals hold nothing."""
    told = report(con, run, now_ns=now_ns, settings=settings).as_json()
    intervals = con.execute(
        "SELECT run, attempt, category, phase, start_ns, end_ns, gpus, step FROM ledger_intervals"
    ).fetchall()
    told["_sums"] = ledger_sums(intervals)
    told["_empty"] = [row for row in intervals if row[4] >= row[5] or row[6] <= 0]
    return told


def ledger_sums(intervals: Iterable[tuple[Any, ...]]) -> dict[Key, int]:
    """GPU-nanoseconds by (attempt, category, phase); idle GPUs are nobody's."""
    sums: Counter[Key] = Counter()
    for _, attempt, category, phase, start_ns, end_ns, gpus, _ in intervals:
        name = str(category)
        sums[None if name == "idle" else attempt, name, phase or None] += (end_ns - start_ns) * gpus
    return {key: ns for key, ns in sums.items() if ns}


def differences(told: Mapping[str, Any], right: Mapping[str, Any]) -> list[str]:
    """Every figure in which a product's report differs from the reference's; none is left out."""
    found: list[str] = []
    expected = {key: value for key, value in right.items() if not key.startswith("_") and key not in NOT_FIGURES}
    expected["quality"] = {k: v for k, v in right["quality"].items() if k not in OF_DELIVERY}
    _compare("", {key: told.get(key, "missing") for key in expected}, expected, found)
    found += [f"ledger: an interval that holds nothing: {row}" for row in told["_empty"]]
    sums = ledger_sums(right["_intervals"])
    for key in sorted({*sums, *told["_sums"]}, key=repr):
        if told["_sums"].get(key, 0) != sums.get(key, 0):
            found.append(f"ledger{key}: {told['_sums'].get(key, 0)}, right is {sums.get(key, 0)}")
    return found


def _compare(path: str, told: Any, right: Any, found: list[str]) -> None:
    if isinstance(right, Mapping) and isinstance(told, Mapping):
        for key in {**right, **told} if path != "quality" else right:
            _compare(f"{path}.{key}" if path else str(key), told.get(key), right.get(key), found)
    elif isinstance(right, list | tuple) and isinstance(told, list | tuple):
        if len(told) != len(right):
            found.append(
                f"{path}: {len(told)} of them, right is {len(right)}: {list(told)!r}, right is {list(right)!r}"
            )
            return
        for index, (one, other) in enumerate(zip(told, right, strict=True)):
            _compare(f"{path}[{index}]", one, other, found)
    elif not same(told, right):
        found.append(f"{path}: {told!r}, right is {right!r}")


def same(told: Any, right: Any) -> bool:
    """Equal; of floats, as equal as two orders of the same few operations can be."""
    if isinstance(told, float) or isinstance(right, float):
        return told is not None and right is not None and math.isclose(told, right, rel_tol=1e-12, abs_tol=1e-9)
    return bool(told == right)
