"""A training process of its own that counts what it hands over in memory that outlives it."""

from __future__ import annotations

import mmap
import os
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harmless_places import wait_for
from recorder_scripts import begin_script

SCRIPT = """
        import hashlib, mmap, struct
        block = bytes(1 << 20)
        shared = mmap.mmap(os.open({counter!r}, os.O_RDWR), 4096)
        longest = [0, 0, 0]
        rec = goodput.start(run="r")
        step = told = 0
        while not shared[0]:
            step += 1
            begun = time.perf_counter_ns()
            with rec.step(step):
                {work}
                for _ in range({progress}):
                    rec.progress()
                    told += 1
            took = time.perf_counter_ns() - begun
            phase = shared[1]
            if took > longest[phase]:
                longest[phase] = took
                struct.pack_into("@Q", shared, 64 + 8 * phase, took)
            at = 128 + 8 * (step % 496)
            # By assignment: `pack_into` zeroes its target first, and a kill may fall in between.
            shared[at : at + 8] = struct.pack("@Q", time.time_ns())
            shared[16:24], shared[24:32] = struct.pack("@Q", step), struct.pack("@Q", told)
        rec.finish()
        print("trained")
"""


class Training:
    """The process, and what it says of itself.

    Attributes:
        process: it.
        phase: 0, 1 or 2; the longest step of each is kept apart.
    """

    def __init__(self, process: subprocess.Popen[str], shared: mmap.mmap) -> None:
        self.process = process
        self._shared = shared

    @property
    def steps(self) -> int:
        """Steps that it has told the recorder of."""
        return int(struct.unpack_from("@Q", self._shared, 16)[0])

    @property
    def told(self) -> int:
        """`progress` events that it has handed over."""
        return int(struct.unpack_from("@Q", self._shared, 24)[0])

    def longest_s(self, phase: int) -> float:
        return float(struct.unpack_from("@Q", self._shared, 64 + 8 * phase)[0]) / 1e9

    def handed_over_s(self, step: int) -> float:
        """When it handed this step over, one of the last few hundred."""
        return float(struct.unpack_from("@Q", self._shared, 128 + 8 * (step % 496))[0]) / 1e9

    def phase(self, number: int) -> None:
        self._shared[1] = number

    def goes_on(self, steps: int = 20, limit_s: float = 20) -> None:
        """Wait for that many more steps."""
        until = self.steps + steps
        wait_for("more steps", lambda: self.steps >= until or self.process.poll() is not None, limit_s)
        assert self.process.poll() is None, self.process.communicate()

    def finish(self) -> tuple[int, str, str]:
        """Let it end by itself; gives exit code, output and errors."""
        self._shared[0] = 1
        out, err = self.process.communicate(timeout=30)
        return self.process.returncode, out, err


@contextmanager
def training(
    spool: Path, counter: Path, *, work: str = "sum(range(20_000))", progress: int = 0, **more: str
) -> Iterator[Training]:
    """A training that records into `spool`; killed at the end if it still runs."""
    counter.write_bytes(bytes(4096))
    fd = os.open(counter, os.O_RDWR)
    shared = mmap.mmap(fd, 4096)
    os.close(fd)
    script = SCRIPT.format(counter=str(counter), work=work, progress=progress)
    process = begin_script(script, spool, **more)
    try:
        it = Training(process, shared)
        it.goes_on(3)
        yield it
    finally:
        process.kill()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
        process.wait(30)
