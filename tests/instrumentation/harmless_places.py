"""Real disks for tests: small file systems that can be filled, frozen and taken away, and never outlive their test."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

TOOLS = ("mkfs.ext4", "mount", "umount", "fsfreeze")


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=30)


def mounting() -> None:
    """Skip, and say so, where file systems cannot be mounted."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if os.geteuid() != 0 or missing:
        pytest.skip(f"needs root and {', '.join(missing or TOOLS)} to mount a file system of its own")


@contextmanager
def _mounted(point: Path, *how: str) -> Iterator[Path]:
    point.mkdir()
    try:
        run("mount", *how, str(point))
    except subprocess.CalledProcessError as error:
        pytest.skip(f"nothing can be mounted here: {error.stderr.decode().strip()}")
    try:
        yield point
    finally:
        thaw(point)
        subprocess.run(["umount", str(point)], capture_output=True, timeout=60)
        # Whoever still holds a file there shall not keep the device of the next test.
        subprocess.run(["umount", "--lazy", str(point)], capture_output=True, timeout=60)


@contextmanager
def disk(point: Path, *, mib: int = 32) -> Iterator[Path]:
    """An ext4 file system in a file, on a loop device that goes with it."""
    mounting()
    image = point.with_name(f"{point.name}.image")
    with image.open("wb") as file:
        file.truncate(mib << 20)
    run("mkfs.ext4", "-q", "-F", "-I", "256", str(image))
    try:
        with _mounted(point, "-o", "loop", str(image)):
            yield point
    finally:
        image.unlink()


@contextmanager
def tmpfs(point: Path, *, kib: int) -> Iterator[Path]:
    """A tmpfs of that size."""
    mounting()
    with _mounted(point, "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs"):
        yield point


@contextmanager
def frozen(point: Path, limit_s: float) -> Iterator[None]:
    """The file system takes no writes inside; thawed after `limit_s` by a process of its own, should we die."""
    run("fsfreeze", "--freeze", str(point))
    guard = subprocess.Popen(["sh", "-c", f"sleep {limit_s}; exec fsfreeze --unfreeze '{point}'"], stderr=-3)
    try:
        yield
    finally:
        guard.kill()
        guard.wait()
        thaw(point)


def thaw(point: Path) -> None:
    subprocess.run(["fsfreeze", "--unfreeze", str(point)], capture_output=True, timeout=30)


def fill(directory: Path) -> Path:
    """Take all room that is left there."""
    path = directory / "everything"
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                pass
    return path


def wait_for(what: str, true: object, limit_s: float = 20) -> None:
    """Wait until a call gives something true."""
    assert callable(true)
    until = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < until, f"waited {limit_s} s for {what}"
        time.sleep(0.02)
