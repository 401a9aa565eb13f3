"""The metrics as a file for node_exporter's textfile collector, for sites that scrape nothing else."""

from __future__ import annotations

import http.client
import os
import ssl
from pathlib import Path
from urllib.parse import urlsplit

import duckdb

from goodput_analytics import AnalyticsError, Settings, runs
from goodput_collector import metrics
from goodput_collector.database import open_database
from goodput_collector.errors import CollectorUnreachableError
from goodput_collector.exposition import page
from goodput_collector.metrics import MetricOptions, counters, last_event_block, run_blocks, stays
from goodput_collector.metrics_marks import highest, read_marks
from goodput_collector.told import tell

_TIMEOUT_S = 30.0
_MOST_BYTES = 256 * 2**20


def text_of_collector(url: str, token: str | None) -> bytes:
    """What a collector's /metrics says. Raises ValueError for no URL, CollectorUnreachableError without an answer."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url!r} is not a collector's address, such as http://collector:9470")
    if parts.scheme == "https":
        connection = http.client.HTTPSConnection(
            parts.hostname, parts.port, timeout=_TIMEOUT_S, context=ssl.create_default_context()
        )
    else:
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=_TIMEOUT_S)  # type: ignore[assignment]
    try:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        connection.request("GET", f"{parts.path.rstrip('/')}/metrics", headers=headers)
        response = connection.getresponse()
        body: bytes = response.read(_MOST_BYTES)
    except (OSError, http.client.HTTPException) as error:
        raise CollectorUnreachableError(f"{url} does not answer ({error}); is the collector running?") from error
    finally:
        connection.close()
    if response.status == 401:
        raise CollectorUnreachableError(f"{url} wants a token: name its file with --token-file.")
    if response.status != 200 or not response.headers.get("Content-Type", "").startswith("text/plain"):
        raise CollectorUnreachableError(f"{url} does not answer as a collector does (status {response.status}).")
    return body


def text_of_database(db: Path, now_ns: int, options: MetricOptions) -> bytes:
    """The metrics of the runs in a database that no collector holds; windows end at `now_ns`.

    "Now" of a run is its last event, as in `goodput report`. Raises DatabaseError.
    """
    con = open_database(db, read_only=True)
    try:
        marks = read_marks(con)
        blocks: list[dict[str, str]] = []
        last_events: list[str] = []
        known = runs(con)
        for one in sorted(known, key=lambda run: (-run.last_event_ns, run.run)):
            if len(blocks) == options.most_runs:
                break
            try:
                told = tell(con, one.run, None, Settings(), now_ns)
            except (AnalyticsError, duckdb.Error):
                continue  # one run that cannot be computed must not hide the others; `goodput report` says why
            if stays(told, now_ns, options):
                counted = highest(marks.get(one.run), counters(told, told.figures))
                blocks.append(run_blocks(told, told.figures, counted, options.labels))
                last_events.append(last_event_block(one.run, told.summary.last_event_ns))
    finally:
        con.close()
    return page(
        [
            (family, last_events if family is metrics.LAST_EVENT else [own[family.name] for own in blocks])
            for family in metrics.RUN_FAMILIES
        ],
        openmetrics=False,
    )


def write_whole(path: Path, body: bytes) -> None:
    """Puts a file in the place of the one before, never half of it; everybody may read it. Raises OSError."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with partial.open("wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        partial.chmod(0o644)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
