"""A training that is broken on purpose, and the ledger held against what was done to it."""

from goodput_collector.demo.entry import run_demo
from goodput_collector.demo.options import DemoOptions, DemoUsageError, Fault

__all__ = ["DemoOptions", "DemoUsageError", "Fault", "run_demo"]
