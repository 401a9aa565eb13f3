"""The report to mail: whole, by itself, and safe whatever a run is called."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import made_runs
from goodput_analytics import report
from goodput_collector.database import open_database
from goodput_collector.figures import GpuTime, percent

GOODPUT = [sys.executable, "-m", "goodput.cli"]


class Page(HTMLParser):
    """The tags that a page opens, what they refer to, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attributes if name in ("src", "href", "srcset")]

    def handle_data(self, data: str) -> None:
        self.text += data


def written(tmp_path: Path, made: made_runs.Made) -> str:
    db = made_runs.database(tmp_path, made)
    file = tmp_path / "report.html"
    command = [*GOODPUT, "report", made.name, "--db", str(db), "--html", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return file.read_text()


def test_it_holds_the_figures_and_loads_nothing(tmp_path: Path) -> None:
    text = written(tmp_path, made_runs.stormy())
    page = Page(text)
    con = open_database(tmp_path / "made.duckdb", read_only=True)
    one = report(con, "stormy")
    con.close()
    unit = GpuTime.for_total(one.allocated_gpu_s)
    assert percent(one.goodput_ratio) in page.text and unit.number(one.allocated_gpu_s) in page.text
    for category, gpu_s in one.gpu_s.items():
        if gpu_s > 0:
            assert f"{category}{unit.number(gpu_s)}" in re.sub(r"\s+", "", page.text).replace("GPU-s", "")
    for finding in one.findings:
        assert finding.says in page.text and finding.next in page.text
    assert "script" not in page.tags and page.links == [] and "svg" in page.tags
    assert "http" not in text and "url(" not in text
    assert len(text) < 200_000


def test_a_name_is_no_markup(tmp_path: Path) -> None:
    page = Page(written(tmp_path, made_runs.Made("<script>alert(1)</script>").start().steps(1, 3).stop("finished")))
    assert "script" not in page.tags and "<script>alert(1)</script>" in page.text


def test_it_wants_a_run(tmp_path: Path) -> None:
    done = subprocess.run([*GOODPUT, "report", "--html", "x.html"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2 and "name the RUN" in done.stderr
