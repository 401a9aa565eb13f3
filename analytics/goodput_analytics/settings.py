"""The thresholds of the accounting rules, in one place."""

from __future__ import annotations

from dataclasses import dataclass

NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the rules leave to the site; the defaults are the design's.

    Attributes:
        hang_floor_ns: a step without progress for less than this is never a hang (rules 3.5 and 3.7).
        span_floor_ns: the same for an open declared span (3.7).
        silence_ns: an attempt that ended without a word and was silent for longer counts as hung (3.3).
        stepless_ns: a live attempt that has made no step for this long is in state `hung` (3.4).
        lost_ns: a live run silent for this long by the collector's clock is `lost` (3.10).
        overlap_ns: two attempts that progress side by side for longer are two launches (3.3).
        loss_tolerance_ratio: by how much of the larger the losses of one step, computed twice, may differ.
        expected_step_ns: what a step should take, if the user knows; what windows take beyond it is `straggler` (3.5).
    """

    hang_floor_ns: int = 10 * NS_PER_S
    span_floor_ns: int = 60 * NS_PER_S
    silence_ns: int = 60 * NS_PER_S
    stepless_ns: int = 1800 * NS_PER_S
    lost_ns: int = 600 * NS_PER_S
    overlap_ns: int = 60 * NS_PER_S
    loss_tolerance_ratio: float = 0.001
    expected_step_ns: int | None = None

    def __post_init__(self) -> None:
        for name in ("hang_floor_ns", "span_floor_ns", "silence_ns", "stepless_ns", "lost_ns", "overlap_ns"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative")
        if not self.loss_tolerance_ratio >= 0:
            raise ValueError("loss_tolerance_ratio must not be negative")
        if self.expected_step_ns is not None and self.expected_step_ns <= 0:
            raise ValueError("expected_step_ns must be positive; leave it out when it is not known")
