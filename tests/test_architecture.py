"""docs/ARCHITECTURE.md shows real values: what stands there is made again here, and must be the same.

`python tests/test_architecture.py` writes the page and its event files anew.
"""

import json
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from rich.console import Console

import goodput_analytics
from goodput.events import Kind, StopReason, format_event, format_step, naming_prefix
from goodput_collector.database import open_database
from goodput_collector.landing import ingest_files
from goodput_collector.report_view import print_view, report_view

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "ARCHITECTURE.md"
FILES = DOCS / "checkpoint_stall"

RUN = "stalled-save"
S = 1_000_000_000
T0_NS = 1_767_225_600 * S  # 2026-01-01 00:00:00 UTC
SAVES_S = {2: (1, 1), 4: (1, 12)}  # after which step, and how long on rank 0 and rank 1


def spool_lines(rank: int) -> list[bytes]:
    """What the recorder of one rank writes, by its own functions, under a clock that is ours."""
    lines: list[bytes] = []

    def tell(kind: Kind, at_s: float, **fields: Any) -> None:
        lines.append(format_event(kind, len(lines), T0_NS + round(at_s * S), fields))

    identity = {"rank": rank, "world_size": 2, "attempt_token": "7c1e"}
    tell(
        Kind.START, 2, v=1, job="slurm:4242.0", restart_count=0, local_rank=rank, node="gpu-01", pid=4200 + rank,
        devices=1, device_kind="cuda", process_start_ns=T0_NS, **identity,
    )  # fmt: skip
    tell(Kind.RESUME, 4, step=None)
    free_s, job_s = 4, 4  # when this rank, and when the whole job, is ready for the next step
    for step in range(1, 7):
        start_s, job_s = free_s, job_s + 1
        lines.append(
            format_step(len(lines), step, T0_NS + start_s * S, T0_NS + job_s * S, -1, -1, 1, 0.5, float("nan"))
        )
        free_s = job_s
        if step in SAVES_S:
            saved = list(SAVES_S).index(step)
            tell(Kind.BEGIN, free_s, span="checkpoint", id=str(saved), step=step)
            free_s += SAVES_S[step][rank]
            tell(Kind.END, free_s, span="checkpoint", id=str(saved), step=step)
            job_s += max(SAVES_S[step])
    tell(Kind.STOP, job_s, reason=StopReason.FINISHED.value)
    return [naming_prefix(RUN, f"gpu-01-rank-{rank}") + lines[0][1:], *lines[1:]]


def table(connection: duckdb.DuckDBPyConnection, query: str) -> str:
    """The rows of a query as a Markdown table."""
    result = connection.execute(query)
    head = [column[0] for column in result.description]
    rows = [["" if value is None else str(value) for value in row] for row in result.fetchall()]
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])


def fenced(text: str, language: str = "") -> str:
    return f"```{language}\n{text.rstrip()}\n```"


def blocks(files: list[Path], folder: Path) -> Iterator[tuple[str, str]]:
    """Every part of the page that is made, by its name."""
    texts = [file.read_text() for file in files]
    yield "spool", fenced(texts[1], "json")
    yield "other_rank", fenced("\n".join(x for x in texts[0].splitlines() if '"end"' in x), "json")
    db = folder / "run.duckdb"
    ingest_files(db, files)
    connection = open_database(db, read_only=True)
    yield (
        "landed",
        table(
            connection,
            """SELECT source, 'ev_' || kind AS "table", seq, ts_ns, step, ok FROM (
            SELECT 'begin' AS kind, source_id, seq, ts_ns, step, NULL AS ok FROM ev_begin
            UNION ALL SELECT 'end', source_id, seq, ts_ns, step, ok FROM ev_end) JOIN sources USING (source_id)
            WHERE step = 4 ORDER BY source, seq""",
        ),
    )
    report = goodput_analytics.report(connection, RUN)

    def seconds(column: str, name: str) -> str:
        return f"printf('%.1f', ({column} - {T0_NS}) / 1e9) AS {name}"

    yield (
        "spans",
        table(
            connection,
            f"""SELECT source, name, gp_spans.step, {seconds("begin_ns", "begin_s")}, {seconds("end_ns", "end_s")}
            FROM gp_spans JOIN sources USING (source_id) ORDER BY begin_ns, source""",
        ),
    )
    yield (
        "windows",
        table(
            connection,
            f"""SELECT step, {seconds("begin_ns", "begin_s")}, {seconds("end_ns", "end_s")},
            printf('%.1f', (end_ns - begin_ns - net_ns) / 1e9) AS declared_s,
            printf('%.1f', productive_ns / 1e9) AS productive_s,
            printf('%.1f', (net_ns - productive_ns) / 1e9) AS other_s
            FROM gp_window_parts ORDER BY step""",
        ),
    )
    yield (
        "ledger",
        table(
            connection,
            f"""SELECT attempt, category, phase, {seconds("start_ns", "start_s")}, {seconds("end_ns", "end_s")}, gpus,
            step FROM ledger_intervals ORDER BY ledger_intervals.start_ns""",
        ),
    )
    yield (
        "balance",
        table(
            connection,
            """SELECT category, format('{:,}', gpu_ns) AS gpu_ns FROM (
            SELECT category, sum((end_ns - start_ns) * gpus)::BIGINT AS gpu_ns FROM ledger_intervals GROUP BY category
            UNION ALL SELECT 'held', sum((end_ns - start_ns) * gpus)::BIGINT FROM ledger_intervals
            ) AS entries ORDER BY entries.gpu_ns""",
        ),
    )
    connection.close()
    with (folder / "report.txt").open("w") as file:
        print_view(report_view(report), Console(file=file, width=80, highlight=False))
    yield "report", fenced("\n".join(x.rstrip() for x in (folder / "report.txt").read_text().splitlines()), "text")


def page_with(made: dict[str, str], page: str) -> str:
    def fill(match: re.Match[str]) -> str:
        return f"<!-- made: {match[1]} -->\n{made.pop(match[1])}\n<!-- end -->"

    filled = re.sub(r"<!-- made: (\w+) -->\n.*?<!-- end -->", fill, page, flags=re.DOTALL)
    assert not made, f"the page has no place for {list(made)}"
    return filled


def write(folder: Path) -> list[Path]:
    files = [folder / f"gpu-01-rank-{rank}.000000.jsonl" for rank in range(2)]
    for rank, file in enumerate(files):
        file.write_bytes(b"".join(spool_lines(rank)))
    return files


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("architecture")
    return dict(blocks(write(folder), folder))


def test_the_event_files_are_what_the_recorder_writes() -> None:
    kept = {file.name: file.read_bytes() for file in FILES.iterdir()}
    assert list(kept.values()) == [b"".join(spool_lines(rank)) for rank, _ in enumerate(kept)]
    assert all(json.loads(line) for text in kept.values() for line in text.splitlines())


def test_the_page_shows_what_the_code_makes(made: dict[str, str]) -> None:
    page = PAGE.read_text()
    assert page == page_with(dict(made), page), "run: python tests/test_architecture.py"


def test_what_the_page_says_in_words_is_so(made: dict[str, str]) -> None:
    assert "| checkpoint | 26,000,000,000 |" in made["balance"]  # 2 GPUs, 1 s and 12 s
    assert "| productive | 12,000,000,000 |" in made["balance"]
    assert "| held | 46,000,000,000 |" in made["balance"]
    (fifth,) = (row for row in made["windows"].splitlines() if row.startswith("| 5 |"))
    assert fifth == "| 5 | 9.0 | 22.0 | 12.0 | 1.0 | 0.0 |"


if __name__ == "__main__":
    FILES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        PAGE.write_text(page_with(dict(blocks(write(FILES), Path(scratch))), PAGE.read_text()))
    sys.stdout.write(f"wrote {PAGE}\n")
