"""The loop that ships a spool until it is told to stop: how often it looks, and how long it waits after a refusal."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

from goodput_collector.shipping import NotNowError, Shipper

TICK_S = 0.5
"""How often the locks and files are looked at: a death is told well within two seconds."""
BACKOFF_FIRST_S = 0.5
BACKOFF_MOST_S = 30.0


class Backoff:
    """How long to wait after each failure in a row: twice as long each time, and any part of that, so that a thousand
    nodes that lost one collector do not all come back at once."""

    def __init__(self, chance: random.Random | None = None) -> None:
        self._chance = chance or random.Random()
        self._failures = 0

    def failed(self, after_s: float | None = None) -> float:
        """Seconds to wait now. `after_s`: the other side asked for at least so many."""
        most = min(BACKOFF_MOST_S, BACKOFF_FIRST_S * 2 ** min(self._failures, 16))
        self._failures += 1
        wait = self._chance.uniform(most / 2, most)
        return wait if after_s is None else after_s + self._chance.uniform(0, after_s / 2)

    def succeeded(self) -> None:
        """The next failure is a first one."""
        self._failures = 0


class Watch:
    """Runs a shipper in a thread."""

    def __init__(
        self, shipper: Shipper, say: Callable[[str], None], *, tick_s: float = TICK_S, backoff: Backoff | None = None
    ) -> None:
        self._shipper = shipper
        self._say = say
        self._tick_s = tick_s
        self._backoff = backoff or Backoff()
        self._stop = threading.Event()
        self._failing = False
        self._thread = threading.Thread(target=self.run, name="goodput-spool", daemon=True)

    def start(self) -> None:
        """Begins the thread."""
        self._thread.start()

    def stop(self, limit_s: float = 2.0) -> None:
        """Ends the loop after what it is doing, waiting at most so long for it."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(limit_s)

    def run(self) -> None:
        """The loop, for a thread of one's own."""
        wait_s = 0.0
        while not self._stop.is_set():
            locked = self._shipper.look()
            if wait_s > 0:
                # The dead are taken care of while the collector is away.
                wait_s -= self._tick_s
            else:
                more, wait_s = self._send(locked)
                if more:
                    continue
            self._stop.wait(self._tick_s)

    def _send(self, locked: set[str] | None) -> tuple[bool, float]:
        """Whether more waits, and how long to wait before it is tried again."""
        try:
            more = self._shipper.send(locked)
        except NotNowError as error:
            if not self._failing:
                self._failing = True
                self._say(f"{error}; what is in the spool is kept, and sent later")
            return False, self._backoff.failed(error.after_s)
        except Exception as error:
            # A defect of ours in one round must not end the watch over a node.
            self._say(f"this should not happen: {type(error).__name__}: {error}")
            return False, self._backoff.failed()
        if self._failing:
            self._failing = False
            self._say("the collector takes events again")
        self._backoff.succeeded()
        return more, 0.0
