"""The figures that are compared, and an entry of the ledger as the comparison needs it."""

from __future__ import annotations

from dataclasses import dataclass

NS_PER_S = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """One entry of the ledger."""

    category: str
    phase: str | None
    start_ns: int
    end_ns: int
    gpus: int
    step: int | None

    @property
    def gpu_ns(self) -> int:
        return (self.end_ns - self.start_ns) * self.gpus


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One comparison. Figures in `unit`; `allowed` is the largest difference that passes, and `why` says why."""

    what: str
    injected: float | None
    ledger: float | None
    allowed: float
    unit: str
    why: str

    @property
    def difference(self) -> float | None:
        """Ledger minus truth; None where one of them is missing."""
        return None if self.injected is None or self.ledger is None else self.ledger - self.injected

    @property
    def holds(self) -> bool:
        return self.difference is not None and abs(self.difference) <= self.allowed


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A comparison of words, which must be equal."""

    what: str
    injected: str
    ledger: str

    @property
    def holds(self) -> bool:
        return self.injected == self.ledger
