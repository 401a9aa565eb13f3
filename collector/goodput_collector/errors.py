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


class ArchiveError(GoodputCollectorError):
    """The stream archive cannot be opened or read."""


class StorageError(GoodputCollectorError):
    """A disk refused; nothing is lost, and the sender is to try again."""


class BusyError(GoodputCollectorError):
    """Too much waits already: come again after `retry_after_s` seconds."""

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class BadRequestError(GoodputCollectorError):
    """What was sent cannot be understood; `status` is the HTTP status that says so."""

    def __init__(self, message: str, *, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class SpoolError(GoodputCollectorError):
    """A spool directory cannot be used, or not be trusted."""


class CollectorUnreachableError(GoodputCollectorError):
    """The collector does not answer, or refuses."""
