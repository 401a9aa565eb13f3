"""The thread that has old rows of ranks closed, now and then, while a collector runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial

from goodput_collector.committer import Committer
from goodput_collector.errors import GoodputCollectorError
from goodput_collector.store import Store

EVERY_S = 3600.0
FIRST_S = 60.0
"""So long after its start a collector looks for the first time: those who send come first."""
_NS_PER_S = 1_000_000_000


class RetentionThread:
    """Closes what is older than `keep_raw_s`, at the thread that writes, until it is stopped."""

    def __init__(
        self,
        committer: Committer,
        say: Callable[[str], None],
        *,
        keep_raw_s: float,
        clock_ns: Callable[[], int] = time.time_ns,
        every_s: float = EVERY_S,
        first_s: float = FIRST_S,
    ) -> None:
        self._committer = committer
        self._say = say
        self._keep_raw_ns = int(keep_raw_s * _NS_PER_S)
        self._clock_ns = clock_ns
        self._every_s = every_s
        self._first_s = first_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="goodput-retention", daemon=True)

    def start(self) -> None:
        """Begins the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Tells it to end; returns at once. What is being closed is finished by the thread that writes."""
        self._stop.set()

    def _run(self) -> None:
        wait_s = self._first_s
        while not self._stop.wait(wait_s):
            wait_s = self._every_s
            before_ns = self._clock_ns() - self._keep_raw_ns
            try:
                closed = self._committer.call(partial(Store.retain, before_ns=before_ns)).result()
            except GoodputCollectorError as error:
                self._say(f"old rows of ranks could not be closed now: {error}")
            except Exception as error:
                # A defect of ours here must not end the collector; the rows stay.
                self._say(f"old rows of ranks could not be closed: {type(error).__name__}: {error}")
            else:
                if closed.rows:
                    self._say(f"closed {closed.rows:,} old rows of ranks in {closed.runs} runs")
