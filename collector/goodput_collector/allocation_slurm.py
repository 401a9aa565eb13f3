"""Grants of Slurm: from `sacct -D --json`, from `sacct -D -P`, and from a job's own environment. Pure.

A requeued job keeps its id, and `sacct -D` has a record of each of its lives; the recorder calls them ID.0, ID.1 …
A suspended job still holds its GPUs: Slurm gives generic resources to nobody else meanwhile.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from goodput_collector.allocation import NS_PER_S, AllocationError, EndReason, Grant, Grants, load_json, moment_ns

_COLUMNS = ("JobIDRaw", "State", "Submit", "Start", "End", "AllocTRES")
SACCT = f"sacct -D -X -P -o {','.join(_COLUMNS)}"
"""The command whose output is read, beside `sacct -D --json`."""
_WHY = {
    "COMPLETED": EndReason.COMPLETED,
    "FAILED": EndReason.FAILED,
    "BOOT_FAIL": EndReason.NODE_FAILURE,
    "NODE_FAIL": EndReason.NODE_FAILURE,
    "LAUNCH_FAILED": EndReason.FAILED,
    "RECONFIG_FAIL": EndReason.FAILED,
    "PREEMPTED": EndReason.PREEMPTED,
    "TIMEOUT": EndReason.TIMEOUT,
    "DEADLINE": EndReason.TIMEOUT,
    "OUT_OF_MEMORY": EndReason.OOM,
    "CANCELLED": EndReason.CANCELLED,
    "REVOKED": EndReason.CANCELLED,
}
_PERHAPS_MAINTENANCE = ("CANCELLED", "REQUEUED", "NODE_FAIL", "PREEMPTED")
_REMARKS = ("Reason", "AdminComment", "SystemComment", "Comment")
_WAITING = ("PENDING", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Life:
    """One life of a job, as a record tells it."""

    job_id: int
    state: str
    gpus: int
    submit_ns: int | None
    start_ns: int | None
    end_ns: int | None
    restarts: int | None
    remarks: str


def grants_of_sacct(text: str, *, gpus: int | None = None) -> Grants:
    """The grants in the output of sacct, JSON or with bars.

    `gpus` stands for jobs that Slurm gave none, as where it does not manage GPUs. Raises AllocationError.
    """
    lives = _lives_of_json(text) if text.lstrip().startswith("{") else _lives_of_text(text)
    return _grants(lives, gpus)


def grant_of_environment(env: Mapping[str, str], *, run: str | None = None, gpus: int | None = None) -> Grant:
    """The grant of the job in whose environment this is. Raises AllocationError where it does not say enough."""
    job_id = env.get("SLURM_JOB_ID", "")
    if not job_id.isdecimal():
        raise AllocationError("There is no SLURM_JOB_ID: this is not the environment of a Slurm job.")
    start = env.get("SLURM_JOB_START_TIME", "")
    if not start.isdecimal():
        # A moment that is not exactly sacct's would be a second grant beside that one.
        raise AllocationError(f"There is no SLURM_JOB_START_TIME: pipe `{SACCT} -j {job_id}` into this command.")
    found = gpus if gpus is not None else _gpus_of_environment(env)
    if found is None:
        raise AllocationError("The job's environment does not say how many GPUs it has; give --gpus N.")
    restarts = env.get("SLURM_RESTART_COUNT", "")
    return Grant(
        job=f"slurm:{job_id}.{restarts if restarts.isdecimal() else '0'}",
        gpus=found,
        start_ns=int(start) * NS_PER_S,
        run=run,
    )


def _gpus_of_environment(env: Mapping[str, str]) -> int | None:
    whole = env.get("SLURM_GPUS", "")
    typed = [part.rpartition(":")[2] for part in whole.split(",")]
    if whole and all(count.isdecimal() for count in typed):
        return sum(map(int, typed))
    each = env.get("SLURM_GPUS_ON_NODE") or env.get("SLURM_GPUS_PER_NODE", "").rpartition(":")[2]
    nodes = env.get("SLURM_JOB_NUM_NODES") or env.get("SLURM_NNODES", "")
    if each.isdecimal() and nodes.isdecimal():
        return int(each) * int(nodes)
    return None


def _grants(lives: Iterable[_Life], gpus: int | None) -> Grants:
    by_job: dict[int, dict[int, _Life]] = {}
    waiting = without = 0
    for life in lives:
        if life.start_ns is None or life.state in _WAITING:
            waiting += 1
            continue
        # The same life told twice: what knows its end is the later word.
        told = by_job.setdefault(life.job_id, {})
        before = told.get(life.start_ns)
        if before is None or before.end_ns is None:
            told[life.start_ns] = life
    found: list[Grant] = []
    for job_id, told in by_job.items():
        for number, start_ns in enumerate(sorted(told)):
            life = told[start_ns]
            held = life.gpus or (gpus or 0)
            if not held:
                without += 1
                continue
            restarts = number if life.restarts is None else life.restarts
            found.append(
                Grant(
                    job=f"slurm:{job_id}.{restarts}",
                    gpus=held,
                    submit_ns=life.submit_ns,
                    start_ns=start_ns,
                    end_ns=None if life.end_ns is None else max(life.end_ns, start_ns),
                    end_reason=None if life.end_ns is None else _why(life),
                )
            )
    ordered = sorted(found, key=lambda one: (one.start_ns, one.job))
    return Grants(grants=tuple(ordered), waiting=waiting, without_gpus=without)


def _why(life: _Life) -> EndReason | None:
    """Why a life ended; None for a requeue without a word: that is for whoever asked for it to know."""
    if life.state in _PERHAPS_MAINTENANCE and "maint" in life.remarks.lower():
        return EndReason.MAINTENANCE
    return _WHY.get(life.state)


def _lives_of_json(text: str) -> Iterable[_Life]:
    told = load_json(text, "sacct --json")
    jobs = told.get("jobs") if isinstance(told, dict) else None
    if not isinstance(jobs, list):
        raise AllocationError('This is not the JSON of `sacct -D --json`: it has no list "jobs".')
    for job in jobs:
        try:
            times, state = job["time"], job["state"]
            current = state["current"]
            words = [current] if isinstance(current, str) else list(current)
            remarks = [state.get("reason"), *((job.get("comment") or {}).values())]
            yield _Life(
                job_id=int(job["job_id"]),
                state=_word(words[0] if words else ""),
                gpus=_gpus(
                    (one["type"], one.get("name"), _number(one.get("count"))) for one in job["tres"]["allocated"]
                ),
                submit_ns=_seconds_ns(times.get("submission")),
                start_ns=_seconds_ns(times.get("start")),
                end_ns=_seconds_ns(times.get("end")),
                restarts=_number(job.get("restart_cnt")),
                remarks=" ".join(str(one) for one in remarks if one),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise AllocationError(f"A job in the JSON of sacct cannot be read ({error!r}); use `{SACCT}`.") from error


def _lives_of_text(text: str) -> Iterable[_Life]:
    rows = [row for row in text.splitlines() if row.strip()]
    if not rows:
        return
    names = rows[0].split("|")
    missing = [name for name in _COLUMNS if name not in names]
    if missing:
        raise AllocationError(f"The first line lacks {', '.join(missing)}: give the output of `{SACCT}`.")
    for row in rows[1:]:
        told = dict(zip(names, row.split("|"), strict=False))
        if not told["JobIDRaw"].isdecimal():
            continue  # a step of a job
        try:
            yield _Life(
                job_id=int(told["JobIDRaw"]),
                state=_word(told["State"]),
                gpus=_gpus(_tres(told["AllocTRES"])),
                submit_ns=_text_ns(told["Submit"]),
                start_ns=_text_ns(told["Start"]),
                end_ns=_text_ns(told["End"]),
                restarts=int(told["Restarts"]) if told.get("Restarts", "").isdecimal() else None,
                remarks=" ".join(told.get(name) or "" for name in _REMARKS),
            )
        except (KeyError, ValueError) as error:
            raise AllocationError(f"This line of sacct cannot be read: {row[:100]}") from error


def _word(state: str) -> str:
    """`CANCELLED by 1000` is CANCELLED."""
    return state.split(" ", 1)[0].rstrip("+").upper()


def _tres(text: str) -> Iterable[tuple[str, str | None, int | None]]:
    for part in text.split(","):
        name, _, count = part.partition("=")
        kind, _, rest = name.partition("/")
        if count.isdecimal():
            yield kind, rest or None, int(count)


def _gpus(resources: Iterable[tuple[str, str | None, int | None]]) -> int:
    """GPUs among trackable resources: the count over all types where there is one, else that of each type."""
    whole, typed = 0, 0
    for kind, name, count in resources:
        if kind == "gres" and name is not None and count:
            if name == "gpu":
                whole = count
            elif re.match(r"gpu[:/]", name):
                typed += count
    return whole or typed


def _number(told: Any) -> int | None:
    """A number of sacct's JSON: bare, or since 23.02 with a word whether it is set."""
    if isinstance(told, dict):
        told = told.get("number") if told.get("set") and not told.get("infinite") else None
    if isinstance(told, bool) or not isinstance(told, int | float) or not math.isfinite(told):
        return None
    return int(told)


def _seconds_ns(told: Any) -> int | None:
    seconds = _number(told)
    return seconds * NS_PER_S if seconds else None


def _text_ns(text: str) -> int | None:
    if text in ("", "Unknown", "None"):
        return None
    return int(text) * NS_PER_S if text.isdecimal() else moment_ns(text)
