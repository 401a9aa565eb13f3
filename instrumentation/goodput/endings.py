"""How the rank processes below `goodput run` end: seen from beside, since they are not its own children.

A process descriptor wakes us when a rank dies; then, before its parent has taken its status, the kernel still shows
it. A parent that waits inside the kernel may be faster: then it has told, if it is Python that has imported torch; else
all that is known is that the process has gone.
"""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from goodput import launchfolder
from goodput.launchfolder import RankFile, start_ticks

_ROUND_MS = 100
_TELLING_ROUNDS = 40
_TELLING_ROUND_S = 0.005
_OOM_COUNTER_DELAY_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """A rank's process has gone.

    Attributes:
        exit_code, signal: how; both None when that could not be seen.
        oom: the kernel killed it for want of memory; None when that cannot be known.
        seen_ns: when, in ns since the epoch.
        replaced: the process lives on as another program (`exec`), which records as a rank of its own.
    """

    rank: RankFile
    exit_code: int | None
    signal: int | None
    oom: bool | None
    seen_ns: int
    replaced: bool = False

    @property
    def known(self) -> bool:
        return self.exit_code is not None or self.signal is not None

    @property
    def clean(self) -> bool:
        return self.exit_code == 0

    def words(self) -> str:
        """How it ended, for people."""
        if self.replaced:
            return "became another program"
        if self.signal is not None:
            return f"was killed by {signal_name(self.signal)}" + (" (out of memory)" if self.oom else "")
        return "ended unseen" if self.exit_code is None else f"ended with exit code {self.exit_code}"


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class Endings:
    """Follows the ranks that announce themselves in a launch folder.

    `seen` is called with each ending, on the thread that watches.
    """

    def __init__(self, folder: Path, seen: Callable[[Ending], None]) -> None:
        self._folder = folder
        self._seen = seen
        self._known: set[str] = set()
        self._open: dict[int, RankFile] = {}
        self._blind: list[RankFile] = []
        self._poll = select.poll()
        self._over = threading.Event()
        self._taking = threading.Lock()
        self._oom_kills = oom_kills()
        self._thread = threading.Thread(target=self._watch, name="goodput-endings", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def told(self, pid: int, return_code: int) -> None:
        """The caller's own child has ended, with a code as `subprocess` has it. Call it before the child is reaped."""
        with self._taking:
            self._look_for_ranks()
            for fd, rank in list(self._open.items()):
                if rank.pid == pid:
                    self._gone(fd, rank, return_code)

    def close(self) -> list[RankFile]:
        """Stop watching; gives the ranks that still live."""
        self._over.set()
        self._thread.join(2.0)
        with self._taking:
            self._look_for_ranks()
            self._take(0)
            left = list(self._open.values())
            for fd in list(self._open):
                os.close(fd)
            self._open.clear()
        return left

    def _watch(self) -> None:
        while not self._over.is_set():
            with self._taking:
                self._look_for_ranks()
            # Not under the lock: this waits.
            if self._poll.poll(_ROUND_MS):
                with self._taking:
                    self._take(0)

    def _take(self, wait_ms: int) -> None:
        for fd, _ in self._poll.poll(wait_ms):
            rank = self._open.get(fd)
            if rank is not None:
                self._gone(fd, rank, None)

    def _look_for_ranks(self) -> None:
        for rank in launchfolder.read_ranks(self._folder):
            if rank.source in self._known:
                continue
            self._known.add(rank.source)
            self._replace(rank)
            try:
                fd = os.pidfd_open(rank.pid)
            except OSError:
                # It was gone before we heard of it; its parent may have told.
                self._end(rank, launchfolder.read_status(self._folder, rank.pid))
                continue
            if rank.start_ticks != start_ticks(rank.pid):
                os.close(fd)
                self._end(rank, launchfolder.read_status(self._folder, rank.pid))
                continue
            self._open[fd] = rank
            self._poll.register(fd, select.POLLIN)

    def _replace(self, rank: RankFile) -> None:
        """A process that announces itself a second time has become another program: what it was before is gone."""
        for fd, before in list(self._open.items()):
            if (before.pid, before.start_ticks) == (rank.pid, rank.start_ticks):
                self._leave(fd)
                self._seen(
                    Ending(rank=before, exit_code=None, signal=None, oom=None, seen_ns=rank.begun_ns, replaced=True)
                )

    def _leave(self, fd: int) -> None:
        self._poll.unregister(fd)
        del self._open[fd]
        os.close(fd)

    def _gone(self, fd: int, rank: RankFile, return_code: int | None) -> None:
        code = zombie_code(rank.pid) if return_code is None else return_code
        for _ in range(_TELLING_ROUNDS if code is None else 0):
            code = launchfolder.read_status(self._folder, rank.pid)
            if code is not None:
                break
            time.sleep(_TELLING_ROUND_S)
        self._leave(fd)
        self._end(rank, code)

    def _end(self, rank: RankFile, code: int | None) -> None:
        seen_ns = time.time_ns()
        killed = None if code is None or code >= 0 else -code
        self._seen(
            Ending(
                rank=rank,
                exit_code=code if code is not None and code >= 0 else None,
                signal=killed,
                oom=self._out_of_memory() if killed == signal.SIGKILL else None,
                seen_ns=seen_ns,
            )
        )

    def _out_of_memory(self) -> bool | None:
        """Whether the kernel has killed for want of memory here since we last looked."""
        before = self._oom_kills
        if before is None:
            return None
        time.sleep(_OOM_COUNTER_DELAY_S)
        now = self._oom_kills = oom_kills()
        return None if now is None else now > before


def zombie_code(pid: int) -> int | None:
    """How a process ended that its parent has not taken yet, with a code as `subprocess` has it; else None."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        if fields[0] not in ("Z", "X"):
            return None
        return os.waitstatus_to_exitcode(int(fields[49]))
    except (OSError, ValueError, IndexError):
        return None


def oom_kills(root: Path = Path("/sys/fs/cgroup"), groups: Path = Path("/proc/self/cgroup")) -> int | None:
    """How many processes of our control group the kernel has killed for want of memory; None where it does not say."""
    try:
        lines = [line.split(":", 2) for line in groups.read_text().splitlines()]
    except OSError:
        return None
    for number, names, path in lines:
        inside = path.strip("/")
        if number == "0" and not names:
            places = [root / inside / "memory.events", root / "memory.events"]
        elif "memory" in names.split(","):
            places = [root / "memory" / inside / "memory.oom_control", root / "memory" / "memory.oom_control"]
        else:
            continue
        for place in places:
            try:
                for line in place.read_text().splitlines():
                    name, _, value = line.partition(" ")
                    if name == "oom_kill":
                        return int(value)
            except (OSError, ValueError):
                continue
    return None
