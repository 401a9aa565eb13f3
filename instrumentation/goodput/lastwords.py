"""The last lines that a command wrote on its standard error, without coming between it and its reader.

- A regular file is read from where it stood when the command began.
- A pipe that is not standard output too is taken through a pipe of ours, byte for byte. (Shared with standard output,
  the order of the two could change, so it is left alone.)
- A terminal is left alone: the command must go on seeing one.
"""

from __future__ import annotations

import os
import select
import stat
import threading
from collections import deque
from pathlib import Path

_KEEP_BYTES = 8192
_PIECE_BYTES = 65536
_LINES = 20
_CHARS = 2000


class LastWords:
    """Stands by the standard error of one command.

    Attributes:
        fd: what the command is to get as its standard error, None for our own.
    """

    def __init__(self, *, watch: bool = True) -> None:
        self.fd: int | None = None
        self._read = self._halt = self._halted = -1
        self._kept: deque[bytes] = deque()
        self._kept_bytes = 0
        self._file_from: int | None = None
        self._thread: threading.Thread | None = None
        if not watch:
            return
        try:
            error, out = os.fstat(2), os.fstat(1)
        except OSError:
            return
        if stat.S_ISREG(error.st_mode):
            self._file_from = error.st_size
            return
        piped = stat.S_ISFIFO(error.st_mode) or stat.S_ISSOCK(error.st_mode)
        if piped and (error.st_dev, error.st_ino) != (out.st_dev, out.st_ino):
            self._read, self.fd = os.pipe()
            self._halted, self._halt = os.pipe()

    def begin(self) -> None:
        """The command has been started."""
        if self.fd is not None:
            os.close(self.fd)
            self._thread = threading.Thread(target=self._pass_on, name="goodput-stderr", daemon=True)
            self._thread.start()

    def end(self, wait_s: float = 1.0) -> None:
        """The command has ended. What it left running and may still write goes on being passed on, by a process of its
        own that ends with the last of them."""
        thread = self._thread
        if thread is None:
            return
        thread.join(wait_s)
        if not thread.is_alive():
            return
        os.write(self._halt, b"!")
        thread.join()
        if os.fork() == 0:
            try:
                os.setsid()
                os.read(self._halted, 1)
                self._pass_on()
            finally:
                os._exit(0)

    def text(self) -> str | None:
        """The last lines so far; None where they cannot be seen, or nothing was written."""
        if self._file_from is not None:
            content = _end_of_file(self._file_from)
        elif self._thread is not None:
            content = b"".join(list(self._kept))
        else:
            return None
        lines = content.decode("utf-8", "replace").splitlines()[-_LINES:]
        return "\n".join(lines).strip()[-_CHARS:] or None

    def _pass_on(self) -> None:
        while True:
            try:
                ready, _, _ = select.select([self._read, self._halted], [], [])
                piece = b"" if self._halted in ready else os.read(self._read, _PIECE_BYTES)
            except OSError:
                return
            if not piece:
                return
            self._kept.append(piece)
            self._kept_bytes += len(piece)
            while self._kept_bytes - len(self._kept[0]) >= _KEEP_BYTES:
                self._kept_bytes -= len(self._kept.popleft())
            try:
                _write_all(2, piece)
            except OSError:
                # Nobody reads any more: the command is to learn that as it would have without us.
                os.close(self._read)
                return


def _write_all(fd: int, data: bytes) -> None:
    while data:
        try:
            data = data[os.write(fd, data) :]
        except BlockingIOError:
            select.select([], [fd], [])


def _end_of_file(start: int) -> bytes:
    try:
        with Path("/proc/self/fd/2").open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(start, size - _KEEP_BYTES))
            return file.read(_KEEP_BYTES)
    except OSError:
        return b""
