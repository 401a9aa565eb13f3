"""Every error that the recorder swallows in a test is raised at the test's end, unless the test took note of it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from goodput import guard
from goodput.environment import read_environment


@pytest.fixture(autouse=True)
def swallowed() -> Iterator[list[str]]:
    """The reasons of swallowed errors; a test that expects some looks at them and clears the list."""
    reasons: list[str] = []
    errors: list[BaseException | None] = []

    def observe(reason: str, error: BaseException | None) -> None:
        reasons.append(reason)
        errors.append(error)

    guard.observers.append(observe)
    yield reasons
    guard.observers.remove(observe)
    if reasons:
        raise AssertionError(f"the recorder swallowed: {reasons}") from errors[0]


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No launcher's variables, and a spool of the test's own."""
    for name in read_environment().variables:
        if name.startswith(("GOODPUT_", "SLURM", "TORCHELASTIC_")) or name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("GOODPUT_SPOOL", str(tmp_path / "spool"))
    monkeypatch.setenv("GOODPUT_SUMMARY", "0")
    logging.getLogger("goodput").setLevel(logging.ERROR)


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    return tmp_path / "spool"
