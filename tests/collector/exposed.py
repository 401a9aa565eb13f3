"""A strict reader of exposition text, written apart from what writes it, and a board over a store for tests."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from goodput_collector.chunks import Chunk
from goodput_collector.metrics import MetricOptions
from goodput_collector.metrics_board import Board
from goodput_collector.reports import Reports
from goodput_collector.store import Store

Key = tuple[str, frozenset[tuple[str, str]]]
_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"(,|$)')
_PARTS = {
    "counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count"), "info": ("_info",),
}  # fmt: skip


def key(name: str, **labels: str) -> Key:
    return name, frozenset(labels.items())


def read(body: bytes, *, openmetrics: bool = False) -> tuple[dict[str, str], dict[Key, float]]:
    """The types by metric and the values by series. Fails on whatever the formats forbid."""
    text = body.decode()
    assert text.endswith("\n")
    lines = text.split("\n")[:-1]
    if openmetrics:
        assert lines.pop() == "# EOF"
    types: dict[str, str] = {}
    values: dict[Key, float] = {}
    open_family = ""
    for line in lines:
        if line.startswith("# "):
            _, word, name, rest = line.split(" ", 3)
            assert word in ("HELP", "TYPE", "UNIT") and (word != "UNIT" or openmetrics)
            if word == "HELP":
                assert name not in types, f"{name} comes twice"
                open_family = name
            assert name == open_family, "the samples of a metric must stand together"
            if word == "TYPE":
                types[name] = rest
            if word == "UNIT":
                assert name.endswith(f"_{rest}")
            continue
        found = _SAMPLE.fullmatch(line)
        assert found, line
        name, inside, value = found[1], found[2] or "", found[3]
        kind = types[open_family]
        suffixes = _PARTS[kind] if openmetrics or kind == "histogram" else ("",)
        assert name in {open_family + suffix for suffix in suffixes}, (name, open_family)
        labels: dict[str, str] = {}
        while inside:
            label = _LABEL.match(inside)
            assert label, inside
            assert label[1] not in labels
            labels[label[1]] = re.sub(r"\\(.)", lambda one: "\n" if one[1] == "n" else one[1], label[2])
            inside = inside[label.end() :]
        series = name, frozenset(labels.items())
        assert series not in values, f"{series} comes twice"
        values[series] = float(value)
    return types, values


def counters(types: dict[str, str], values: dict[Key, float]) -> dict[Key, float]:
    """The series that must never fall, the parts of histograms among them."""
    whole = {name for name, kind in types.items() if kind in ("counter", "histogram")}
    return {
        one: value for one, value in values.items()
        if one[0] in whole or re.sub(r"_(bucket|sum|count)$", "", one[0]) in whole
    }  # fmt: skip


@dataclass
class Writer:
    """A writer that has nothing to do."""

    trouble: str | None = None
    held_bytes: int = 0


class Watched:
    """A store with its board, under a clock that the test moves; it can be closed and opened again."""

    def __init__(self, folder: Path, clock_ns: Callable[[], int], options: MetricOptions | None = None) -> None:
        self.folder, self.clock_ns, self.options = folder, clock_ns, options or MetricOptions()
        self.offsets: dict[str, int] = {}
        self.open()

    def open(self) -> None:
        self.store = Store(self.folder / "c.duckdb", self.folder / "c.archive")
        self.reports = Reports(self.store, clock_ns=self.clock_ns, rest_ratio=0.0)
        self.board = Board(
            self.store, self.reports, Writer(), self.options, db=self.folder / "c.duckdb", clock_ns=self.clock_ns
        )

    def close(self) -> None:
        self.reports.let_go()
        self.store.close()

    def send(self, stream: str, data: bytes) -> None:
        (answer,) = self.store.take([Chunk(stream=stream, offset_bytes=self.offsets.get(stream, 0), data=data)])
        assert answer.fits
        self.offsets[stream] = answer.offset_bytes

    def scrape(self, *, openmetrics: bool = False) -> tuple[dict[str, str], dict[Key, float]]:
        # A report is kept for a second of real time, which a frozen clock cannot pass.
        self.reports._kept.clear()
        self.board.refresh()
        return read(self.board.page(openmetrics), openmetrics=openmetrics)
