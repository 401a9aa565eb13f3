"""The page that keeps the benchmarks' results."""

from __future__ import annotations

from pathlib import Path

DOC = Path(__file__).resolve().parent.parent / "docs" / "PERFORMANCE.md"


def put_section(text: str) -> None:
    """Replace a benchmark's section of the page, or add it at the end; the first line of the text is its heading."""
    heading = text.partition("\n")[0]
    old = DOC.read_text(encoding="utf-8") if DOC.exists() else "# Performance\n"
    before, found, after = old.partition(heading + "\n")
    _, more, later = after.partition("\n## ")
    tail = "\n## " + later if found and more else ""
    DOC.write_text(before.rstrip("\n") + "\n\n" + text + tail, encoding="utf-8")
