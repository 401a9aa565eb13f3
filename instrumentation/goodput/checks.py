"""The checks of `goodput doctor`. Each really does what it checks, and gives a verdict, what was found, what to do."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from goodput import facts
from goodput.directory import default_spool_directory, is_tmpfs, prepare_directory, tmpfs_directory
from goodput.environment import GOODPUT_MEMORY, GOODPUT_SPOOL, Environment
from goodput.identity import identify
from goodput.liveness import LivenessLock, SourceInfo, is_alive
from goodput.memory import FILE_BYTES, Memory
from goodput.spool import list_segments, recover_dead

Result = tuple[str, str, str | None]

_PACKAGE_ROOT = Path(__file__).parents[1]
_NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "beegfs", "ceph", "fuse.sshfs", "9p", "afs"})
_LOW_BYTES = 2 << 30
_TOO_LOW_BYTES = 64 << 20
_SLOW_S = 0.5
_TIME_ERROR = 5  # adjtimex(2): the clock is not synchronized
_SANE_SINCE_NS = 1_700_000_000_000_000_000
_MB = 1_000_000


def spool_directory(environment: Environment) -> Path:
    return Path(environment.spool or default_spool_directory()).absolute()


def settings(environment: Environment) -> Result:
    """The variables make sense, and recording is not switched off."""
    if environment.disabled:
        return "fail", "GOODPUT_DISABLED is set: nothing is recorded", "unset GOODPUT_DISABLED"
    if environment.complaints:
        return "warn", "; ".join(environment.complaints), "correct the variable"
    given = sorted(name for name in environment.variables if name.startswith("GOODPUT_"))
    return "ok", f"set: {', '.join(given)}" if given else "all at their defaults", None


def identity(environment: Environment) -> Result:
    """Who this process would be."""
    found = identify(environment.variables, host=os.uname().nodename, pid=os.getpid(), parent_pid=os.getppid())
    says = (
        f"rank {found.rank} of {found.world_size} on {found.node}, told by {found.launcher}; "
        f"job {environment.job or found.job}"
    )
    if environment.run is None:
        return "warn", f"{says}; no run is named here", "goodput.start(run=...), goodput run --run, or GOODPUT_RUN"
    return "ok", f"{says}; run {environment.run}", None


def spool(path: Path) -> Result:
    """The folder is ours, private, and on a disk of this node."""
    try:
        prepare_directory(path)
        with tempfile.NamedTemporaryFile(dir=path, prefix=".doctor-"):
            pass
    except OSError as error:
        return (
            "fail",
            f"{path}: {error.strerror or error}",
            f"give a folder that this user can write in: {GOODPUT_SPOOL}",
        )
    kind = file_system(path)
    if kind in _NETWORK:
        return (
            "warn",
            f"{path} is on a network file system ({kind})",
            f"give a folder on a disk of the node: {GOODPUT_SPOOL}",
        )
    return "ok", f"{path} ({kind or 'unknown file system'})", None


def disk(path: Path) -> Result:
    """There is room, and a write gets there soon."""
    there = next(folder for folder in (path, *path.parents) if folder.exists())
    free = shutil.disk_usage(there).free
    says = f"{free // _MB:,} MB free"
    more = f"make room, or give another folder: {GOODPUT_SPOOL}"
    if free < _TOO_LOW_BYTES:
        return "fail", says, more
    try:
        with tempfile.NamedTemporaryFile(dir=there, prefix=".doctor-") as file:
            began_s = time.monotonic()
            file.write(b"\0" * 65536)
            file.flush()
            os.fsync(file.fileno())
            took_s = time.monotonic() - began_s
    except OSError as error:
        return "fail", f"{says}; {error.strerror or error}", more
    says += f"; 64 KiB are safe after {took_s * 1000:.1f} ms"
    if free < _LOW_BYTES:
        return "warn", says, more
    if took_s > _SLOW_S:
        return "warn", says, "no rank waits for it, but a kill of the node may cost more events"
    return "ok", says, None


def memory(environment: Environment) -> Result:
    """Events outlive a killed process: there is tmpfs with room for a rank's memory."""
    loses = f"the last 0.1 s of events is lost with a killed process; give a folder on tmpfs: {GOODPUT_MEMORY}"
    if environment.memory is None:
        return "warn", "kept inside the process", loses
    try:
        folder = tmpfs_directory(environment.memory)
        if folder is None:
            return "warn", f"{environment.memory} is no tmpfs", loses
        path = folder / f".doctor-{os.getpid()}"
        try:
            Memory(path).close()
        finally:
            path.unlink(missing_ok=True)
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return "warn", f"{environment.memory}: {error.strerror or error}", loses
    ranks = free // FILE_BYTES
    if ranks < 32:
        return "warn", f"{environment.memory} has room for {ranks} ranks", "docker run --shm-size, or a larger tmpfs"
    return "ok", f"{environment.memory} has room for {ranks:,} ranks", None


def lock(path: Path) -> Result:
    """Another process sees whether one that records still lives."""
    with _playground(path) as folder:
        info = SourceInfo(source="doctor", run="doctor", memory=None, pid=os.getpid(), rank=0, boot_id=None)
        held = LivenessLock.create(folder, info)
        script = f"import pathlib, goodput.liveness as l; print(l.is_alive(pathlib.Path({str(held.path)!r})))"
        try:
            while_held = _python(script).stdout.strip()
        finally:
            held.release(remove=False)
        after = is_alive(held.path)
    if (while_held, after) != ("True", False):
        return (
            "fail",
            "locks do not work here: the dead cannot be told from the living",
            f"give a folder on a local disk: {GOODPUT_SPOOL}",
        )
    return "ok", "a process that holds its lock is seen to live, one that let go is not", None


def events(environment: Environment, path: Path) -> Result:
    """A process records, and what it said is read back."""
    with _playground(path) as folder:
        began_s = time.monotonic()
        done = _python(
            'import goodput\nrec = goodput.start(run="doctor")\nfor step in (1, 2):\n    with rec.step(step):\n'
            "        pass\nrec.finish()",
            folder,
        )
        took_s = time.monotonic() - began_s
        kinds = [event["kind"] for event in _events_in(folder)]
    if kinds != ["start", "step", "step", "stop"] and kinds != ["start", "step", "stop"]:
        why = _last_line(done.stderr)
        return "fail", f"a process that recorded two steps left {kinds or 'nothing'}{why}", "see spool, disk and memory"
    return "ok", f"{len(kinds)} events of a process that took {took_s:.2f} s were read back", None


def kill(environment: Environment, path: Path) -> Result:
    """A process is killed in the middle of its work, and what it had said is taken up."""
    with _playground(path) as folder:
        done = _python(
            'import goodput, os, signal\nrec = goodput.start(run="doctor")\nfor step in range(1, 101):\n'
            "    with rec.step(step):\n        pass\nos.kill(os.getpid(), signal.SIGKILL)",
            folder,
        )
        recover_dead(folder)
        steps = sum(event.get("count", 1) for event in _events_in(folder) if event["kind"] == "step")
    if done.returncode != -signal.SIGKILL:
        return "fail", f"the process was not killed{_last_line(done.stderr)}", "see events"
    if steps != 100:
        return "warn", f"{steps} of 100 steps outlived a SIGKILL", "see memory"
    return "ok", "100 of 100 steps outlived a SIGKILL", None


def clock() -> Result:
    """The clock is right, as far as one node can tell."""
    if time.time_ns() < _SANE_SINCE_NS:
        return "fail", f"it is {time.strftime('%Y-%m-%d', time.gmtime())} here", "set the clock"
    try:
        # A struct timex that asks for nothing; the call gives the state of the clock.
        state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(1024))
    except (OSError, AttributeError):
        state = -1
    if state == _TIME_ERROR:
        return (
            "warn",
            "the system does not say that its clock is synchronized",
            "run chrony or ntpd on every node; skew among the ranks is taken out by their shared steps",
        )
    if state < 0:
        return "warn", "the system does not tell whether its clock is synchronized", "look at chronyc tracking"
    return "ok", "synchronized", None


def devices(environment: Environment) -> Result:
    """GPUs of this node, and how many one rank is said to drive."""
    drives = f"a rank drives {environment.devices or 1}"
    names = facts.device_names()
    if not names:
        return "ok", f"no NVIDIA GPU is seen; {drives}", None
    told = facts.device_facts(environment.variables)
    says = f"{told['device_names']}; {drives}"
    chosen = environment.variables.get("CUDA_VISIBLE_DEVICES")
    if chosen in ("", "-1"):
        return "warn", f"{says}; CUDA_VISIBLE_DEVICES hides them all", "unset CUDA_VISIBLE_DEVICES"
    if (environment.devices or 1) > len(names):
        return "fail", says, "correct GOODPUT_DEVICES: held GPU-seconds are counted by it"
    return "ok", says, None


def token(environment: Environment, path: Path) -> Result:
    """Two ranks form a group with torch and agree on a token for their attempt."""
    if find_spec("torch") is None:
        return "ok", "torch is not installed here: without it, attempts are told by their order in time", None
    script = (
        "import goodput, os, time\nrec = goodput.start(run='doctor')\nimport torch.distributed as dist\n"
        "dist.init_process_group('gloo', init_method='file://' + os.environ['DOCTOR_STORE'],\n"
        "    rank=int(os.environ['RANK']), world_size=2)\n"
        "dist.barrier()\ntime.sleep(1.5)\ndist.barrier()\nrec.finish()\nos._exit(0)"
    )
    with _playground(path) as folder:
        ranks = [
            _begin(script, folder, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", DOCTOR_STORE=f"{folder}/store")
            for rank in range(2)
        ]
        said = ""
        try:
            for process in ranks:
                said = process.communicate(timeout=60)[1] or said
        except subprocess.TimeoutExpired:
            said = "they did not meet within a minute"
        finally:
            for process in ranks:
                process.kill()
                process.wait()
        tokens = [event["attempt_token"] for event in _events_in(folder) if event["kind"] == "joined"]
    if len(tokens) == 2 and len(set(tokens)) == 1:
        return "ok", "two ranks formed a group and agreed on a token", None
    return (
        "warn",
        f"two ranks did not agree on a token{_last_line(said)}",
        "attempts are told by their order in time; look at what torch says",
    )


def file_system(path: Path) -> str | None:
    """The kind of the file system that holds a path; None where the system does not say."""
    real = os.path.realpath(path)
    best, kind = "", None
    try:
        for line in Path("/proc/self/mounts").read_text(encoding="utf-8", errors="surrogateescape").splitlines():
            fields = line.split(" ")
            point = fields[1].encode("latin-1", "replace").decode("unicode_escape", "replace")
            if (real == point or real.startswith(point.rstrip("/") + "/")) and len(point) >= len(best):
                best, kind = point, fields[2]
    except (OSError, IndexError):
        return None
    return "tmpfs" if kind is None and is_tmpfs(str(path)) else kind


@contextmanager
def _playground(spool: Path) -> Iterator[Path]:
    """A spool of the doctor's own beside the real events, on the same disk. Raises OSError."""
    prepare_directory(spool)
    with tempfile.TemporaryDirectory(dir=spool, prefix=".doctor-") as name:
        yield Path(name)


def _begin(script: str, spool: Path | None, **more: str) -> subprocess.Popen[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GOODPUT_RUN", "_GOODPUT_"))}
    path = os.pathsep.join(filter(None, [str(_PACKAGE_ROOT), kept.get("PYTHONPATH", "")]))
    place = {} if spool is None else {GOODPUT_SPOOL: str(spool)}
    return subprocess.Popen(
        [sys.executable, "-c", script],
        env={**kept, "PYTHONPATH": path, "GOODPUT_SUMMARY": "0", **place, **more},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _python(script: str, spool: Path | None = None) -> subprocess.CompletedProcess[str]:
    process = _begin(script, spool)
    try:
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def _events_in(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for segment in list_segments(folder):
        found += [json.loads(line) for line in segment.path.read_bytes().splitlines()]
    return [event for event in found if event["kind"] != "heartbeat"]


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return f": {lines[-1]}" if lines else ""
