"""The `exit_observed` events of `goodput run`: a source of its own in the spool."""

from __future__ import annotations

import os
from pathlib import Path

from goodput import launchfolder
from goodput.directory import prepare_directory
from goodput.endings import Ending
from goodput.events import Field, Kind, format_event
from goodput.spoolfile import SpoolFile


class ExitEvents:
    """Writes down how ranks ended: those that went without a word, or not as one that is done.

    Each event is a file of its own, so that whoever ships the spool may take it at once.
    """

    def __init__(self, spool: Path, folder: Path) -> None:
        node = "".join(c if c.isascii() and c.isalnum() else "_" for c in os.uname().nodename)[:60]
        self._spool = spool
        self._folder = folder
        self._source = f"launch-{node}-{os.urandom(8).hex()}"
        self._count = 0

    def write(self, ending: Ending, last_words: str | None) -> None:
        """Raises OSError."""
        if ending.rank.source in launchfolder.read_ends(self._folder) and (ending.clean or not ending.known):
            # Its own `stop` has said it.
            return
        prepare_directory(self._spool)
        file = SpoolFile(self._spool, ending.rank.run, self._source)
        file.number = self._count
        file.create()
        try:
            file.write(format_event(Kind.EXIT_OBSERVED, self._count, ending.seen_ns, _fields(ending, last_words))[1:])
        finally:
            self._count += 1
            file.close()


def _fields(ending: Ending, last_words: str | None) -> dict[str, Field]:
    fields: dict[str, Field] = {"of": ending.rank.source}
    if ending.exit_code is not None:
        fields["exit_code"] = ending.exit_code
    if ending.signal is not None:
        fields["signal"] = ending.signal
    if ending.oom is not None:
        fields["oom"] = ending.oom
    if ending.replaced:
        fields["detail"] = "the process became another program"
    elif last_words is not None and not ending.clean:
        fields["detail"] = last_words
    return fields
