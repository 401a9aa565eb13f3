"""The way in: loads what the demonstration needs only when it is played.

The training processes import this package too, for what they are asked to do to themselves, and must not wait for a
database and a terminal library that they never use.
"""

from __future__ import annotations

import importlib.util
import sys

from goodput_collector.demo.options import DemoOptions

FAILED = 1


def run_demo(options: DemoOptions) -> int:
    """Runs the demonstration; returns the exit code: 0 if every figure of the ledger is as it should be.

    1 if one is not, if the training failed or if torch is missing; 2 for a folder that cannot be used; 130 and 143
    when interrupted by SIGINT and SIGTERM.
    """
    if importlib.util.find_spec("torch") is None:
        print("goodput demo trains a real model: pip install 'goodput-ledger[collector,torch]'", file=sys.stderr)
        return FAILED
    from goodput_collector.demo.run import play

    return play(options)
