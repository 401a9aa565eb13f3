"""Colours of what is no category, light or dark; the categories' own are those of `goodput_analytics.colours`."""

from __future__ import annotations

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
