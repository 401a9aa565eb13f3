"""Processes in which the frameworks are imported already: one import of all of them, and a fork for each script.

    with Nursery() as nursery:
        status, said = nursery.run(script, arguments, environment)

Nothing of ours is imported before the fork, so a script's process is one that began just then.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

FRAMEWORKS = ("torch", "torch._dynamo", "accelerate", "lightning.pytorch", "transformers.trainer")


class Nursery:
    """A process that runs scripts in forks of itself, one after the other."""

    def __enter__(self) -> Nursery:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            text=True,
        )
        return self

    def run(self, script: Path, arguments: Sequence[str], environment: Mapping[str, str]) -> tuple[int, str]:
        """Run a script to its end; its exit status, and what it wrote on stderr."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with tempfile.NamedTemporaryFile("r") as said:
            order = {"script": str(script), "arguments": list(arguments), "environment": dict(environment)}
            self._process.stdin.write(json.dumps({**order, "said": said.name}) + "\n")
            self._process.stdin.flush()
            status = int(self._process.stdout.readline())
            return status, said.read()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()


def become(order: dict[str, Any]) -> None:
    """In the child: the script, from its first line to the interpreter's exit."""
    said = os.open(order["said"], os.O_WRONLY | os.O_APPEND)
    nothing = os.open(os.devnull, os.O_RDWR)
    for ours, theirs in ((0, nothing), (1, nothing), (2, said)):
        os.dup2(theirs, ours)
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.path[:0] = order["environment"].get("PYTHONPATH", "").split(os.pathsep)
    sys.argv = [order["script"], *order["arguments"]]
    runpy.run_path(order["script"], run_name="__main__")


def main() -> None:
    import importlib

    for name in FRAMEWORKS:
        importlib.import_module(name)
    while line := sys.stdin.readline():
        child = os.fork()
        if child == 0:
            return become(json.loads(line))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
