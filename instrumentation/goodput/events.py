"""The event contract, version 1: kinds, reasons, and how a line is written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum

VERSION = 1
"""The contract's version, told in `start`."""

COUNT_LIMIT = 2**53
"""Step numbers and counts stay below it: no reader of JSON rounds them."""

TEXT_MAX_CHARS = 1000
"""What is longer, such as the name of a job or a group, is cut."""


class Kind(StrEnum):
    """What an event is about."""

    START = "start"
    JOINED = "joined"
    RESUME = "resume"
    STEP = "step"
    BEGIN = "begin"
    END = "end"
    DURABLE = "durable"
    PROGRESS = "progress"
    HEARTBEAT = "heartbeat"
    STOP = "stop"
    EXIT_OBSERVED = "exit_observed"
    ALLOCATION = "allocation"
    DROPPED = "dropped"


class StopReason(StrEnum):
    """Why a source ended. `finished` is said by `finish()` alone; `exited`: outcome unknown."""

    FINISHED = "finished"
    EXCEPTION = "exception"
    SIGNAL = "signal"
    PREEMPTED = "preempted"
    EXITED = "exited"


Field = str | int | float | bool | None | dict[str, str]

# Formatting bytes by a template takes half of the time that an f-string and its encoding take.
_STEP = b'{"kind":"step","seq":%d,"ts_ns":%d,"step":%d,"start_ns":%d,"end_ns":%d}\n'
_STEP_DATA = _STEP[:-2] + b',"data_ns":%d}\n'
_STEP_BUSY = _STEP[:-2] + b',"busy_ns":%d}\n'
_STEP_DATA_BUSY = _STEP_DATA[:-2] + b',"busy_ns":%d}\n'

_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
_encode_text = json.JSONEncoder(separators=(",", ":"), allow_nan=False, ensure_ascii=False).encode


def format_event(kind: Kind, seq: int, ts_ns: int, fields: Mapping[str, Field] | None = None) -> bytes:
    """One line, newline included, that leaves `run` and `source` to carry over. Plain ASCII, so valid UTF-8."""
    return (_ascii({"kind": kind.value, "seq": seq, "ts_ns": ts_ns, **(fields or {})}) + "\n").encode("ascii")


def format_step(
    seq: int,
    step: int,
    start_ns: int,
    end_ns: int,
    data_ns: int,
    busy_ns: int,
    count: int,
    loss: float,
    lr: float,
    applied: bool = True,
) -> bytes:
    """A `step` line, written by hand: this is the hot path.

    `data_ns` and `busy_ns` below 0, `loss` and `lr` that are NaN or infinite were not measured and are left out.
    """
    if busy_ns < 0:
        if data_ns < 0:
            line = _STEP % (seq, end_ns, step, start_ns, end_ns)
        else:
            line = _STEP_DATA % (seq, end_ns, step, start_ns, end_ns, data_ns)
    elif data_ns < 0:
        line = _STEP_BUSY % (seq, end_ns, step, start_ns, end_ns, busy_ns)
    else:
        line = _STEP_DATA_BUSY % (seq, end_ns, step, start_ns, end_ns, data_ns, busy_ns)
    # A difference with itself is 0 for finite numbers only.
    if count == 1 and applied and loss - loss != 0.0 and lr - lr != 0.0:
        return line
    more = "" if count == 1 else f',"count":{count}'
    if not applied:
        more += ',"applied":false'
    if loss - loss == 0.0:
        more += f',"loss":{loss!r}'
    if lr - lr == 0.0:
        more += f',"lr":{lr!r}'
    return line[:-2] + more.encode("ascii") + b"}\n"


def naming_prefix(run: str, source: str) -> bytes:
    """What stands for the `{` of a file's first line, so that the line names its run and source."""
    return f'{{"run":{_ascii(run)},"source":{_ascii(source)},'.encode("ascii")


def readable_text(text: str) -> str:
    """The text with U+FFFD for each lone surrogate: bytes that were no UTF-8 come in as such, and no JSON has them."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _ascii(value: object) -> str:
    """JSON in plain ASCII, readable to the strictest reader."""
    text = _encode(value)
    if "\\ud" not in text:
        return text
    # A lone surrogate or half of a pair; names in objects may hold one too, so the whole is cleaned.
    return _encode(json.loads(readable_text(_encode_text(value))))
