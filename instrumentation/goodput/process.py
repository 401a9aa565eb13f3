"""What the operating system knows about this process."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from goodput.clock import ahead_ns

LIFE_VARIABLE = "_GOODPUT_LIFE"
"""The process that records, as `life` has it; for itself, should it become another program."""


def process_start_ns(now_ns: Callable[[], int]) -> int:
    """When this process was started, in ns since the epoch by the clock `now_ns`.

    From `/proc/self/stat` (field 22, `starttime`, clock ticks since boot; man 5 proc) and the boot-time clock, so
    it needs no boot date, whose whole seconds would cost up to a second. Accurate to one clock tick (10 ms on
    Linux), always rounded to the earlier side; never later than now, which is also the answer where the system
    does not tell.
    """
    try:
        stat = Path("/proc/self/stat").read_text(encoding="ascii", errors="replace")
        ticks = int(stat.rpartition(")")[2].split()[19])
        since_boot_ns = ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
        booted_ns = ahead_ns(now_ns, lambda: time.clock_gettime_ns(time.CLOCK_BOOTTIME))
    except (OSError, ValueError, IndexError, AttributeError):
        return now_ns()
    return min(booted_ns + since_boot_ns, now_ns())


def life(variables: Mapping[str, str]) -> tuple[str, bool]:
    """This process as `PID.TICKS`, and whether it has recorded before it became another program (`exec`).

    The kernel goes on counting such a process from its first start; what knows better is `LIFE_VARIABLE`, which the
    recorder leaves in the environment: after an exec it names this very process, in a child another one.
    """
    try:
        stat = Path("/proc/self/stat").read_text(encoding="ascii", errors="replace")
        own = f"{os.getpid()}.{stat.rpartition(')')[2].split()[19]}"
    except (OSError, IndexError):
        return "", False
    return own, variables.get(LIFE_VARIABLE) == own


def boot_id() -> str | None:
    """Tells one boot of this kernel from the next; None where the system does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip() or None
    except (OSError, ValueError):
        return None


def device_kind(variables: Mapping[str, str]) -> str:
    """`cuda` when torch is already imported, was built for it and the driver's device is there, else `cpu`.

    It asks neither torch nor the driver: the question itself would initialize CUDA, and a process that has done
    so cannot fork its DataLoader workers safely.
    """
    version = getattr(sys.modules.get("torch"), "version", None)
    built = getattr(version, "cuda", None) or getattr(version, "hip", None)
    present = Path("/dev/nvidiactl").exists() or Path("/dev/kfd").exists()
    hidden = variables.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    return "cuda" if built and present and not hidden else "cpu"
