"""Answers are shared, kept bounded, and outlive the collector that gave them; a file is let go."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

import made_runs
from goodput_analytics import Report, UnknownRun
from goodput_collector.client import FileClient, GoodputCollectorError
from goodput_collector.database import open_database
from goodput_dashboard import source as module
from goodput_dashboard.shelf import Shelf
from goodput_dashboard.source import Source


def test_a_question_asked_by_many_at_once_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    db = made_runs.database(tmp_path, made_runs.partial())
    asked: list[str] = []
    report = FileClient.report

    def counted(self: FileClient, run: str) -> Report:
        asked.append(run)
        time.sleep(0.05)
        return report(self, run)

    monkeypatch.setattr(FileClient, "report", counted)
    source = Source(str(db))
    threads = [threading.Thread(target=source.report, args=("partial",)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert asked == ["partial"]
    source.close()


def test_a_file_is_read_again_when_it_changed(tmp_path: Path) -> None:
    db = made_runs.database(tmp_path, made_runs.partial())
    source = Source(str(db))
    assert source.names().known() == ["partial"]
    source.close()
    made_runs.database(tmp_path, made_runs.stormy())
    assert source.names().known() == ["stormy", "partial"]
    source.close()


def test_an_idle_file_is_let_go_for_a_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE_S", 0.1)
    db = made_runs.database(tmp_path, made_runs.partial())
    source = Source(str(db))
    source.report("partial")
    deadline = time.monotonic() + 10
    while source._client is not None and time.monotonic() < deadline:
        time.sleep(0.02)
    open_database(db).close()  # a writer can have it


def test_what_is_missing_is_said_in_a_sentence(tmp_path: Path) -> None:
    heard = Source(str(tmp_path / "none.duckdb")).names()
    assert heard.value is None and heard.trouble is not None and "no database" in heard.trouble
    away = Source("http://127.0.0.1:9").report("x")
    assert away.value is None and away.trouble is not None and "goodput collect" in away.trouble


def test_an_unknown_run_is_named(tmp_path: Path) -> None:
    source = Source(str(made_runs.database(tmp_path, made_runs.partial())))
    with pytest.raises(UnknownRun):
        source.report("nobody")
    source.close()


class Away:
    """A collector that answers until it goes away."""

    def __init__(self) -> None:
        self.here = True
        self.asked = 0

    def runs(self, limit: int) -> list[Any]:
        self.asked += 1
        if not self.here:
            raise GoodputCollectorError("The collector does not answer.")
        return []


def test_the_last_answer_stands_while_the_collector_is_away() -> None:
    now = [100.0]
    source = Source("http://127.0.0.1:9", clock_s=lambda: now[0])
    client = Away()
    source._client = client  # type: ignore[assignment]
    assert source.runs(5).trouble is None
    now[0] += module.FRESH_S / 2
    source.runs(5)
    assert client.asked == 1  # still fresh
    client.here = False
    now[0] += module.FRESH_S
    heard = source.runs(5)
    assert (heard.value, heard.at_s, heard.trouble) == ([], 100.0, "The collector does not answer.")
    client.here = True
    heard = source.runs(5)
    assert (heard.at_s, heard.trouble) == (now[0], None)


def test_what_is_kept_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HELD", 3)
    source = Source(str(made_runs.database(tmp_path, made_runs.partial())))
    for most in range(1, 8):
        source.rows("view_timeline", "partial", most=most)
    assert len(source._kept) == 3 and len(source._asking) == 3
    assert source._bytes == sum(kept[3] for kept in source._kept.values())
    source.close()


def test_the_shelf_gathers_all_runs_with_their_labels_and_nodes(tmp_path: Path) -> None:
    source = Source(str(made_runs.database(tmp_path, made_runs.stormy(), made_runs.live())))
    seen = Shelf(source).look(wait_s=30)
    assert seen.missing == 0 and seen.trouble is None
    by_run = {entry.report.run: entry for entry in seen.entries}
    assert set(by_run) == {"stormy", "live-one"}
    stormy = by_run["stormy"]
    assert (stormy.labels, stormy.nodes) == ({"team": "nlp"}, ("node0", "node1"))
    assert len(stormy.goodput) > 10 and 0 < max(ratio or 0 for ratio in stormy.goodput) <= 1
    source.close()
