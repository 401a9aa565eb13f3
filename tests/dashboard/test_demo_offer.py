"""The demonstration ends by offering the dashboard on what it measured."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from goodput_collector.demo.run import _verdict


def test_the_command_for_the_browser_is_there_to_type(tmp_path: Path) -> None:
    said = io.StringIO()
    db = tmp_path / "goodput.duckdb"
    assert _verdict(Console(file=said, width=200), [], db, tmp_path) == 0
    line = next(one for one in said.getvalue().splitlines() if one.startswith("In a browser:"))
    assert line.endswith(f"dashboard --db {db}")
