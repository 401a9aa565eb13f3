"""Numbers on the pages are written as in the terminal; colours can be told apart; importing changes nothing."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodput_analytics import Category
from goodput_analytics.colours import CATEGORY_COLOURS
from goodput_collector import figures as terminal
from goodput_dashboard import figures, words

MATRICES = {
    "normal": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    # Machado, Oliveira and Fernandes 2009, at full severity, on linear RGB.
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}
APART = 15.0
"""A distance in CIELAB that nobody overlooks; 2.3 is just noticeable."""
NEIGHBOURS_APART = 0.09
"""A distance in OKLab for colours that touch; 0.02 is just noticeable."""
GROUNDS = ("#ffffff", "#0e1117", "#000000", "#1e1e1e")
"""What the colours stand on: Streamlit's light and dark pages, and terminals."""

gpu_s = st.floats(min_value=0, max_value=1e12, allow_nan=False)


@given(gpu_s, gpu_s)
def test_gpu_time_is_written_as_in_the_terminal(total: float, value: float) -> None:
    assert figures.unit_for(total).number(value) == terminal.GpuTime.for_total(total).number(value)
    assert figures.hours_for(total).number(value) == terminal.GpuTime.hours(total).number(value)


@given(st.floats(min_value=0, max_value=1))
def test_shares_are_written_as_in_the_terminal(ratio: float) -> None:
    assert figures.percent(ratio) == terminal.percent(ratio)


@given(st.one_of(st.none(), st.floats(min_value=0, max_value=1e9), st.integers(0, 10**7).map(float)))
def test_durations_are_written_as_in_the_terminal(seconds: float | None) -> None:
    assert figures.duration(seconds) == terminal.duration(seconds)


@given(st.integers(0, 4_000_000_000 * 10**9))
def test_moments_are_written_as_in_the_terminal(ns: int) -> None:
    assert figures.when(ns) == terminal.moment(ns)


@pytest.mark.parametrize("text", ["a *b* [c](d)", "<b>x</b>", "$x$ :red[y] `z`", "two\nlines"])
def test_text_of_others_does_nothing_in_markdown(text: str) -> None:
    escaped = figures.plain(text)
    bare = escaped.replace("\\", "")
    assert bare == " ".join(text.split("\n"))
    for mark in "*[]<>$:`":
        assert escaped.count("\\" + mark) == text.count(mark)


def linear_rgb(colour: str) -> list[float]:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]


def lab(colour: str, matrix: tuple[tuple[float, ...], ...]) -> tuple[float, float, float]:
    """What someone sees of a colour, in CIELAB."""
    linear = linear_rgb(colour)
    r, g, b = (min(max(sum(m * c for m, c in zip(row, linear, strict=True)), 0.0), 1.0) for row in matrix)
    xyz = (
        (0.4124564 * r + 0.3575761 * g + 0.1804375 * b) / 0.95047,
        0.2126729 * r + 0.7151522 * g + 0.0721750 * b,
        (0.0193339 * r + 0.1191920 * g + 0.9503041 * b) / 1.08883,
    )
    x, y, z = (v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in xyz)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("eyes", MATRICES)
def test_any_two_categories_can_be_told_apart(eyes: str) -> None:
    assert set(CATEGORY_COLOURS) == set(Category)
    seen = {name: lab(colour, MATRICES[eyes]) for name, colour in CATEGORY_COLOURS.items()}
    near = [
        (a, b)
        for a, b in itertools.combinations(seen, 2)
        if sum((p - q) ** 2 for p, q in zip(seen[a], seen[b], strict=True)) ** 0.5 < APART
    ]
    assert near == []


def oklab(colour: str, matrix: tuple[tuple[float, ...], ...]) -> tuple[float, float, float]:
    """What someone sees of a colour, in OKLab."""
    linear = linear_rgb(colour)
    r, g, b = (min(max(sum(m * c for m, c in zip(row, linear, strict=True)), 0.0), 1.0) for row in matrix)
    long = (0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b) ** (1 / 3)
    middle = (0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b) ** (1 / 3)
    short = (0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b) ** (1 / 3)
    return (
        0.2104542553 * long + 0.7936177850 * middle - 0.0040720468 * short,
        1.9779984951 * long - 2.4285922050 * middle + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * middle - 0.8086757660 * short,
    )


@pytest.mark.parametrize("eyes", MATRICES)
def test_neighbours_in_the_fixed_order_are_far_apart(eyes: str) -> None:
    assert list(CATEGORY_COLOURS) == list(Category)
    seen = {name: oklab(colour, MATRICES[eyes]) for name, colour in CATEGORY_COLOURS.items()}
    near = [(a, b) for a, b in itertools.pairwise(seen) if math.dist(seen[a], seen[b]) < NEIGHBOURS_APART]
    assert near == []


@pytest.mark.parametrize("ground", GROUNDS)
def test_every_category_stands_out_on_light_and_dark(ground: str) -> None:
    def luminance(colour: str) -> float:
        return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear_rgb(colour), strict=True))

    for name, colour in CATEGORY_COLOURS.items():
        darker, lighter = sorted((luminance(colour), luminance(ground)))
        assert (lighter + 0.05) / (darker + 0.05) >= 3.0, name


def test_each_category_has_its_definition() -> None:
    assert set(words.CATEGORIES) == {category.value for category in Category}


def test_importing_the_pictures_leaves_plotly_as_it_was() -> None:
    code = (
        "import sys; import plotly.io as pio; was = pio.templates.default; import goodput_dashboard.charts;"
        "import goodput_dashboard.commands, goodput_dashboard.html_report;"
        "assert pio.templates.default == was, pio.templates.default;"
        "assert 'streamlit' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
