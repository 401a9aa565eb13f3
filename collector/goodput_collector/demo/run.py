"""The demonstration from end to end: train, break, collect, compare."""

from __future__ import annotations

import importlib.metadata
import shlex
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

from rich.console import Console

from goodput_analytics.model import Report
from goodput_collector.demo.compare import compare
from goodput_collector.demo.figures import Fact, Line
from goodput_collector.demo.injector import Injector, TrainingEndedError
from goodput_collector.demo.launcher import RUN_NAME, Launch
from goodput_collector.demo.ledger import collect, read_ledger, recover
from goodput_collector.demo.live import LiveCollector
from goodput_collector.demo.options import DemoOptions, DemoUsageError, Plan, make_plan
from goodput_collector.demo.sabotage import TRUTH_DIR
from goodput_collector.demo.stage_view import StageView, comparison_table, reasons
from goodput_collector.demo.truth import RankLogs, Record
from goodput_collector.demo.watch import Coroner, Watch
from goodput_collector.report_view import print_view, report_view

POLL_S = 0.03
FAILED, BAD_USAGE = 1, 2


class DemoFailedError(RuntimeError):
    """The training could not be brought to its end; the message says what to do."""


def play(options: DemoOptions) -> int:
    """Plays the demonstration and returns its exit code; see `run_demo`."""
    console = Console(highlight=False)
    errors = Console(stderr=True, highlight=False, soft_wrap=True)
    try:
        home = _make_home(options.keep)
    except (OSError, DemoUsageError) as error:
        errors.print(f"goodput: {error}", markup=False)
        return BAD_USAGE
    try:
        with _interruptible():
            return _perform(home, make_plan(options), console, keep_all=options.keep is not None)
    except (DemoFailedError, TrainingEndedError) as error:
        errors.print(f"goodput: {error}", markup=False)
        return FAILED
    except KeyboardInterrupt:
        errors.print(f"Interrupted: all processes were ended. What was written so far is in {home}", markup=False)
        return 130
    except _TerminatedError:
        return 143


def _perform(home: Path, plan: Plan, console: Console, *, keep_all: bool) -> int:
    if plan.left_out:
        console.print(f"With one rank there are no peers: left out are {', '.join(plan.left_out)}.")
    done = f"with {', '.join(plan.faults)}" if plan.faults else "undisturbed"
    console.print(f"Trains a small model with {plan.ranks} ranks for about {plan.seconds:.0f} s, {done}.")
    record = _train(home, plan, console)
    record.write(home / "truth.jsonl")
    db = home / "goodput.duckdb"
    collect(home / "spool", db)
    report, intervals = read_ledger(db, RUN_NAME)
    lines = compare(record, report, intervals)
    _show_report(console, report)
    console.print()
    print_view(comparison_table(lines), console)
    for reason in reasons(lines):
        console.print(f"  {reason}", style="dim", markup=False, soft_wrap=True)
    if not keep_all:
        for folder in ("checkpoints", "live.archive"):
            shutil.rmtree(home / folder, ignore_errors=True)
        for name in ("live.duckdb", "live.duckdb.wal"):
            (home / name).unlink(missing_ok=True)
    return _verdict(console, lines, db, home)


def _train(home: Path, plan: Plan, console: Console) -> Record:
    """Runs the training under the injector's hands; nothing of it is left, however this ends."""
    logs = RankLogs(home / TRUTH_DIR)
    record = Record(ranks=plan.ranks)
    deadline_s = time.monotonic() + plan.give_up_s
    launch = Launch(home, plan)
    try:
        with StageView(console) as view, LiveCollector(home) as live:
            watch = Watch(launch)
            injector = Injector(home, plan, watch, view.say)
            coroner = Coroner(home / "spool", RUN_NAME)
            while launch.poll() is None:
                coroner.report(watch.look())
                for line in logs.read_new():
                    record.witnessed.append(line)
                    injector.hear(line)
                injector.act()
                coroner.write(time.time_ns())
                for sentence in live.news():
                    view.say(sentence, actor="collector")
                view.show(watch.attempt, injector.step if injector.training else None, injector.saved, plan.seconds)
                if time.monotonic() > deadline_s:
                    raise DemoFailedError(
                        f"The training was not done after {plan.give_up_s:.0f} s: this machine is too busy for "
                        f"{plan.ranks} ranks; try --ranks 2, or --faults kill. Its log: {launch.log_path}"
                    )
                time.sleep(POLL_S)
            coroner.report(watch.look())
            record.witnessed += logs.read_new()
    finally:
        launch.stop()
        recover(home / "spool")
    coroner.write(time.time_ns(), last_call=True)
    if launch.poll() != 0 or not injector.ended:
        for text in launch.log_tail():
            console.print(f"  {text}", markup=False, style="dim", soft_wrap=True)
        raise DemoFailedError(
            f"torchrun ended with exit code {launch.poll()}; its last lines are above, all of it is in "
            f"{launch.log_path}. If a port or an address is at fault, try again; else try --faults none."
        )
    record.acts = injector.acts
    record.workers = list(watch.workers.values())
    return record


def _verdict(console: Console, lines: list[Line | Fact], db: Path, home: Path) -> int:
    off = [line.what for line in lines if not line.holds]
    console.print()
    if off:
        console.print(f"{len(off)} of {len(lines)} figures are off by more than they should be: {', '.join(off)}.")
    else:
        console.print(f"All {len(lines)} figures agree with what was done.")
    goodput = command_name(sys.argv[0], shutil.which("goodput"))
    console.print(f"See it again:   {goodput} report {RUN_NAME} --db {db}", markup=False, soft_wrap=True)
    console.print(f"What to change: {goodput} advise {RUN_NAME} --db {db}", markup=False, soft_wrap=True)
    if _has_dashboard():
        console.print(f"In a browser:   {goodput} dashboard --db {db}", markup=False, soft_wrap=True)
    console.print(f"All that it rests on is in {home}", markup=False, soft_wrap=True)
    return FAILED if off else 0


def command_name(called: str, found: str | None) -> str:
    """How to call this command again: as it was called, where the shell would find none, or another one's.

    `called`: the program's name as this process was given it; `found`: what the shell finds under `goodput`.
    """
    if Path(called).name != "goodput":
        return "goodput"  # by python -m, or from a test
    return "goodput" if found is not None and Path(found).resolve() == Path(called).resolve() else shlex.quote(called)


def _show_report(console: Console, report: Report) -> None:
    console.print()
    print_view(report_view(report), console)


def _make_home(keep: Path | None) -> Path:
    """The folder of this demonstration: the user's, which must be new or empty, or a new temporary one."""
    if keep is None:
        return Path(tempfile.mkdtemp(prefix="goodput-demo-"))
    keep = keep.expanduser().resolve()
    keep.mkdir(parents=True, exist_ok=True)
    if any(keep.iterdir()):
        # Checkpoints and events of another training would be taken for this one's.
        raise DemoUsageError(f"{keep} is not empty: name a new folder for --keep")
    return keep


def _has_dashboard() -> bool:
    return any(point.name == "dashboard" for point in importlib.metadata.entry_points(group="goodput.commands"))


class _TerminatedError(BaseException):
    """SIGTERM came: unwinds like Ctrl-C, so that the processes are ended."""


@contextmanager
def _interruptible() -> Iterator[None]:
    """Lets SIGTERM unwind the stack; puts the old handler back afterwards. Only the main thread may do so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def terminate(_number: int, _frame: FrameType | None) -> NoReturn:
        raise _TerminatedError

    before = {number: signal.signal(number, terminate) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
