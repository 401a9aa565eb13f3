"""Samples as Prometheus and OpenMetrics read them.

Sample lines are the same in both formats and only the lines above them differ, so what a run has to say is formatted
once, when it is computed, and a scrape only puts blocks together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class Kind(StrEnum):
    """The types of metrics that we have."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    INFO = "info"


_SUFFIX = {Kind.COUNTER: "_total", Kind.INFO: "_info"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A metric.

    Attributes:
        name: its name without the suffix that its samples bear: `_total` of a counter, `_info` of an info.
        kind: its type.
        help: what it means, in a line.
        unit: the unit that its name ends in; empty for a bare number.
    """

    name: str
    kind: Kind
    help: str
    unit: str = ""

    def __post_init__(self) -> None:
        if self.unit and not self.name.endswith(f"_{self.unit}"):
            raise ValueError(f"{self.name} must end in its unit, {self.unit}")

    @property
    def sample_name(self) -> str:
        """What samples are called."""
        return self.name + _SUFFIX.get(self.kind, "")

    def sample(self, value: float, labels: Mapping[str, str] | None = None) -> str:
        """One line. Raises ValueError for a value that is no finite number: what is not known has no sample."""
        return line(self.sample_name, value, labels or {})

    def header(self, openmetrics: bool) -> str:
        """The lines above the samples."""
        if not openmetrics:
            kind = Kind.GAUGE if self.kind is Kind.INFO else self.kind
            return f"# HELP {self.sample_name} {_help(self.help)}\n# TYPE {self.sample_name} {kind}\n"
        unit = f"# UNIT {self.name} {self.unit}\n" if self.unit else ""
        return f"# HELP {self.name} {_help(self.help)}\n# TYPE {self.name} {self.kind}\n{unit}"


def line(name: str, value: float, labels: Mapping[str, str]) -> str:
    """One sample. Raises ValueError where the value is not finite."""
    if not math.isfinite(value):
        raise ValueError(f"{name} has no value that can be told: {value}")
    inside = ",".join(f'{label}="{escaped(text)}"' for label, text in labels.items())
    return f"{name}{{{inside}}} {number(value)}\n" if inside else f"{name} {number(value)}\n"


def histogram(
    family: Family, bounds: Iterable[float], counts: Iterable[int], total: float, labels: Mapping[str, str]
) -> str:
    """The lines of a histogram: `counts` of each bucket alone, one more than bounds; `total` sums all values."""
    lines: list[str] = []
    below = 0
    for bound, count in zip([*map(number, bounds), "+Inf"], counts, strict=True):
        below += count
        lines.append(line(f"{family.name}_bucket", below, {**labels, "le": bound}))
    lines.append(line(f"{family.name}_sum", total, labels))
    lines.append(line(f"{family.name}_count", below, labels))
    return "".join(lines)


def page(blocks: Iterable[tuple[Family, Iterable[str]]], openmetrics: bool) -> bytes:
    """The whole answer to a scrape; a metric without samples is left out."""
    parts: list[str] = []
    for family, samples in blocks:
        body = "".join(samples)
        if body:
            parts += (family.header(openmetrics), body)
    if openmetrics:
        parts.append("# EOF\n")
    return "".join(parts).encode("utf-8", "replace")


def wants_openmetrics(accept: str) -> bool:
    """Whether an Accept header asks for OpenMetrics."""
    return "application/openmetrics-text" in accept


def number(value: float) -> str:
    """The shortest text that reads back as the same number; whole numbers as such."""
    if isinstance(value, int):
        return str(value)
    return repr(float(value))


def escaped(text: str) -> str:
    """A label's value as it stands between quotes."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")
