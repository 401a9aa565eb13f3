"""Whether a file system is frozen, asked without waiting for it.

A write to a frozen file system (a snapshot in the making, `fsfreeze`) waits where no signal reaches it: until the disk
is thawed nothing can end the process, SIGKILL included, and its GPUs stay held. Linux has no call that asks. But a read
leaves the file's access time alone while the file system is frozen, and never waits for it: so a file that was written
to since its last read, whose access time a read does not move, lies on a frozen file system.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

FRESH_NS = 20_000_000
"""An answer holds for this long: the clock of access times moves in steps of up to 10 ms."""
_TRUST_AFTER = 3


class FreezeProbe:
    """Asks through one file of ours, which it keeps as it is.

    Where access times are not kept, or only coarsely (`noatime`, network file systems), it never finds anything frozen:
    there a write waits as any other program's. So does one whose disk freezes between the answer and the write, some
    microseconds later; milliseconds where another thread keeps the interpreter to itself.

    Attributes:
        works: it can tell; None until a few answers have shown it.
    """

    __slots__ = ("_asked_ns", "_fd", "_last", "_monotonic_ns", "_passed", "_seen_ns", "_size", "works")

    def __init__(self, fd: int, monotonic_ns: Callable[[], int] = time.monotonic_ns) -> None:
        """`fd`: a file on that file system, not empty, opened for reading and writing, just written. Raises OSError."""
        self._fd = fd
        self._monotonic_ns = monotonic_ns
        found = os.fstat(fd)
        self._size = found.st_size
        self._last = os.pread(fd, 1, self._size - 1)
        self._seen_ns = os.fstat(fd).st_atime_ns
        self._passed = 0
        self._asked_ns = monotonic_ns()
        self.works: bool | None = None
        self._mark()

    def frozen(self) -> bool:
        """Writes would wait now. Never raises, and calls the disk at most once in `FRESH_NS`."""
        if self.works is False or self._monotonic_ns() - self._asked_ns < FRESH_NS:
            return False
        try:
            os.pread(self._fd, 1, 0)
            found = os.fstat(self._fd)
            if found.st_atime_ns == self._seen_ns:
                if found.st_mtime_ns < found.st_atime_ns:
                    # The clock was set back just between the two: reads will not move the access time for as long.
                    self.works = False
                if self.works:
                    return True
                self.works = False
                return False
            self._seen_ns = found.st_atime_ns
            self._mark()
            self._passed += 1
            if self.works is None and self._passed >= _TRUST_AFTER:
                self.works = True
            self._asked_ns = self._monotonic_ns()
        except OSError:
            # The disk refuses, or has gone: whoever writes to it will hear so at once.
            pass
        return False

    def _mark(self) -> None:
        """Write, so that the next read has an access time to move."""
        os.pwrite(self._fd, self._last, self._size - 1)
