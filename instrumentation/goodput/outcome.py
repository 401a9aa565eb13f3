"""How a process ends, as the `stop` event tells it."""

from __future__ import annotations

import json
from dataclasses import dataclass

from goodput.events import Field, StopReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A `stop` that has been said, or would be if the process ended now. `ts_ns`: when its cause came up."""

    reason: StopReason
    detail: str | None
    ts_ns: int

    def encode(self) -> bytes:
        return json.dumps({"reason": self.reason.value, "detail": self.detail, "ts_ns": self.ts_ns}).encode("ascii")


def stop_fields(reason: StopReason, detail: str | None) -> dict[str, Field]:
    """The fields of a `stop`; without a detail that is None."""
    return {"reason": reason.value} if detail is None else {"reason": reason.value, "detail": detail}


def outcome_of(error: BaseException, ts_ns: int) -> Outcome | None:
    """What an exception that leaves the loop says about the end. None when it says nothing.

    `SystemExit` with status 0, `StopIteration` and `GeneratorExit` are ways to leave, not failures: the end is then
    what comes next (`finish`, or the interpreter's exit). Another status is a failure. `KeyboardInterrupt` is SIGINT.
    """
    if isinstance(error, (GeneratorExit, StopIteration, StopAsyncIteration)):
        return None
    if isinstance(error, SystemExit):
        if error.code is None or error.code == 0:
            return None
        # A text as status is printed by the interpreter; it is the user's and stays out of the record.
        status = str(error.code) if isinstance(error.code, int) else "1"
        return Outcome(reason=StopReason.EXCEPTION, detail=f"SystemExit: {status}", ts_ns=ts_ns)
    if isinstance(error, KeyboardInterrupt):
        return Outcome(reason=StopReason.SIGNAL, detail="SIGINT", ts_ns=ts_ns)
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return Outcome(reason=StopReason.EXCEPTION, detail=name[:200], ts_ns=ts_ns)
