"""Starts the training under torchrun and makes sure that nothing of it is left."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import goodput
import goodput_collector
from goodput_collector.demo.options import Plan
from goodput_collector.demo.sabotage import DIR_VARIABLE, PARENT_VARIABLE

RUN_NAME = "demo"
_SCRIPT = Path(__file__).with_name("train.py")


class Launch:
    """One torchrun with its workers."""

    def __init__(self, home: Path, plan: Plan) -> None:
        self.log_path = home / "torchrun.log"
        self._seen: dict[int, int] = {}
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                _command(home, plan),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=_environment(home),
                # A session of its own: Ctrl-C reaches us alone, and we decide how it ends.
                start_new_session=True,
                preexec_fn=die_with_parent,
            )

    def poll(self) -> int | None:
        """The exit code of torchrun, None while it runs."""
        return self._process.poll()

    def children(self) -> set[int]:
        """The child processes that exist now, zombies included: the workers, and what torchrun starts beside them."""
        found = _children(self._process.pid)
        for pid in found - self._seen.keys():
            self._seen[pid] = _started_ticks(pid)
        return found

    def stop(self) -> None:
        """Ends everything at once; safe to call at any time and more than once."""
        if self._process.poll() is None:
            # Stopped first, so that it cannot start anybody while its workers are counted.
            self._process.send_signal(signal.SIGSTOP)
            self.children()
            self._process.kill()
            self._process.wait()
        deadline_s = time.monotonic() + 10
        while time.monotonic() < deadline_s:
            # A process number may have been given to somebody else since: the start time tells.
            left = [pid for pid, ticks in self._seen.items() if ticks and _started_ticks(pid) == ticks]
            left = [pid for pid in left if process_state(pid) not in (None, "Z")]
            if not left:
                return
            for pid in left:
                signal_process(pid, signal.SIGKILL)
            time.sleep(0.02)

    def log_tail(self, lines: int = 25) -> list[str]:
        """The last lines that the workers wrote, without torchrun's long account of their failure that follows."""
        text = self.log_path.read_text(errors="replace").splitlines()
        accounts = [number for number, line in enumerate(text) if "] failed (exitcode:" in line]
        return text[: accounts[-1] + 1 if accounts else len(text)][-lines:]


def signal_process(pid: int, number: signal.Signals) -> bool:
    """Sends a signal; False if the process has gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def process_state(pid: int) -> str | None:
    """The one-letter state of a process in /proc, None if there is none."""
    fields = _stat(pid)
    return fields[0] if fields else None


def process_rank(pid: int) -> int | None:
    """The rank that torchrun gave a process in its environment; None for one that is no worker, or not yet."""
    try:
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    found = next((entry.removeprefix(b"RANK=") for entry in entries if entry.startswith(b"RANK=")), b"")
    return int(found) if found.isdigit() else None


def exit_status(pid: int) -> int | None:
    """The wait status of a zombie that its parent has not taken yet; None where it cannot be known."""
    fields = _stat(pid)
    return int(fields[-1]) if fields and fields[0] == "Z" and len(fields) >= 50 else None


def _stat(pid: int) -> list[str]:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    return text[text.rfind(")") + 2 :].split()


def _started_ticks(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[19]) if fields else 0


def _children(parent: int) -> set[int]:
    try:
        files = list(Path(f"/proc/{parent}/task").glob("*/children"))
        if files:
            return {int(pid) for file in files for pid in file.read_text().split()}
    except OSError:
        return set()
    # A kernel without those files: look at everybody.
    numbers = (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())
    return {pid for pid in numbers if (fields := _stat(pid)) and int(fields[1]) == parent}


def _command(home: Path, plan: Plan) -> list[str]:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    torchrun += ["--nproc-per-node", str(plan.ranks), "--max-restarts", str(plan.restarts)]
    torchrun += ["--monitor-interval", "0.1"]
    script = [str(_SCRIPT), "--name", RUN_NAME, "--dir", str(home / "checkpoints"), "--steps", str(10**9)]
    script += ["--save-every", str(plan.save_every), "--pace-s", str(plan.pace_s)]
    return torchrun + script + ["--timeout-s", str(plan.group_timeout_s)]


def _environment(home: Path) -> dict[str, str]:
    roots = {str(Path(str(package.__file__)).parents[1]): None for package in (goodput, goodput_collector)}
    # What tells a worker from others here must not come from around: this may itself run inside a training job.
    foreign = ("GOODPUT_", "TORCHELASTIC_")
    ours = {name: value for name, value in os.environ.items() if name != "RANK" and not name.startswith(foreign)}
    return ours | {
        DIR_VARIABLE: str(home),
        PARENT_VARIABLE: str(os.getpid()),
        "GOODPUT_SPOOL": str(home / "spool"),
        # Ranks that fall silent are told apart by their heartbeats: within a 14 s hang this needs quick ones.
        "GOODPUT_HEARTBEAT_S": "1",
        "OMP_NUM_THREADS": "1",
        # By default a restart meets the dead attempt's addresses in the shared store, and gloo cannot connect.
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        "PYTHONPATH": os.pathsep.join([*roots, *filter(None, [os.environ.get("PYTHONPATH")])]),
        "PYTHONUNBUFFERED": "1",
    }


def die_with_parent() -> None:
    try:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # 1 is PR_SET_PDEATHSIG
    except (OSError, AttributeError):
        pass
