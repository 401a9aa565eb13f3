"""The event contract, version 1: kinds, reasons, and how a line is written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum

VERSION = 1
"""The contract's version, told in `start`."""


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

_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def format_event(kind: Kind, seq: int, ts_ns: int, fields: Mapping[str, Field] | None = None) -> bytes:
    """One line, newline included, that leaves `run` and `source` to carry over. Plain ASCII, so valid UTF-8."""
    return (_encode({"kind": kind.value, "seq": seq, "ts_ns": ts_ns, **(fields or {})}) + "\n").encode("ascii")


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
    line = f'{{"kind":"step","seq":{seq},"ts_ns":{end_ns},"step":{step},"start_ns":{start_ns},"end_ns":{end_ns}'
    if data_ns >= 0:
        line += f',"data_ns":{data_ns}'
    if busy_ns >= 0:
        line += f',"busy_ns":{busy_ns}'
    if count != 1:
        line += f',"count":{count}'
    if not applied:
        line += ',"applied":false'
    # A difference with itself is 0 for finite numbers only.
    if loss - loss == 0.0:
        line += f',"loss":{loss!r}'
    if lr - lr == 0.0:
        line += f',"lr":{lr!r}'
    return (line + "}\n").encode("ascii")


def naming_prefix(run: str, source: str) -> bytes:
    """What stands for the `{` of a file's first line, so that the line names its run and source."""
    return f'{{"run":{_encode(run)},"source":{_encode(source)},'.encode("ascii")
