"""The examples run as they stand, and are recorded; each has its page in the documentation."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from adapter_truth import Told
from nursery import Nursery
from recorder_scripts import environment

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PAGES = ROOT / "docs" / "frameworks"
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as found:
        yield found


def run(name: str, folder: Path, spool: Path, nursery: Nursery, *arguments: str) -> Told:
    status, said = nursery.run(EXAMPLES / name, ["--dir", str(folder), *arguments], environment(spool))
    assert status == 0, said
    return Told(spool)


def steps_of(told: Told, name: str) -> list[int | None]:
    return [step for step, _, ok in told.spans(name) if ok]


def test_plain_loop(nursery: Nursery, spool: Path, tmp_path: Path) -> None:
    told = run("plain_loop.py", tmp_path, spool, nursery, "--steps=40")
    assert told.steps() == list(range(1, 41))
    assert steps_of(told, "checkpoint") == [20, 40]
    assert steps_of(told, "evaluation") == [16, 32, 40]
    told = run("plain_loop.py", tmp_path, spool, nursery, "--steps=45")
    assert told.steps()[40:] == [41, 42, 43, 44, 45]
    assert told.resumes() == [None, 40]
    assert told.stops() == [("finished", None), ("finished", None)]


def test_accelerate_loop(nursery: Nursery, spool: Path, tmp_path: Path) -> None:
    told = run("accelerate_loop.py", tmp_path, spool, nursery)
    assert told.steps() == list(range(1, 17))
    assert steps_of(told, "checkpoint") == [8, 16]
    assert told.stops() == [("finished", None)]


def test_lightning_trainer(nursery: Nursery, spool: Path, tmp_path: Path) -> None:
    told = run("lightning_trainer.py", tmp_path, spool, nursery)
    assert told.steps() == list(range(1, 21))
    assert steps_of(told, "checkpoint") == [8, 16]
    assert steps_of(told, "evaluation") == [0, 10, 20]
    assert told.stops() == [("finished", None)]


def test_huggingface_trainer(nursery: Nursery, spool: Path, tmp_path: Path) -> None:
    told = run("huggingface_trainer.py", tmp_path, spool, nursery)
    assert told.steps() == list(range(1, 13))
    assert steps_of(told, "checkpoint") == [6, 12]
    assert steps_of(told, "evaluation") == [6, 12]
    assert told.stops() == [("finished", None)]


def test_distributed_checkpoint(spool: Path, tmp_path: Path) -> None:
    command = [sys.executable, *TORCHRUN, str(EXAMPLES / "distributed_checkpoint.py"), "--dir", str(tmp_path)]
    done = subprocess.run(command, env=environment(spool), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    told = Told(spool)
    assert told.steps() == list(range(1, 31))
    assert set(steps_of(told, "checkpoint")) == {10, 20, 30}
    assert [(event["step"], event["ok"]) for event in told.of("durable")] == [(10, True), (20, True), (30, True)]
    assert told.stops() == [("finished", None)]


@pytest.mark.parametrize("page", sorted(PAGES.glob("[a-z]*.md")), ids=lambda page: page.name)
def test_every_page_has_an_example_that_is_there(page: Path) -> None:
    examples = re.findall(r"examples/(\w+\.py)", page.read_text())
    assert examples
    assert [name for name in examples if not (EXAMPLES / name).exists()] == []


def test_every_example_has_its_page() -> None:
    pages = "".join(page.read_text() for page in PAGES.glob("*.md"))
    assert [example.name for example in EXAMPLES.glob("*.py") if example.name not in pages] == []
