"""The ledger of a training run: relations and numbers from a DuckDB connection handed in."""

from goodput_analytics.early import Early
from goodput_analytics.errors import AnalyticsError, LedgerError, UnknownRun
from goodput_analytics.ledger import Ledger, build
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
from goodput_analytics.report import report, report_and_summary, runs
from goodput_analytics.settings import Settings

__all__ = [
    "AnalyticsError",
    "Attempt",
    "Category",
    "Checkpoints",
    "Early",
    "Finding",
    "Incident",
    "Ledger",
    "LedgerError",
    "Quality",
    "Report",
    "RunState",
    "RunSummary",
    "Settings",
    "Straggler",
    "UnknownRun",
    "build",
    "report",
    "report_and_summary",
    "runs",
]
