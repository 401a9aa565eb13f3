"""The environment variables that the recorder reads, and the one function that reads them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

GOODPUT_DISABLED = "GOODPUT_DISABLED"
"""`1`, `true`, `yes` or `on`: `start` gives a recorder that does nothing."""
GOODPUT_RUN = "GOODPUT_RUN"
"""The run's name, where `start` is not given one."""
GOODPUT_LABELS = "GOODPUT_LABELS"
"""Labels of the run as `team=nlp,project=atlas`; those of the call win."""
GOODPUT_SPOOL = "GOODPUT_SPOOL"
"""Directory that takes the spool files; default `goodput-<uid>` in the temporary directory."""
GOODPUT_SPOOL_MAX_BYTES = "GOODPUT_SPOOL_MAX_BYTES"
"""Most bytes that one recorder keeps on disk; default 1 GiB."""
GOODPUT_MEMORY = "GOODPUT_MEMORY"
"""Directory on tmpfs for the memory segments, default `/dev/shm`; `off` keeps them inside the process."""
GOODPUT_HEARTBEAT_S = "GOODPUT_HEARTBEAT_S"
"""Seconds between two heartbeats, default 5; `0` sends none."""
GOODPUT_JOB = "GOODPUT_JOB"
"""The job, where `start` is not given one: what holds the GPUs, the same for all processes that hold them together
and for a restart that keeps them."""
GOODPUT_DEVICES = "GOODPUT_DEVICES"
"""GPUs that one rank drives, where `start` is not told; default 1."""
GOODPUT_SUMMARY = "GOODPUT_SUMMARY"
"""`0`, `false`, `no` or `off`: nothing is printed at the end; default: rank 0 prints a short summary on stderr."""

DEFAULT_MEMORY = "/dev/shm"
DEFAULT_HEARTBEAT_S = 5.0
DEFAULT_SPOOL_MAX_BYTES = 1 << 30
DEVICES_LIMIT = 1 << 16
"""No rank drives so many GPUs."""

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What the environment says.

    Attributes:
        disabled: record nothing.
        run: the run's name, None when not given.
        job: the job's name, None when not given.
        labels: labels of the run.
        spool: the spool directory, None for the default.
        spool_max_bytes: most bytes that one recorder keeps on disk.
        memory: directory for memory segments, None to keep them inside the process.
        heartbeat_s: seconds between heartbeats, 0 for none.
        devices: GPUs that one rank drives, None when not given.
        summary: rank 0 may print a summary at the end.
        variables: the whole environment as it was, for the launchers' variables.
        complaints: one plain sentence for each value that could not be used.
    """

    disabled: bool = False
    run: str | None = None
    job: str | None = None
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    spool: str | None = None
    spool_max_bytes: int = DEFAULT_SPOOL_MAX_BYTES
    memory: str | None = DEFAULT_MEMORY
    heartbeat_s: float = DEFAULT_HEARTBEAT_S
    devices: int | None = None
    summary: bool = True
    variables: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    complaints: tuple[str, ...] = ()


def read_environment(variables: Mapping[str, str] | None = None) -> Environment:
    """Read the environment once. A value that makes no sense is left at its default and complained of."""
    env = dict(os.environ if variables is None else variables)
    complaints: list[str] = []

    def number(name: str, default: float, least: float, limit: float = 1e15) -> float:
        text = env.get(name, "").strip()
        if not text:
            return default
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not least <= value < limit:
            complaints.append(f"{name}={text!r} is not a number from {least:g} to {limit:g}: using {default:g}")
            return default
        return value

    memory = env.get(GOODPUT_MEMORY, "").strip() or DEFAULT_MEMORY
    return Environment(
        disabled=env.get(GOODPUT_DISABLED, "").strip().lower() in _TRUE,
        run=env.get(GOODPUT_RUN, "").strip() or None,
        job=env.get(GOODPUT_JOB, "").strip() or None,
        labels=MappingProxyType(parse_labels(env.get(GOODPUT_LABELS, ""), complaints)),
        spool=env.get(GOODPUT_SPOOL, "").strip() or None,
        spool_max_bytes=int(number(GOODPUT_SPOOL_MAX_BYTES, DEFAULT_SPOOL_MAX_BYTES, 0)),
        memory=None if memory.lower() == "off" else memory,
        heartbeat_s=number(GOODPUT_HEARTBEAT_S, DEFAULT_HEARTBEAT_S, 0),
        devices=int(number(GOODPUT_DEVICES, 1, 1, DEVICES_LIMIT)) if env.get(GOODPUT_DEVICES, "").strip() else None,
        summary=env.get(GOODPUT_SUMMARY, "").strip().lower() not in _FALSE,
        variables=MappingProxyType(env),
        complaints=tuple(complaints),
    )


def parse_labels(text: str, complaints: list[str]) -> dict[str, str]:
    """`a=b,c=d` as a dict; a part without `=` or without a name is complained of and left out."""
    labels: dict[str, str] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, equals, value = part.partition("=")
        if equals and name.strip():
            labels[name.strip()] = value.strip()
        else:
            complaints.append(f"{GOODPUT_LABELS}: {part!r} is not name=value: left out")
    return labels
