"""`start`: from the environment to a recorder at work."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, SupportsIndex

from goodput import hooks, process
from goodput.attempt import Agreement
from goodput.clock import Clock
from goodput.directory import default_spool_directory, prepare_directory, tmpfs_directory
from goodput.environment import DEVICES_LIMIT, Environment, read_environment
from goodput.events import TEXT_MAX_CHARS, VERSION, Field, Kind, readable_text
from goodput.facts import process_facts
from goodput.firsttime import FirstTimes, sweep_steps
from goodput.guard import Guard, warn_once
from goodput.identity import Identity, identify
from goodput.liveness import LivenessLock, SourceInfo
from goodput.memory import Memory
from goodput.noop import NoopRecorder
from goodput.protocol import Recorder
from goodput.recorder import LiveRecorder
from goodput.request import RequestWatch
from goodput.saying import say, say_summary
from goodput.spool import recover_dead
from goodput.worker import Worker
from goodput.writer import SpoolWriter

_NAME_MAX_CHARS = 200
_NAMELESS = (
    'nothing is recorded, for the run has no name: give run="..." or GOODPUT_RUN=... '
    "(GOODPUT_DISABLED=1 where it is not to be recorded)"
)
_nameless_said = False


def start(
    run: str | None = None,
    *,
    job: str | None = None,
    labels: Mapping[str, str] | None = None,
    spool: str | os.PathLike[str] | None = None,
    devices: int | None = None,
    group: str | int | None = None,
    meta: Mapping[str, str] | None = None,
) -> Recorder:
    """Begin to record this process's part of a run.

    Call it once in each rank, early: what came before, back to the start of the process, counts as startup. A forked
    child does not go on with its parent's record; one that calls it for itself is a source of its own.

    Args:
        run: name of the run, the same across restarts (default `GOODPUT_RUN`; without either nothing is recorded, and
            rank 0 says so once on standard error).
        job: what holds the GPUs, in place of what the environment tells (default `GOODPUT_JOB`, else Slurm's,
            Kubernetes' or torchrun's, else this process). GPUs count as held between two attempts of one job: a
            script of one's own that starts plain Python again while it keeps the GPUs gives each start the same.
        labels: of the run, such as team and project; `GOODPUT_LABELS` adds to them.
        spool: directory for the events (default `GOODPUT_SPOOL`, else `goodput-<uid>` in the temporary directory).
        devices: GPUs that this rank drives (default `GOODPUT_DEVICES`, else 1).
        group: ranks with the same value do the same work, such as a pipeline stage. Where the process only learns it
            later, `in_group` of the recorder says it.
        meta: anything else worth keeping with the source.

    Never raises. An argument that makes no sense is warned of once and left at its default; when recording cannot
    be begun at all, a recorder that does nothing is given.
    """
    try:
        known = _begun_by_goodput_run(run)
        if known is not None:
            return known
        environment = read_environment()
        for complaint in environment.complaints:
            warn_once(complaint, complaint)
        name = environment.run if run is None else (_text("run", run) or "").strip()
        if environment.disabled:
            return NoopRecorder()
        if not name:
            _say_nameless(environment)
            return NoopRecorder()
        return _begin(
            environment,
            run=readable_text(name)[:_NAME_MAX_CHARS],
            job=_text("job", job) or environment.job,
            labels={**environment.labels, **_texts("labels", labels)},
            spool=_directory(spool, environment),
            devices=_devices(devices) or environment.devices or 1,
            group=_text("group", group),
            meta={**process_facts(environment.variables), **_texts("meta", meta)},
        )
    except Exception as error:
        Guard().caught("recording could not be begun", error)
        return NoopRecorder()


def begin(environment: Environment, *, job: str | None) -> Recorder:
    """`start` for a process of which everything is known from its environment, which names the run. Raises OSError."""
    for complaint in environment.complaints:
        warn_once(complaint, complaint)
    if environment.disabled or not environment.run:
        return NoopRecorder()
    return _begin(
        environment,
        run=readable_text(environment.run)[:_NAME_MAX_CHARS],
        job=job,
        labels=dict(environment.labels),
        spool=_directory(None, environment),
        devices=environment.devices or 1,
        group=None,
        meta={**process_facts(environment.variables), "recorded_by": "goodput run"},
    )


def _say_nameless(environment: Environment) -> None:
    """Rank 0 tells once that nothing is recorded, and how to have it: a forgotten name is no quiet run."""
    global _nameless_said
    identity = identify(environment.variables, host="", pid=os.getpid(), parent_pid=os.getppid())
    if identity.rank == 0 and not _nameless_said:
        _nameless_said = True
        say([_NAMELESS])


def _begun_by_goodput_run(run: str | None) -> Recorder | None:
    """The recorder of a process that `goodput run` records already: a program that starts its own goes on with it."""
    automatic: Any = sys.modules.get("goodput.auto")
    known: Recorder | None = None if automatic is None else automatic.taken_over()
    if known is not None and run is not None and run != known.run:
        warn_once("two names for a run", f"{two_names(known.run, run)}: give goodput run --run {run}")
    return known


def two_names(recorded: str, other: str | None) -> str:
    """What to say where `goodput run` and the program name the run differently: there is one record."""
    return f"this process is recorded as {recorded!r}, not as {other!r}"


def _begin(
    environment: Environment,
    *,
    run: str,
    job: str | None,
    labels: dict[str, str],
    spool: Path,
    devices: int,
    group: str | None,
    meta: dict[str, str],
) -> LiveRecorder:
    clock = Clock()
    guard = Guard()
    process_start_ns = process.process_start_ns(clock.now_ns)
    now = clock.now_ns()
    own_life, replaced = process.life(environment.variables)
    if replaced and not hooks.recorded_before():
        # An exec: the time before belongs to the program that this process was.
        process_start_ns = now
    os.environ[process.LIFE_VARIABLE] = own_life
    started = hooks.earliest_start_ns(process_start_ns, now)
    identity = identify(environment.variables, host=os.uname().nodename, pid=os.getpid(), parent_pid=os.getppid())
    source = f"r{identity.rank}-{_file_part(identity.node)}-{os.urandom(8).hex()}"
    memory, lock = _reserve(environment, spool, run, source, identity, guard)
    recorder = LiveRecorder(run=run, source=source, clock=clock, memory=memory, guard=guard)
    recorder.started_ns = started
    recorder.rank, recorder.world_size = identity.rank, identity.world_size
    recorder.first_times = FirstTimes(
        run=run,
        rank=identity.rank,
        memory=None if memory.path is None else memory.path.parent,
        spool=None if lock is None else spool,
        guard=guard,
    )
    recorder.requests = None if lock is None else RequestWatch(spool=spool, run=run)
    recorder.on_end = partial(say_summary, spool=None if lock is None else spool) if environment.summary else None
    fields: dict[str, Field] = {
        "v": VERSION,
        "job": (job or identity.job)[:TEXT_MAX_CHARS],
        "restart_count": identity.restart_count,
        "rank": identity.rank,
        "local_rank": identity.local_rank,
        "world_size": identity.world_size,
        "node": identity.node[:TEXT_MAX_CHARS],
        "pid": os.getpid(),
        "devices": int(devices),
        "device_kind": process.device_kind(environment.variables),
        "process_start_ns": started,
    }
    if group is not None:
        fields["group"] = group
    fields["labels"] = labels
    fields["meta"] = meta
    if not recorder.event(Kind.START, fields, now):
        # Labels too long to keep: a source without a start would be left out altogether.
        fields |= {"labels": {}, "meta": {}}
        recorder.event(Kind.START, fields, now)
    recorder.told = fields
    worker = Worker(
        recorder=recorder,
        clock=clock,
        memory=memory,
        writer=SpoolWriter(
            directory=spool,
            run=run,
            source=source,
            memory=memory,
            guard=guard,
            max_bytes=environment.spool_max_bytes,
            probe=None if lock is None else lock.probe(),
        ),
        lock=lock,
        agreement=Agreement(guard),
        guard=guard,
        heartbeat_s=environment.heartbeat_s,
    )
    recorder.attach(worker)
    worker.start()
    hooks.watch(recorder)
    threading.Thread(target=_take_up, args=(spool, memory.path), name="goodput-recover", daemon=True).start()
    return recorder


def _take_up(spool: Path, memory: Path | None) -> None:
    """What others left on this node."""
    recover_dead(spool)
    sweep_steps(spool)
    sweep_steps(None if memory is None else memory.parent)


def _reserve(
    environment: Environment, spool: Path, run: str, source: str, identity: Identity, guard: Guard
) -> tuple[Memory, LivenessLock | None]:
    """Memory on tmpfs under a lock that tells where it is, or else memory of the process's own."""
    path = lock = None
    try:
        directory = tmpfs_directory(environment.memory)
        path = None if directory is None else directory / source
        if directory is None and environment.memory is not None:
            warn_once("no tmpfs", f"{environment.memory} is no tmpfs: a kill may cost the last 0.1 s of events")
    except OSError as error:
        guard.caught("tmpfs cannot be used", error)
    try:
        prepare_directory(spool)
        info = SourceInfo(
            source=source,
            run=run,
            memory=None if path is None else str(path),
            pid=os.getpid(),
            rank=identity.rank,
            boot_id=process.boot_id(),
        )
        # The lock comes first: memory without one would never be found again.
        lock = LivenessLock.create(spool, info)
    except OSError as error:
        guard.caught("spool directory cannot be used", error)
        return Memory(None), None
    try:
        return Memory(path, lock.path), lock
    except OSError as error:
        guard.caught("tmpfs has no room for the memory segments", error)
        return Memory(None), lock


def _useless(argument: str, given: object) -> None:
    message = f"start({argument}=…) was given a {type(given).__name__} that cannot be used: left out"
    Guard().caught(message, None)


def _text(argument: str, given: object) -> str | None:
    try:
        return None if given is None else str(given)[:TEXT_MAX_CHARS]
    except Exception:
        _useless(argument, given)
        return None


def _texts(argument: str, given: Mapping[str, str] | None) -> dict[str, str]:
    try:
        return {str(name): str(value) for name, value in (given or {}).items()}
    except Exception:
        _useless(argument, given)
        return {}


def _devices(given: SupportsIndex | None) -> int | None:
    try:
        if given is None or 1 <= int(given) < DEVICES_LIMIT:
            return None if given is None else int(given)
    except Exception:
        pass
    _useless("devices", given)
    return None


def _directory(given: str | os.PathLike[str] | None, environment: Environment) -> Path:
    otherwise = environment.spool or default_spool_directory()
    try:
        return Path(given or otherwise).absolute()
    except Exception:
        _useless("spool", given)
        return Path(otherwise).absolute()


def _file_part(text: str) -> str:
    """A node's name as part of a file name."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "_" for c in text)[:60] or "node"
