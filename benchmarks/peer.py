"""The same steps, accounted for by ml-goodput-measurement, under an interpreter that has it and needs nothing else.

    python benchmarks/peer.py FILE        FILE: the steps' starts, as 64-bit integers of nanoseconds

Its log stands in memory: what its own client would have fetched over the network. Recording into that log is not timed;
the calculation is. Prints what benchmarks/measured.py prints; `log_bytes` is the peak before the calculation began.
"""

from __future__ import annotations

import array
import datetime
import json
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from ml_goodput_measurement.src import goodput  # type: ignore[import-not-found,unused-ignore]

S_NS = 1_000_000_000


class MemoryLog:
    """What stands for the cloud's log: entries in order, all of them read at once."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []
        self.last: tuple[datetime.datetime, str] | None = None

    def write_cloud_logging_entry(self, entry: dict[str, Any]) -> None:
        self.entries.append(entry)

    def flush(self) -> None:
        pass

    def read_cloud_logging_entries(self, *_: object, **__: object) -> tuple[list[dict[str, Any]], Any]:
        return list(self.entries), self.last


def moment(ns: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(ns / S_NS, tz=datetime.UTC)


def peak_bytes() -> int:
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def main(file: str) -> None:
    starts = array.array("q", Path(file).read_bytes())
    log = MemoryLog()
    recorder = goodput.GoodputRecorder("bench", "bench", True, log)
    recorder.record_job_start_time(moment(starts[0] - 30 * S_NS))
    recorder.record_tpu_init_start_time(moment(starts[0] - 20 * S_NS))
    recorder.record_tpu_init_end_time(moment(starts[0] - 10 * S_NS))
    for number, start_ns in enumerate(starts):
        recorder.record_step_start_time(number, moment(start_ns))
    ended = moment(starts[-1] + S_NS)
    recorder.record_job_end_time(ended)
    log.last = (ended, "last")
    log_bytes = peak_bytes()
    with tempfile.TemporaryDirectory() as cache:
        wall, cpu = time.perf_counter(), time.process_time()
        calculator = goodput.GoodputCalculator("bench", "bench", log, cache_dir=cache)
        percent, _, _ = calculator.get_job_goodput(include_badput_breakdown=True)
        cost = {
            "wall_s": time.perf_counter() - wall,
            "cpu_s": time.process_time() - cpu,
            "peak_bytes": peak_bytes(),
            "log_bytes": log_bytes,
            "goodput_ratio": percent / 100,
        }
    print(json.dumps(cost))


if __name__ == "__main__":
    main(sys.argv[1])
