"""The accounting rules worked out a second time, plainly and without SQL: the oracle that the product is held to."""

from .events import from_lines
from .report import reference_report

__all__ = ["from_lines", "reference_report"]
