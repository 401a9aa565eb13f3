"""One colour for each category, the same in every picture and in the terminal, on light and on dark grounds."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from goodput_analytics.model import Category

CATEGORY_COLOURS: Mapping[str, str] = MappingProxyType(
    {
        Category.PRODUCTIVE: "#1d7857",
        Category.STARTUP: "#8985ff",
        Category.CHECKPOINT: "#5f4fec",
        Category.REWORK: "#de7502",
        Category.HANG: "#d93863",
        Category.STRAGGLER: "#955c07",
        Category.DATA_WAIT: "#4f9cc4",
        Category.EVALUATION: "#bb8b59",
        Category.UNATTRIBUTED: "#6d5fa7",
        Category.IDLE: "#a0918f",
    }
)
"""sRGB. Found by a search for the largest distances between any two, and between neighbours in this order, as people
see them who confuse red with green or blue with yellow; each has a contrast of at least 3 : 1 with white and with
near-black. Tests hold all of it."""
