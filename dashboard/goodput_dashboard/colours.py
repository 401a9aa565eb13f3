"""One colour for each category and each state of a run, the same in every picture, light or dark."""

from __future__ import annotations

from goodput_analytics import Category

CATEGORY_COLOURS: dict[str, str] = {
    Category.PRODUCTIVE: "#00a65d",
    Category.STARTUP: "#8882e8",
    Category.CHECKPOINT: "#6e27c7",
    Category.REWORK: "#d48e23",
    Category.HANG: "#b3210f",
    Category.STRAGGLER: "#f6d503",
    Category.DATA_WAIT: "#57e6fb",
    Category.EVALUATION: "#224d7e",
    Category.UNATTRIBUTED: "#6c4246",
    Category.IDLE: "#a5adb5",
}
"""Chosen apart in lightness as much as in hue, so that people who confuse red with green, or blue with yellow, still
tell any two of them apart; a test holds the distances."""

HELD_COLOUR = "#7f8791"
ACCENT_COLOUR = "#8882e8"
# Streamlit's names for the colours of a badge.
STATE_BADGES = {
    "running": "green",
    "finished": "gray",
    "hung": "red",
    "failed": "red",
    "lost": "red",
    "paused": "orange",
}
