"""The ledger of a training run: relations and numbers from a DuckDB connection handed in."""

from goodput_analytics.model import (
    Attempt,
    Category,
    Checkpoints,
    Finding,
    Incident,
    Quality,
    Report,
    RunState,
    RunSummary,
    Straggler,
)
from goodput_analytics.settings import Settings

__all__ = [
    "Attempt",
    "Category",
    "Checkpoints",
    "Finding",
    "Incident",
    "Quality",
    "Report",
    "RunState",
    "RunSummary",
    "Settings",
    "Straggler",
]
