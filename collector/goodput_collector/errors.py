"""What can go wrong in the collector, each said in one plain sentence that says what to do."""

from __future__ import annotations


class GoodputCollectorError(Exception):
    """The base of all errors that the collector raises on purpose."""


class InputFileError(GoodputCollectorError):
    """An event file cannot be read."""


class DatabaseError(GoodputCollectorError):
    """The database cannot be opened or is not one of ours."""


class DatabaseLockedError(DatabaseError):
    """Another process holds the database."""
