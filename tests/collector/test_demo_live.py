"""What the collector beside the demonstration says, and when."""

from dataclasses import replace
from pathlib import Path

import made_streams
import pytest

from goodput_analytics import Finding, Report, RunState, Settings
from goodput_collector.chunks import Chunk
from goodput_collector.demo.live import TELL_EVERY_S, Teller
from goodput_collector.store import Store
from goodput_collector.told import tell


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    folder: Path = tmp_path_factory.mktemp("live")
    store = Store(folder / "c.duckdb", folder / "c.archive")
    store.take([Chunk(stream=name, offset_bytes=0, data=data) for name, data in made_streams.streams().items()])
    con = store.cursor()
    found = tell(con, "by-hand", None, Settings()).report
    con.close()
    store.close()
    return found


def test_the_breakdown_is_told_now_and_then(report: Report) -> None:
    quiet = replace(report, incidents=())
    teller = Teller()
    assert len(teller.tell(quiet, 0.0)) == 1
    assert teller.tell(quiet, TELL_EVERY_S - 0.1) == []
    (line,) = teller.tell(quiet, TELL_EVERY_S)
    assert line.startswith("sees goodput ") and f"{report.allocated_gpu_s:.0f} GPU-seconds" in line
    assert "startup" in line and "productive" not in line


def test_a_hang_is_announced_once_while_it_hangs_and_again_when_it_comes_again(report: Report) -> None:
    said = Finding(code="hang", gpu_s=9.0, says="s", evidence="It hangs.", next="n")
    hung = replace(report, state=RunState.HUNG, incidents=(), findings=(said,))
    running = replace(hung, state=RunState.RUNNING, findings=())
    teller = Teller()
    assert teller.tell(hung, 0.0)[0] == "announces a hang: It hangs."
    assert teller.tell(hung, 1.0) == []
    assert teller.tell(running, 2.0) == []
    assert teller.tell(hung, 3.0)[0].startswith("announces a hang")


def test_an_end_is_told_when_it_is_seen(report: Report) -> None:
    teller = Teller()
    teller.tell(replace(report, incidents=()), 0.0)
    assert teller.tell(report, 1.0)[0] == "saw attempt 0 end: crash"
    assert teller.tell(report, 2.0) == []
