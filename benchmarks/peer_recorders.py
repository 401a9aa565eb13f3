"""What a step costs the training thread in other recorders, under an interpreter that has them and nothing of ours.

    python benchmarks/peer_recorders.py NAME STEPS alone|busy

Their clients would talk to a cloud: here ml-goodput-measurement writes into nothing, or a line of JSON to a file, and
nv-one-logger exports to a file, as its own examples do. Prints as JSON the median and the 99.9th percentile in
microseconds, of each way.
"""

from __future__ import annotations

import array
import json
import logging
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

WARM_UP = 200


def timed(step_of: Callable[[int], None], steps: int) -> tuple[float, float]:
    for step in range(WARM_UP):
        step_of(step)
    took = array.array("q", bytes(8 * steps))
    clock = time.perf_counter_ns
    cost = int(statistics.median(-(clock() - clock()) for _ in range(10_000)))
    for step in range(steps):
        begun = clock()
        step_of(WARM_UP + step)
        took[step] = clock() - begun
    ordered = sorted(took)
    return max(ordered[steps // 2] - cost, 0) / 1e3, max(ordered[int(steps * 0.999)] - cost, 0) / 1e3


def ml_goodput_measurement(directory: Path, steps: int) -> dict[str, tuple[float, float]]:
    from ml_goodput_measurement.src import goodput  # type: ignore[import-not-found,unused-ignore]

    class Nothing:
        def write_cloud_logging_entry(self, entry: dict[str, Any]) -> None:
            pass

    with (directory / "entries.jsonl").open("w") as file:

        class Lines:
            def write_cloud_logging_entry(self, entry: dict[str, Any]) -> None:
                file.write(json.dumps(entry) + "\n")
                file.flush()

        return {
            f"ml-goodput-measurement, {what}": timed(
                goodput.GoodputRecorder("bench", "bench", True, log).record_step_start_time, steps
            )
            for what, log in (("into nothing", Nothing()), ("to a file", Lines()))
        }


def nv_one_logger(directory: Path, steps: int) -> dict[str, tuple[float, float]]:
    from nv_one_logger.api.config import OneLoggerConfig  # type: ignore[import-not-found,unused-ignore]
    from nv_one_logger.exporter.file_exporter import FileExporter  # type: ignore[import-not-found,unused-ignore]
    from nv_one_logger.training_telemetry.api import callbacks  # type: ignore[import-not-found,unused-ignore]
    from nv_one_logger.training_telemetry.api.config import (  # type: ignore[import-not-found,unused-ignore]
        TrainingTelemetryConfig,
    )
    from nv_one_logger.training_telemetry.api.training_telemetry_provider import (  # type: ignore[import-not-found,unused-ignore]
        TrainingTelemetryProvider,
    )

    provider = TrainingTelemetryProvider.instance()
    base = OneLoggerConfig(application_name="bench", session_tag_or_fn="bench", world_size_or_fn=1)
    provider.with_base_config(base).with_exporter(FileExporter(file_path=directory / "spans.json")).configure_provider()
    callbacks.on_app_start()
    provider.set_training_telemetry_config(
        TrainingTelemetryConfig(
            world_size_or_fn=1,
            global_batch_size_or_fn=32,
            log_every_n_train_iterations=10,
            perf_tag_or_fn="bench",
            is_log_throughput_enabled_or_fn=False,
        )
    )
    callbacks.on_train_start(train_iterations_start=0)

    def step_of(_: int) -> None:
        callbacks.on_training_single_iteration_start()
        callbacks.on_training_single_iteration_end()

    return {"nv-one-logger, to a file": timed(step_of, steps)}


def main(name: str, steps: str, how: str) -> None:
    logging.disable(logging.CRITICAL)
    if how == "busy":

        def burn() -> None:
            while True:
                sum(range(100))

        threading.Thread(target=burn, daemon=True).start()
    measure = {"ml-goodput-measurement": ml_goodput_measurement, "nv-one-logger": nv_one_logger}[name]
    with tempfile.TemporaryDirectory() as directory:
        print(json.dumps(measure(Path(directory), int(steps))))


if __name__ == "__main__":
    main(*sys.argv[1:])
