"""What the training thread asks the kernel for on our behalf: nothing, seen by strace from outside."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from recorder_reading import done_steps, read_events
from recorder_scripts import environment

STEPS = 100_000

SCRIPT = f"""
import gc, os, resource, sys, time
import goodput
rec = goodput.start(run="r") if sys.argv[1] == "with" else goodput.NoopRecorder()
for step in range(1, 2001):
    with rec.step(step):
        pass
gc.collect()
faults = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
os.path.islink("/begin")
for step in range(2001, 2001 + {STEPS}):
    # Every 32nd is a line of its own, and cuts the lines of several steps: the memory is filled some times over.
    with rec.step(step, applied=step % 32 != 0) as told:
        sum(range(500))
        if sys.argv[2] == "all":
            rec.own_work_done()
            told.note(loss=1.0, lr=1e-3)
    if sys.argv[2] == "all" and step % 1000 == 0:
        with rec.checkpoint(step):
            rec.checkpoint_requested(), rec.first_time(step)
        rec.durable(step)
os.path.islink("/end")
print(resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - faults)
rec.finish()
"""

WAITS = frozenset({"futex", "sched_yield", "clock_nanosleep"})
"""How the interpreter's own lock changes hands between threads; not a call of ours, and counted apart."""


def test_a_hundred_thousand_steps_make_no_system_call(spool: Path, tmp_path: Path) -> None:
    if shutil.which("strace") is None:
        pytest.skip("needs strace")
    trace = tmp_path / "trace"
    done = subprocess.run(
        ["strace", "-f", "-ff", "-o", str(trace), sys.executable, "-c", SCRIPT, "with", "all"],
        env=environment(spool),
        capture_output=True,
        text=True,
        timeout=100,
    )
    if "PTRACE" in done.stderr or "Operation not permitted" in done.stderr:
        pytest.skip(f"strace may not trace here: {done.stderr.splitlines()[0]}")
    assert done.returncode == 0, done.stderr
    # One file per thread; the training's is the one that looked for both marks.
    (calls,) = [text for path in tmp_path.glob("trace.*") if '"/end"' in (text := path.read_text())]
    between = calls[calls.index('"/begin"') : calls.index('"/end"')].splitlines()[1:-1]
    counted = Counter(match[0] for line in between if (match := re.match(r"\w+", line)))
    waits = sum(counted.pop(name, 0) for name in WAITS)
    assert not counted, f"{counted} in {STEPS} steps, of them: {between[:20]}"
    # The recorder's thread asks for the lock some times per tick.
    assert waits < STEPS / 10
    assert done_steps(read_events(spool)) == list(range(1, 2001 + STEPS))


@pytest.mark.parametrize("what", ["all", "steps"])
def test_a_step_faults_no_page(spool: Path, what: str) -> None:
    faults = {}
    for kind in ("without", "with"):
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, kind, what],
            env=environment(spool),
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        faults[kind] = int(done.stdout)
    print(f"{faults} minor faults in {STEPS} steps")
    assert faults["with"] - faults["without"] < STEPS / 1000
