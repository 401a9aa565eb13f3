"""What can go wrong in the analytics, in words that say what to do."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches


class AnalyticsError(Exception):
    """The base of all errors of this room."""


class UnknownRun(AnalyticsError):  # noqa: N818 - it reads as what it says
    """No run of that name has landed.

    Attributes:
        run: the name that was asked for.
        known: the names that exist.
    """

    def __init__(self, run: str, known: Sequence[str]) -> None:
        self.run = run
        self.known = tuple(known)
        near = get_close_matches(run, known, n=3) or list(known[:5])
        hint = f"Known runs: {', '.join(near)}." if near else "No run has been loaded yet."
        super().__init__(f"There is no run named {run!r}. {hint}")


class LedgerError(AnalyticsError):
    """The ledger does not balance: a defect of ours, never of the input."""
