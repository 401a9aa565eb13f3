"""How fast the dashboard is: first paint, interaction, memory and the largest message, for a long run and for many.

    python benchmarks/dashboard.py [--ranks 64] [--steps 1000000] [--runs 200] [--keep DIR] [--chromium PATH]

It needs playwright and a chromium. A collector serves the database, as in use, and has computed each report once before
the page is first asked for; what that takes is told apart. First paint is from asking for the address to the first
figure; an interaction is from a choice to the page at rest.
"""

from __future__ import annotations

import argparse
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import runs
from playwright.sync_api import Page, sync_playwright

from goodput_collector.client import HttpClient

GOODPUT = [sys.executable, "-m", "goodput.cli"]
MIB = 1 << 20
LAST_WORDS = {
    "Incidents": "What the GPUs did around it",
    "Checkpoints": "All saves",
    "Stragglers": "If the worst few ranks were like the rest",
}
"""What stands at the end of each page: once it is there, the page is whole."""
IDLE = "document.querySelectorAll('[data-testid=stApp][data-test-script-state=running]').length === 0"


def serve(path: str, *arguments: str) -> tuple[subprocess.Popen[bytes], str]:
    """A process of ours once it answers, and its address."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    process = subprocess.Popen([*GOODPUT, *arguments, "--listen", f"127.0.0.1:{port}"], stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    while True:
        try:
            urllib.request.urlopen(url + path, timeout=5).close()
            return process, url
        except OSError:
            if process.poll() is not None:
                raise SystemExit(f"{arguments[0]} did not start") from None
            time.sleep(0.1)


def peak_mib(pid: int) -> float:
    """The most memory that a process and its children ever held."""
    total = 0.0
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            total += int(line.split()[1]) / 1024
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return total + sum(peak_mib(int(child)) for child in children)


def many(file: Path, count: int) -> None:
    """Small runs, each landed by itself."""
    import duckdb

    runs.write(file, runs.Shape(ranks=8, steps=8 * 500, restarts=1, span_every=100))
    con = duckdb.connect(str(file))
    con.execute("CREATE TEMP TABLE first_sources AS FROM sources")
    tables = [name for (name,) in con.execute("SELECT table_name FROM duckdb_tables() WHERE NOT temporary").fetchall()]
    copied = [name for name in tables if name.startswith("ev_") and name != "ev_allocation"]
    most = con.execute("SELECT max(source_id) + 1 FROM sources").fetchall()[0][0]
    for name in copied:
        con.execute(f"CREATE TEMP TABLE first_{name} AS FROM {name}")
    for number in range(1, count):
        shift = number * most
        con.execute("INSERT INTO runs SELECT 1000 + ?, 'run-' || ?", [number, number])
        con.execute("INSERT INTO sources SELECT source_id + ?, source || '-' || ? FROM first_sources", [shift, number])
        for name in copied:
            con.execute(
                f"INSERT INTO {name} SELECT * REPLACE (1000 + {number} AS run_id, source_id + {shift} AS source_id) "
                f"FROM first_{name}"
            )
    con.close()


def timed(page: Page, act: Any, wait_for: str) -> float:
    begun = time.perf_counter()
    act()
    page.locator(wait_for).first.wait_for(timeout=180_000)
    page.wait_for_function(IDLE, timeout=180_000)
    return time.perf_counter() - begun


def measure(page: Page, db: Path, run: str | None) -> dict[str, float]:
    """The figures for one database; `run` is the run to look at, or None for the fleet."""
    found: dict[str, float] = {}
    collector, url = serve("/healthz", "collect", "--no-spool", "--db", str(db), "--archive", f"{db}.archive")
    dashboard, address = serve("/_stcore/health", "dashboard", "--url", url)
    largest = [0]
    page.on("websocket", lambda ws: ws.on("framereceived", lambda data: _note(largest, data)))
    try:
        client = HttpClient(url, timeout_s=600)
        begun = time.perf_counter()
        if run is not None:
            client.report(run)
        else:
            client.runs(1000)
        found["report, s"] = time.perf_counter() - begun
        page.goto(f"{address}/quality")  # the server's own modules are loaded once
        page.wait_for_timeout(3000)
        metric, chart = "[data-testid=stMetric]", ".st-key-timeline .js-plotly-plot .main-svg"
        if run is not None:
            link = page.locator("[data-testid=stSidebar]").get_by_role
            found["first figure, s"] = timed(page, lambda: page.goto(f"{address}/run?run={run}"), metric)
            found["with the timeline, s"] = found["first figure, s"] + timed(page, lambda: None, chart)
            found["the page again, s"] = timed(page, lambda: page.goto(f"{address}/run?run={run}"), metric)
            found["the other clock, s"] = timed(page, lambda: page.get_by_text("local", exact=True).click(), metric)
            for name, last in LAST_WORDS.items():
                click = link("link", name=name, exact=True).click
                found[f"to {name}, s"] = timed(page, click, f"text={last}")
        else:
            found["first figure, s"] = timed(page, lambda: page.goto(address), metric)
            begun = time.perf_counter()
            page.get_by_text("still being read").wait_for(state="detached", timeout=300_000)
            found["until all runs are there, s"] = time.perf_counter() - begun
            found["the page again, s"] = timed(page, lambda: page.goto(address), metric)
            found["a filter by the address, s"] = timed(page, lambda: page.goto(f"{address}/?name=run-1"), metric)
        found["largest message, MiB"] = largest[0] / MIB
        found["memory of the server, MiB"] = peak_mib(dashboard.pid)
        heap = page.evaluate("performance.memory ? performance.memory.usedJSHeapSize : 0")
        found["memory of the page, MiB"] = heap / MIB
    finally:
        dashboard.terminate()
        dashboard.wait()
        collector.terminate()
        collector.wait()
    return found


def _note(largest: list[int], data: bytes | str) -> None:
    largest[0] = max(largest[0], len(data))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--keep", type=Path, help="a folder for the databases, to use them again")
    parser.add_argument("--only", choices=("long", "many"))
    parser.add_argument("--chromium", default=shutil.which("chromium") or shutil.which("google-chrome"))
    options = parser.parse_args()
    if not options.chromium:
        raise SystemExit("there is no chromium here: apt-get install chromium, or name one with --chromium")
    with tempfile.TemporaryDirectory() as temporary, sync_playwright() as play:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        browser = play.chromium.launch(executable_path=options.chromium, args=["--no-sandbox"])
        for kind in ("many", "long"):
            if options.only not in (None, kind):
                continue
            size = f"{options.runs} runs" if kind == "many" else f"{options.steps:,} steps × {options.ranks} ranks"
            db = folder / f"{kind}-{options.runs if kind == 'many' else options.steps}.duckdb"
            if not db.exists():
                if kind == "many":
                    many(db, options.runs)
                else:
                    shape = runs.Shape(
                        ranks=options.ranks, steps=options.steps, restarts=20, rollbacks=3, span_every=500
                    )
                    runs.write(db, shape)
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            told = measure(page, db, runs.RUN if kind == "long" else None)
            page.close()
            print(f"\n| {size} | |\n|:---|---:|")
            for name, value in told.items():
                print(f"| {name} | {value:,.2f} |")
        browser.close()


if __name__ == "__main__":
    main()
