"""Empties the memory into spool files. Runs in the recorder's own thread: only it may wait for a disk."""

from __future__ import annotations

from pathlib import Path

from goodput.directory import prepare_directory
from goodput.frozen import FreezeProbe
from goodput.guard import Guard
from goodput.memory import HALF_BYTES, Memory
from goodput.spoolfile import FILE_MAX_BYTES, SpoolFile

RETRY_NS = 1_000_000_000
"""A disk that refused is tried again after this long."""


class SpoolWriter:
    """The bytes of the memory, in order, become the bytes of the spool files.

    A file is the stream itself, but for the first byte of a line that does not name its run and source where a file
    begins: the naming prefix replaces it. So the size of a file tells
    how much of the stream it took, and a reader that finds the process dead goes on at the very byte, wherever the
    kill fell: `Cursor` says which byte of the stream stood at which size of the file.

    Nothing is taken from the memory while the disk refuses or the cap is reached: then the memory fills, and what
    finds no room there is counted by who wanted to write it. A frozen disk is not written to, for a process that waits
    in such a write cannot be ended.
    """

    __slots__ = (
        "_at_line_start",
        "_checked_ns",
        "_directory",
        "_drained_bytes",
        "_generation",
        "_guard",
        "_heartbeats",
        "_max_bytes",
        "_memory",
        "_offset",
        "_probe",
        "_refused_ns",
        "_retiring",
        "_stream",
        "_used_bytes",
        "file_max_bytes",
    )

    def __init__(
        self,
        *,
        directory: Path,
        run: str,
        source: str,
        memory: Memory,
        guard: Guard,
        max_bytes: int,
        probe: FreezeProbe | None = None,
    ) -> None:
        self._directory = directory
        self._memory = memory
        self._guard = guard
        self._max_bytes = max_bytes
        self._probe = probe
        self._stream = SpoolFile(directory, run, source)
        self._heartbeats = SpoolFile(directory, run, heartbeat_source(source))
        self._generation = 0
        self._offset = 0
        self._at_line_start = True
        self._retiring = False
        self._used_bytes = 0
        self._drained_bytes = 0
        self._checked_ns = 0
        self._refused_ns: int | None = None
        self.file_max_bytes = FILE_MAX_BYTES

    @property
    def pressed(self) -> bool:
        """The memory fills fast, or a half waits to be given back: come again soon."""
        return self._retiring or self._drained_bytes > HALF_BYTES // 4

    def crowded(self) -> bool:
        """Much waits in the memory: it is not to wait for company."""
        memory = self._memory
        if memory.generation != self._generation:
            return True
        return memory.halves[self._generation & 1].tell() - self._offset > HALF_BYTES // 16

    def frozen(self) -> bool:
        """The disk is frozen: nothing that changes it may be tried."""
        if self._probe is None or not self._probe.frozen():
            return False
        self._guard.caught("the spool's disk is frozen: events wait in memory", None)
        return True

    def drain(self, now_ns: int, *, final: bool = False) -> bool:
        """Write what the memory holds; True when all of it is on disk. Errors are counted, never raised.

        `final`: nobody writes to the memory any more, and the cap no longer binds (there are at most two halves).
        """
        if not final and self._refused_ns is not None and now_ns - self._refused_ns < RETRY_NS:
            return False
        self._refused_ns = None
        self._drained_bytes = 0
        try:
            while True:
                half = self._memory.halves[self._generation & 1]
                while self._offset < half.tell():
                    chunk = half[self._offset : half.tell()]
                    if self.frozen() or (not final and self._over_cap(len(chunk), now_ns)):
                        return False
                    self._append(chunk)
                if self._memory.generation == self._generation:
                    return True
                if not final and not self._retiring:
                    # A writer may have chosen this half just before it was full, and copy its line only now: it
                    # gets until the next call.
                    self._retiring = True
                    return False
                self._retiring = False
                done, self._generation, self._offset = self._generation, self._generation + 1, 0
                self._note()
                self._memory.give_back(done)
        except Exception as error:
            self._refused_ns = now_ns
            self._guard.caught("spool could not be written", error)
            return False

    def heartbeat(self, line: bytes, now_ns: int) -> None:
        """Write a heartbeat, a source of its own that bypasses the memory; each names its run and source. Errors are
        counted, never raised."""
        try:
            file = self._heartbeats
            named = file.prefix + line[1:]
            if self.frozen() or self._over_cap(len(named), now_ns):
                return
            if file.is_open and (file.vanished() or file.size_bytes + len(named) > self.file_max_bytes):
                file.close()
            if not file.is_open:
                prepare_directory(self._directory)
                file.create()
                named = line[1:]
            self._used_bytes += file.write(named)
        except Exception as error:
            self._guard.caught("heartbeat could not be written", error)

    def close(self) -> None:
        """Close the files."""
        for file in (self._stream, self._heartbeats):
            try:
                file.close()
            except OSError as error:
                self._guard.caught("spool could not be closed", error)

    def _append(self, chunk: bytes) -> None:
        """Write a chunk that begins at the cursor; may write only a part of it. Raises OSError."""
        file = self._stream
        if file.is_open and file.vanished():
            file.close()
            if not self._at_line_start:
                # The line's first part went with the file.
                self._offset += chunk.index(b"\n") + 1
                self._at_line_start = True
                self._guard.drop("spool file was removed")
                return
        if file.is_open and self._at_line_start and file.size_bytes + len(chunk) > self.file_max_bytes:
            file.close()
        if not file.is_open:
            prepare_directory(self._directory)
            self._note()
            file.create()
            passed = len(file.prefix) if chunk.startswith(file.prefix) else 1
            chunk = chunk[passed:]
            self._offset += passed
            self._at_line_start = False
            self._note()
        taken = file.write(chunk)
        self._offset += taken
        self._drained_bytes += taken
        self._used_bytes += taken
        if taken:
            self._at_line_start = chunk[taken - 1] == 0x0A
        self._note()
        if taken < len(chunk):
            raise OSError("the disk took only a part of the data")

    def _note(self) -> None:
        stream = self._stream
        self._memory.note_cursor(self._generation, self._offset, stream.number, stream.size_bytes)

    def _over_cap(self, more_bytes: int, now_ns: int) -> bool:
        """No room under the cap. What was shipped and removed meanwhile is looked for every few seconds."""
        if self._used_bytes + more_bytes <= self._max_bytes:
            return False
        if now_ns - self._checked_ns >= 5 * RETRY_NS:
            self._checked_ns = now_ns
            self._used_bytes = self._stream.used_bytes() + self._heartbeats.used_bytes()
        if self._used_bytes + more_bytes <= self._max_bytes:
            return False
        self._guard.caught(f"spool has reached its cap of {self._max_bytes} bytes", None)
        return True


def heartbeat_source(source: str) -> str:
    """The source that speaks for a rank's life."""
    return f"{source}.hb"
