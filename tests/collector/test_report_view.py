"""The terminal report: what it says, that it fits, and that it stays plain where it must."""

import io
import re
from dataclasses import replace

import made_reports as reports
import pytest
from rich.cells import cell_len
from rich.console import Console, RenderableType

from goodput_analytics.colours import CATEGORY_COLOURS
from goodput_analytics.model import Category, Report, RunState
from goodput_collector.report_view import (
    STATE_COLOURS,
    Bar,
    print_view,
    report_view,
    runs_view,
)

ALL = {"empty": reports.EMPTY, "small": reports.SMALL, "big": reports.BIG}


def drawn(view: RenderableType, width: int = 80, *, encoding: str = "utf-8") -> str:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding)
    print_view(view, Console(file=file, width=width, highlight=False, markup=False, emoji=False))
    file.flush()
    return raw.getvalue().decode(encoding)


def words(view: RenderableType, width: int = 80) -> str:
    """The text with its line breaks taken out, so that a test need not know where they fall."""
    return " ".join(drawn(view, width).split())


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("report", ALL.values(), ids=ALL)
def test_fits_the_width_and_stays_plain_when_piped(report: Report, width: int) -> None:
    for view in (report_view(report), runs_view(reports.RUNS)):
        text = drawn(view, width)
        assert max(cell_len(line) for line in text.splitlines()) <= width
        assert "\x1b" not in text
        assert not re.search(" $", text, re.MULTILINE)


def test_says_what_a_reader_looks_for_first() -> None:
    top = drawn(report_view(reports.SMALL)).splitlines()[:3]
    assert re.fullmatch(r"tiny  finished +as of 2026-01-01 00:02:00 UTC", top[0])
    assert top[1].split("   ") == ["goodput 70.0 %", "held 480.0 GPU-seconds", "lost 144.0", "at risk 0.0"]
    assert top[2] == "2 attempts, 1 incident, queue wait 0 s"


@pytest.mark.parametrize("state", ["running", "hung", "paused", "finished", "failed", "lost"])
def test_of_a_live_run_it_is_told_how_old_the_last_event_is(state: str) -> None:
    report = replace(reports.SMALL, state=RunState(state))
    asked_ns = report.as_of_ns + 723 * 10**9
    lines = drawn(report_view(report, asked_ns)).splitlines()
    told = "last event 12 min 3 s ago, when asked at 2026-01-01 00:14:03 UTC"
    assert (lines[1] == told) == (state in ("running", "hung", "paused"))
    assert "last event" not in drawn(report_view(report))
    assert "last event" not in drawn(report_view(report, report.as_of_ns - 1))  # a clock that is behind tells nothing


def test_each_category_has_its_line_with_share_and_phases_beneath() -> None:
    lines = [line.split() for line in drawn(report_view(reports.SMALL)).splitlines()[4:]]
    table = [(line[0], line[-4:]) for line in lines[:11]]
    assert table == [
        ("productive", ["336.0", "GPU-s", "70.0", "%"]),
        ("startup", ["60.5", "GPU-s", "12.6", "%"]),
        ("launch", ["30.0", "GPU-s", "6.2", "%"]),
        ("init", ["15.5", "GPU-s", "3.2", "%"]),
        ("restart", ["12.0", "GPU-s", "2.5", "%"]),
        ("warmup", ["3.0", "GPU-s", "0.6", "%"]),
        ("hang", ["40.0", "GPU-s", "8.3", "%"]),
        ("step", ["40.0", "GPU-s", "8.3", "%"]),
        ("checkpoint", ["24.0", "GPU-s", "5.0", "%"]),
        ("rework", ["19.5", "GPU-s", "4.1", "%"]),
        ("data_wait", ["<0.1", "GPU-s", "<0.1", "%"]),
    ]
    assert lines[11] == ["nothing", "in", "straggler,", "evaluation,", "unattributed,", "idle"]
    assert lines[12] == ["the", "longest", "bar", "is", "the", "largest", "category"]


def test_many_phases_are_cut_short_and_add_up() -> None:
    text = drawn(report_view(reports.BIG))
    phases = re.findall(r"^  (restart|init|launch|teardown|3 others) .* ([\d,]+) GPU-h", text, re.MULTILINE)
    assert [name for name, _ in phases] == ["restart", "init", "launch", "teardown", "3 others"]
    shown = sum(int(number.replace(",", "")) for _, number in phases)
    assert shown == pytest.approx(16_384 * (3 + 20 + 4.5 + 8 + 1 + 2 + 1.9), abs=3)


def test_incidents_have_their_price() -> None:
    text = drawn(report_view(reports.SMALL))
    assert "Incidents (1)\n" in text
    row = next(line for line in text.splitlines() if line.startswith("0  hang"))
    assert row.split() == ["0", "hang", "01-01", "01:00:00", "14.0", "s", "30", "40.0", "19.5", "42.0", "101.5"]
    assert "attempt 0: suspected rank 2\n" in text


def test_of_many_incidents_the_dearest_are_shown_in_order_of_time_and_the_rest_added_up() -> None:
    text = drawn(report_view(reports.BIG))
    attempts = [int(n) for n in re.findall(r"^ *(\d+)  (?:hang|crash|preempted|lost|rollback) ", text, re.MULTILINE)]
    assert len(attempts) == 12
    assert attempts == sorted(attempts)

    def price(attempt: int) -> float:
        incident = reports.BIG.incidents[attempt]
        return incident.hang_gpu_s + incident.rework_gpu_s + incident.restart_gpu_s

    left = [n for n in range(419) if n not in attempts]
    assert min(map(price, attempts)) >= max(map(price, left))
    assert f"and 407 cheaper incidents, {sum(map(price, left)) / 3600:,.0f} GPU-hours in all" in text


def test_slow_ranks_are_named_or_said_to_be_unnameable() -> None:
    named = words(report_view(reports.BIG))
    assert "rank 4711 on gpu-0588: cost 114,688 GPU-hours, the latest in 81,211 steps, 1.31 x the median rank" in named
    assert "rank 9 on an unknown node: cost 32,768 GPU-hours, the latest in 1 step, by an unknown factor" in named
    unnamed = replace(reports.SMALL, gpu_s=reports.gpu_s(productive=470.0, straggler=10.0))
    assert "No rank can be named" in words(report_view(unnamed))
    assert "Slow ranks" not in words(report_view(reports.SMALL))


def test_findings_say_what_why_and_what_next() -> None:
    text = words(report_view(reports.BIG))
    for number, finding in enumerate(reports.BIG.findings, start=1):
        assert f"{number}. {finding.says} {finding.evidence} Next: {finding.next}" in text


def test_checkpoints_in_words() -> None:
    assert (
        "648 saves and 3 that failed; each blocks 12.4 s, one every 2 h. Time between unplanned failures: 3 h 5 min. "
        "Advised: every 8 min 46 s (Young) or 8 min 37 s (Daly)." in words(report_view(reports.BIG))
    )
    apart = replace(reports.BIG, checkpoints=replace(reports.BIG.checkpoints, mean_interval_s=None))
    assert "each blocks 12.4 s, how far apart is not known. Time between" in words(report_view(apart))
    assert (
        "No save was reported. Time between unplanned failures: unknown. "
        "No interval can be advised: that takes a save and an unplanned failure." in words(report_view(reports.EMPTY))
    )


def test_quality_in_words() -> None:
    assert "14,404 events, none missing, doubled or rejected." in words(report_view(reports.SMALL))
    assert (
        "41,204,223,104 events; 91,002 duplicates dropped; 2 events came again with another content; "
        "15 lines rejected (torn 12, not JSON 3); 8 sequence numbers missing; 1 event dropped by the recorder; "
        "40 steps without an event; clocks apart by up to 1.84 s; 1 end before the start; ranks 8-15 never reported; "
        "1 source without a start left out; 4,096 GPU-hours assumed, not observed." in words(report_view(reports.BIG))
    )


def test_clocks_that_nearly_agree_are_no_news() -> None:
    almost = replace(reports.SMALL, quality=replace(reports.CLEAN, max_skew_s=0.002))
    assert "14,404 events, none missing, doubled or rejected." in words(report_view(almost))


def test_what_is_not_known_is_unknown_and_never_zero() -> None:
    text = drawn(report_view(reports.EMPTY))
    assert "goodput unknown" in text
    assert "at risk unknown" in text
    assert "queue wait unknown" in text
    assert "%" not in text
    listed = drawn(runs_view([reports.RUNS[2]])).splitlines()[1].split()
    assert listed == ["just-started", "running", "0.00", "unknown", "1", "2026-01-01", "00:00:00"]


def test_runs_are_listed_one_a_line() -> None:
    lines = drawn(runs_view(reports.RUNS[1:])).splitlines()
    assert lines[0].split("  ")[0] == "run"
    assert lines[1].split() == ["tiny", "finished", "0.13", "70.0", "%", "2", "2026-01-01", "00:02:00"]
    assert len(lines) == 3
    assert "goodput ingest" in drawn(runs_view([]))


def test_a_run_that_could_not_be_computed_is_listed_as_unknown() -> None:
    broken = replace(reports.RUNS[1], state=None, allocated_gpu_s=None, goodput_ratio=None)  # type: ignore[arg-type]
    lines = drawn(runs_view([broken, reports.RUNS[2]])).splitlines()
    assert lines[1].split()[:5] == ["tiny", "unknown", "unknown", "unknown", "2"]
    assert lines[2].startswith("just-started")


def test_a_very_long_name_loses_its_middle() -> None:
    run = "a" * 5000 + "-b"
    for view in (
        report_view(replace(reports.SMALL, run=run)),
        runs_view([replace(reports.RUNS[1], run=run), reports.RUNS[2]]),
    ):
        assert len(drawn(view)) < len(drawn(report_view(reports.SMALL))) + 200
        assert "..." in drawn(view)
        assert "a-b" in "".join(drawn(view).split())


def test_names_from_files_can_neither_style_nor_steer_the_terminal() -> None:
    text = drawn(report_view(replace(reports.SMALL, run="[red]x[/red]\x1b[2J:rocket:")))
    assert "[red]x[/red]\ufffd[2J:rocket:" in text


def test_a_terminal_without_blocks_gets_signs_it_can_show() -> None:
    text = drawn(report_view(reports.SMALL), encoding="ascii")
    assert re.search(r"^productive +#{20,} ", text, re.MULTILINE)
    assert re.search(r"^data_wait +# ", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("ratio", "bar"), [(0.0, "    "), (1e-9, "▏   "), (0.5, "██  "), (0.53125, "██▏ "), (1.0, "████"), (7.0, "████")]
)
def test_a_bar_is_as_long_as_its_share(ratio: float, bar: str) -> None:
    console = Console(file=io.StringIO(), width=4)
    assert "".join(segment.text for segment in console.render(Bar(ratio, "red"))).rstrip("\n") == bar


def test_colour_only_for_a_terminal_that_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def codes(**settings: bool) -> list[str]:
        file = io.StringIO()
        print_view(report_view(reports.SMALL), Console(file=file, color_system="truecolor", width=80, **settings))
        return re.findall(r"\x1b\[([\d;]*)m", file.getvalue())

    assert any("38;2" in code for code in codes(force_terminal=True))
    monkeypatch.setenv("NO_COLOR", "1")
    assert not any(re.search(r"(^|;)(3\d|4\d|9\d)", code) for code in codes(force_terminal=True))


def luminance(colour: str) -> float:
    """Relative luminance as the Web Content Accessibility Guidelines define it."""
    channels = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_every_category_and_state_has_a_colour_that_light_and_dark_terminals_show() -> None:
    assert list(CATEGORY_COLOURS) == [category.value for category in Category]
    assert set(STATE_COLOURS) == {state.value for state in RunState}
    assert len(set(CATEGORY_COLOURS.values())) == len(CATEGORY_COLOURS)
    for colour in CATEGORY_COLOURS.values():
        for background in ("#ffffff", "#000000", "#1e1e1e"):
            lighter, darker = sorted((luminance(colour), luminance(background)), reverse=True)
            assert (lighter + 0.05) / (darker + 0.05) >= 3.0
