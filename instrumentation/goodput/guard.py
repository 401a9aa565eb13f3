"""Where the recorder's own errors end: counted, logged once per reason, never raised into training."""

from __future__ import annotations

from collections.abc import Callable

Observer = Callable[[str, BaseException | None], None]

observers: list[Observer] = []
"""Called with every caught error; our own tests use it to raise them."""

_logged: set[str] = set()
_elsewhere: Callable[[str], None] | None = None


def warn_once(reason: str, message: str) -> None:
    """Log a plain sentence the first time that this reason comes up in the process."""
    if reason not in _logged:
        _logged.add(reason)
        if _elsewhere is not None:
            try:
                _elsewhere(message)
            except OSError:
                # Where it was to go has gone; it is not worth an error.
                pass
            return
        # Imported where it is needed: a healthy process need not wait for it.
        import logging

        logging.getLogger("goodput").warning("goodput: %s (said once)", message)


def warn_elsewhere(take: Callable[[str], None]) -> None:
    """Give the sentences to somebody else from now on: nothing may come up among this process's own output."""
    global _elsewhere
    _elsewhere = take


class Guard:
    """Counts what one recorder could not do.

    Attributes:
        errors: caught errors by reason; nothing was lost by them.
        lost: events that could not be kept, by reason; each is told in a `dropped` event.
    """

    __slots__ = ("_told", "errors", "lost")

    def __init__(self) -> None:
        self.errors: dict[str, int] = {}
        self.lost: dict[str, int] = {}
        self._told: dict[str, int] = {}

    def caught(self, reason: str, error: BaseException | None, *, lost: int = 0) -> None:
        """Take an error instead of raising it; `lost` is how many events it cost."""
        try:
            self.errors[reason] = self.errors.get(reason, 0) + 1
            if lost:
                self.lost[reason] = self.lost.get(reason, 0) + lost
            for observer in observers:
                observer(reason, error)
            kind = "" if error is None else f": {type(error).__name__}: {error}"
            warn_once(reason, f"{reason}{kind}; training goes on")
        except Exception:
            # Nothing is left that could be told safely: a user's logging handler may be what raised.
            pass

    def drop(self, reason: str, count: int = 1) -> None:
        """Count events that had no room."""
        self.lost[reason] = self.lost.get(reason, 0) + count

    def untold(self) -> list[tuple[str, int]]:
        """Losses since they were last told, as (reason, count)."""
        found = []
        for reason, count in list(self.lost.items()):
            if count > self._told.get(reason, 0):
                found.append((reason, count - self._told.get(reason, 0)))
        return found

    def untold_count(self) -> int:
        """How many events those are."""
        return sum(self.lost.values()) - sum(self._told.values())

    def told(self, reason: str, count: int) -> None:
        """A `dropped` event with these figures has been handed over."""
        self._told[reason] = self._told.get(reason, 0) + count
