"""A real browser over a dashboard: pages, links, zoom, refresh, and a collector that goes away and comes back."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

import made_runs

playwright_sync = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: pip install playwright, to test in a browser"
)
CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
pytestmark = [
    pytest.mark.skipif(
        CHROMIUM is None, reason="there is no chromium here: apt-get install chromium, to test in a browser"
    ),
    pytest.mark.timeout(175),
]
GOODPUT = [sys.executable, "-m", "goodput.cli"]
PROBES = ("_stcore/host-config", "_stcore/health")
"""Streamlit's page asks for these under its own path first, and elsewhere when they are not there."""
WAIT_MS = 25_000


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Served:
    """A process of ours that listens, and that can be ended and started again at its port."""

    def __init__(self, path: str, *arguments: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._path, self._arguments = path, arguments
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Served:
        command = [*GOODPUT, *self._arguments, "--listen", f"127.0.0.1:{self.port}"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(self.url + self._path, timeout=5).close()
                return self
            except (urllib.error.URLError, OSError):
                assert self.process.poll() is None and time.monotonic() < deadline, command
                time.sleep(0.1)

    def __exit__(self, *_: object) -> None:
        assert self.process is not None
        self.process.terminate()
        self.process.wait(timeout=30)


class Events:
    """A run's events on their way to a collector, a part at a time."""

    def __init__(self, made: made_runs.Made) -> None:
        self.made = made
        self._sent: dict[str, int] = {}
        self._taken = 0

    def send(self, url: str) -> None:
        by_source: dict[str, str] = {}
        for event in self.made.events[self._taken :]:
            source = str(event["source"])
            by_source[source] = by_source.get(source, "") + "".join(made_runs.lines([event]))
        self._taken = len(self.made.events)
        for source, text in by_source.items():
            offset = self._sent.get(source, 0)
            request = urllib.request.Request(
                f"{url}/v1/streams/{source}?offset={offset}", data=text.encode(), method="POST"
            )
            urllib.request.urlopen(request, timeout=30).close()
            self._sent[source] = offset + len(text.encode())


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[Served]:
    with Served(
        "/healthz", "collect", "--no-spool", "--db", str(tmp_path / "c.duckdb"), "--archive", str(tmp_path / "archive")
    ) as one:
        yield one


@pytest.fixture
def page() -> Iterator[playwright_sync.Page]:
    with playwright_sync.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"])
        page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="dark")
        page.set_default_timeout(WAIT_MS)
        yield page
        browser.close()


def watch(page: playwright_sync.Page) -> list[str]:
    """What goes wrong in the page, and what it asks for elsewhere, from now on."""
    seen: list[str] = []

    def console(message: playwright_sync.ConsoleMessage) -> None:
        where = str((message.location or {}).get("url", ""))
        if message.type == "error" and not where.endswith(PROBES):
            seen.append(f"{message.text} {where}")

    page.on("console", console)
    page.on("pageerror", lambda error: seen.append(str(error)))
    page.on(
        "request",
        lambda request: (
            None
            if request.url.startswith(("http://127.0.0.1:", "ws://127.0.0.1:", "data:", "blob:"))
            else seen.append(f"asks elsewhere: {request.url}")
        ),
    )
    return seen


def metric(page: playwright_sync.Page, label: str) -> str:
    box = page.locator("[data-testid=stMetric]", has_text=label).first
    return box.locator("[data-testid=stMetricValue]").inner_text()


def look_closer(page: playwright_sync.Page, key: str, begin: float, end: float) -> None:
    """Drags over a part of a chart's width, given in ratios of it, until that stretch is shown. Once more where the
    chart of a live run was drawn anew under the pointer."""
    for _ in range(3):
        chart = page.locator(f".st-key-{key} .nsewdrag").first
        chart.wait_for()
        page.wait_for_timeout(500)
        chart.scroll_into_view_if_needed()
        box = chart.bounding_box()
        if box is None:
            continue
        middle = box["y"] + box["height"] / 2
        page.mouse.move(box["x"] + box["width"] * begin, middle)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * end, middle, steps=8)
        page.mouse.up()
        try:
            page.get_by_text("Shown: ").wait_for(timeout=WAIT_MS / 3)
        except playwright_sync.TimeoutError:
            continue
        page.wait_for_url("**from=*")
        return
    raise AssertionError(f"nothing was chosen in {key}")


def test_pages_of_a_file_in_a_browser(tmp_path: Path, page: playwright_sync.Page) -> None:
    """The short form: some pages, a change of page by its link, and nothing that goes wrong."""
    db = made_runs.database(tmp_path, made_runs.stormy())
    with Served("/_stcore/health", "dashboard", "--db", str(db)) as server:
        wrong = watch(page)
        page.goto(f"{server.url}/run?run=stormy")
        page.get_by_text("From held to productive").wait_for()
        page.locator(".st-key-timeline .nsewdrag").first.wait_for()
        page.locator("[data-testid=stSidebar]").get_by_role("link", name="Incidents", exact=True).click()
        page.get_by_text("Crash of attempt 0").first.wait_for()
        assert "run=stormy" in page.url
        assert wrong == []


@pytest.mark.soak
def test_the_dashboard_in_a_browser(collector: Served, page: playwright_sync.Page) -> None:
    stormy, live = Events(made_runs.stormy()), Events(made_runs.live())
    stormy.send(collector.url)
    live.send(collector.url)
    with Served("/_stcore/health", "dashboard", "--url", collector.url) as server:
        wrong = watch(page)
        page.goto(server.url)
        page.get_by_text("Lost to what").wait_for()
        assert page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
        background = page.evaluate("getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor")
        assert max(map(int, background[4:-1].split(","))) < 60, background

        # A link opens a run's page; every page of the run is reached from there.
        page.goto(f"{server.url}/run?run=stormy")
        page.get_by_text("From held to productive").wait_for()
        for link, heading in (
            ("Incidents", "Crash of attempt 0"),
            ("Stragglers", "Rank by rank over time"),
            ("Checkpoints", "How often to save"),
            ("Data quality", "events taken"),
            ("Run", "From held to productive"),
        ):
            page.locator("[data-testid=stSidebar]").get_by_role("link", name=link, exact=True).click()
            if link == "Data quality":
                page.locator("[data-testid=stDataFrame]").first.wait_for()
            else:
                page.get_by_text(heading).first.wait_for()
            assert "run=stormy" in page.url, link

        # Dragging over the timeline looks closer, and the address keeps it.
        look_closer(page, "timeline", 0.3, 0.6)
        address = page.url
        page.goto(address)
        page.get_by_text("Shown: ").wait_for()
        page.get_by_role("button", name="Whole run").click()
        page.get_by_text("Shown: ").wait_for(state="detached")

        # Another run, by the choice at the side.
        page.locator("[data-testid=stSidebar] [data-testid=stSelectbox]").click()
        page.get_by_role("option", name="live-one").click()
        page.get_by_role("heading", name="live-one").wait_for()
        page.wait_for_url("**run=live-one*")

        # It refreshes by itself while events come in, and the stretch that was chosen stays.
        held = metric(page, "Held")
        look_closer(page, "over_time", 0.4, 0.8)
        address = page.url
        shown = page.get_by_text("Shown: ").inner_text()
        live.made.steps(51, 90)
        live.send(collector.url)
        page.wait_for_function(
            "was => ![...document.querySelectorAll('[data-testid=stMetric]')].some(e => e.innerText.includes('Held') "
            "&& e.innerText.includes(was))",
            arg=held,
        )
        assert float(metric(page, "Held").replace(",", "")) > float(held.replace(",", ""))
        page.wait_for_timeout(2000)
        assert page.get_by_text("Shown: ").inner_text() == shown and page.url == address

        # The collector goes away: the figures stay, with a note; and comes back.
        assert wrong == []
        held = metric(page, "Held")
        collector.__exit__()
        page.get_by_text("does not answer").first.wait_for()
        assert metric(page, "Held") == held
        collector.__enter__()
        page.get_by_text("does not answer").first.wait_for(state="detached")
        assert metric(page, "Held") == held
        assert wrong == []

        # On a telephone nothing sticks out at the side.
        page.set_viewport_size({"width": 390, "height": 844})
        for path in ("run?run=stormy", "incidents?run=stormy", "stragglers?run=stormy", ""):
            page.goto(f"{server.url}/{path}")
            page.locator("[data-testid=stMetric]").first.wait_for()
            page.wait_for_timeout(500)
            width = page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth")
            assert width <= 390, path
        assert wrong == []
