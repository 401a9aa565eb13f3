"""`goodput run -- COMMAND`: records a training whose code knows nothing of us.

The command runs as our child, on our own terminal, files and environment; each Python process of it loads
`inject/sitecustomize.py`, which has the ranks among them record themselves (`goodput.auto`). From here we only look on:
how the ranks end, and what to say about it when the command has ended, whose exit status becomes ours.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import os
import resource
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

from goodput import launchfolder
from goodput.account import account
from goodput.directory import default_spool_directory
from goodput.endings import Ending, Endings, signal_name
from goodput.environment import (
    GOODPUT_RUN,
    GOODPUT_SPOOL,
    Environment,
    read_environment,
)
from goodput.exits import ExitEvents
from goodput.guard import Guard
from goodput.lastwords import LastWords
from goodput.launchfolder import JOB_VARIABLE, LAUNCH_VARIABLE, RANK_VARIABLE
from goodput.saying import say
from goodput.spool import recover_dead

INJECT = Path(__file__).with_name("inject")
EXIT_USAGE = 2
EXIT_NOT_EXECUTABLE = 126
EXIT_NOT_FOUND = 127
_FORWARDED = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGALRM,
)
_FROM_KERNEL = 128  # SI_KERNEL: a key on the terminal, which the command gets as well
_PR_SET_PDEATHSIG = 1


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        print(f"goodput: {message}. See: goodput run --help", file=sys.stderr)
        sys.exit(EXIT_USAGE)


def parser() -> argparse.ArgumentParser:
    """The command line of `goodput run`."""
    made = _Parser(
        prog="goodput run",
        usage="goodput run [--run NAME] [--spool DIR] [--quiet] [--leave-stderr] -- COMMAND...",
        description="Run a training command and record it, without any change to its code: steps, saves, loads, "
        "evaluations, data wait, and how each rank ends. The command's output, signals and exit status are its own.",
        epilog="Example: goodput run --run llama-7b -- torchrun --nproc-per-node 8 train.py",
        allow_abbrev=False,
    )
    made.add_argument(
        "--run",
        metavar="NAME",
        help="name of the run, the same across its restarts; default: GOODPUT_RUN, else made of the script's name and "
        "its arguments",
    )
    made.add_argument("--spool", metavar="DIR", help="folder for the events; default: GOODPUT_SPOOL")
    made.add_argument("--quiet", action="store_true", help="print nothing of our own at the end")
    made.add_argument(
        "--leave-stderr",
        action="store_true",
        help="never look at what the command writes on stderr; its last lines are then not kept with a failure",
    )
    made.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return made


def main(argv: Sequence[str]) -> int:
    """Run the command; gives its exit status, or leaves by the signal that killed it."""
    options = parser().parse_args(list(argv))
    command: list[str] = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        print(
            "goodput: run needs a command: goodput run -- torchrun train.py. See: goodput run --help", file=sys.stderr
        )
        return EXIT_USAGE
    environment = read_environment()
    if options.run is not None and not options.run.strip():
        print("goodput: --run needs a name. See: goodput run --help", file=sys.stderr)
        return EXIT_USAGE
    run = (options.run or environment.run or default_run(command, os.getcwd())).strip()  # noqa: PTH109
    spool = Path(options.spool or environment.spool or default_spool_directory()).absolute()
    quiet = options.quiet or not environment.summary
    folder = None if environment.disabled else _launch_folder(environment, spool)
    if folder is None:
        return _execute(command)
    try:
        variables = command_environment(os.environ, run=run, spool=spool, folder=folder)
        launch = _Launch(command, variables, spool=spool, folder=folder, watch_stderr=not options.leave_stderr)
        status = launch.run()
        if status is None:
            return launch.failed_status
        launch.conclude(quiet=quiet)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return _leave(status)


def default_run(command: Sequence[str], folder: str) -> str:
    """A name that a restart of the same command in the same folder gets again, and another training does not.

    Made of the script and what follows it, so that a launcher's own options, which differ from node to node, are not
    part of it: `train-3f9a2c`.
    """
    script = 0
    for number, word in enumerate(command):
        if word.endswith((".py", ".sh")):
            script = number
            break
        if word == "-m" and number + 1 < len(command) and not command[number + 1].startswith("torch.distributed."):
            script = number + 1
            break
    stem = Path(command[script]).name.removesuffix(".py").removesuffix(".sh").rpartition(".")[2] or "run"
    digest = hashlib.sha256("\0".join([folder, *command[script:]]).encode("utf-8", "surrogateescape")).hexdigest()
    return f"{stem}-{digest[:6]}"


def command_environment(variables: Mapping[str, str], *, run: str, spool: Path, folder: Path) -> dict[str, str]:
    """The command's environment: ours, the run's name, and what has its Python processes load us."""
    path = os.pathsep.join(filter(None, [str(INJECT), variables.get("PYTHONPATH", "")]))
    changed = {
        **variables,
        "PYTHONPATH": path,
        GOODPUT_RUN: run,
        GOODPUT_SPOOL: str(spool),
        LAUNCH_VARIABLE: str(folder),
        JOB_VARIABLE: f"local:{os.uname().nodename}:{os.getpid()}",
    }
    changed.pop(RANK_VARIABLE, None)
    return changed


class _Launch:
    """One command from its start to what is said of it.

    Attributes:
        failed_status: what to leave with when it could not be started.
    """

    def __init__(
        self,
        command: list[str],
        variables: dict[str, str],
        *,
        spool: Path,
        folder: Path,
        watch_stderr: bool,
    ) -> None:
        self._command = command
        self._variables = variables
        self._spool = spool
        self._folder = folder
        self._words = LastWords(watch=watch_stderr)
        self._endings: list[Ending] = []
        self._exits = ExitEvents(spool, folder)
        self._observer = Endings(folder, self._ended)
        self.failed_status = EXIT_NOT_FOUND

    def run(self) -> int | None:
        """Start the command and wait for its end; its status as `subprocess` has it, None if it did not start."""
        # From here on signals wait until they are asked for, so that none is lost between two looks.
        kept = signal.pthread_sigmask(signal.SIG_BLOCK, {*_FORWARDED, signal.SIGCHLD})
        chld = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        try:
            process = subprocess.Popen(
                self._command,
                env=self._variables,
                stderr=self._words.fd,
                close_fds=False,
                preexec_fn=_prepare_child(kept, chld),
            )
        except OSError as error:
            missing = isinstance(error, FileNotFoundError)
            self.failed_status = EXIT_NOT_FOUND if missing else EXIT_NOT_EXECUTABLE
            what = "no such command" if missing else error.strerror or "it cannot be executed"
            print(f"goodput: cannot run {shlex.quote(self._command[0])}: {what}", file=sys.stderr)
            return None
        self._words.begin()
        self._observer.start()
        return self._wait(process)

    def _wait(self, process: subprocess.Popen[bytes]) -> int:
        while True:
            came = signal.sigwaitinfo({*_FORWARDED, signal.SIGCHLD})
            if came.si_signo != signal.SIGCHLD:
                # A key on the terminal reaches the command too; sent to us alone, it does not.
                if came.si_code != _FROM_KERNEL:
                    # Not by way of the process object, which would take the child's status if it is there.
                    os.kill(process.pid, came.si_signo)
                continue
            ended = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None:
                continue
            status = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
            self._observer.told(process.pid, status)
            process.wait()
            return status

    def _ended(self, ending: Ending) -> None:
        """A rank has gone: written down at once, since a restart may follow."""
        self._endings.append(ending)
        try:
            self._exits.write(ending, self._words.text())
        except OSError as error:
            Guard().caught("the end of a rank could not be written", error)

    def conclude(self, *, quiet: bool) -> None:
        """Write down how the ranks ended, and say how the attempt went. Never raises: what counts is the status."""
        try:
            self._words.end()
            left = self._observer.close()
            recover_dead(self._spool)
            if not quiet:
                say(account(self._folder, self._spool, self._endings, left))
        except Exception as error:
            if not quiet:
                say([f"what became of the ranks could not be told: {type(error).__name__}: {error}"])


def _launch_folder(environment: Environment, spool: Path) -> Path | None:
    """A new folder; None when there is no place for it, which is said."""
    try:
        return launchfolder.make_folder(environment.memory, spool)
    except OSError as error:
        what = f"{error.filename or spool}: {error.strerror or error}"
        say([f"nothing can be recorded, the command runs as it is: {what}"])
        return None


def _prepare_child(
    mask: set[signal.Signals] | set[int], chld: signal.Handlers | int | Callable[[int, FrameType | None], object] | None
) -> Callable[[], None]:
    """What the child does before it becomes the command: signals as they were, and no life without us.

    Where we were killed, so would the command have been, whose place we stand in.
    """
    parent = os.getpid()
    try:
        prctl = ctypes.CDLL(None).prctl
    except (OSError, AttributeError):
        prctl = None

    def prepare() -> None:
        if chld == signal.SIG_IGN:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent:
                os.kill(os.getpid(), signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    return prepare


def _execute(command: list[str]) -> int:
    """Become the command."""
    try:
        os.execvp(command[0], command)
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        what = "no such command" if missing else error.strerror or "it cannot be executed"
        print(f"goodput: cannot run {shlex.quote(command[0])}: {what}", file=sys.stderr)
        return EXIT_NOT_FOUND if missing else EXIT_NOT_EXECUTABLE


def _leave(status: int) -> int:
    """The command's exit status, or its death by a signal, which becomes ours."""
    if status >= 0:
        return status
    number = -status
    try:
        sys.stdout.flush()
        sys.stderr.flush()
        # The command has left its core, if any is wanted.
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
    except (OSError, ValueError):
        say([f"the command was killed by {signal_name(number)}"])
    return 128 + number
