"""Would the tests notice a wrong rule of the landing? Changes the collector's SQL in one place at a time.

Beside mutation.py, which does the same for the ledger and the report. A change counts as noticed when one of the
landing's tests fails: what is read, carried over, kept once, counted, linked and moved, and that order, repetition and
division change nothing. Each change runs the tests up to the first that fails, in this process.

usage: landing_mutation.py [--files NAME ...] [--sorts SORT ...] [--keys FILE] [--left FILE]
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from pathlib import Path
from unittest.mock import patch

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

from equivalents import EQUIVALENT  # noqa: E402
from mutants import Mutant, Sort, mutants  # noqa: E402

from goodput_collector.database import sql_text  # noqa: E402

SQL = ROOT / "collector" / "goodput_collector" / "sql"
TESTS = [
    ROOT / "tests" / "collector" / f"{name}.py"
    for name in (
        "test_landing_values",
        "test_landing_corners",
        "test_rejected_bound",
        "test_landing",
        "test_landing_properties",
        "test_store",
    )
]
# By the beginning of their names: not of this figure, and why.
OTHER_FIGURES = {
    "from_version_": "bring the tables of an older version up to date, once",
    "metric_marks": "what /metrics tells of a run that nobody asked for lately: read from what has landed",
}
QUIET = ("-x", "-p", "no:cacheprovider", "-p", "no:terminal", "-p", "no:xdist", "-o", "addopts=")
CHOICE = ("-m", "not soak", "--hypothesis-seed=0")


class _First:
    """The first test that failed."""

    name = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.name:
            self.name = report.nodeid.rpartition("/")[2]


def first_failure() -> str:
    """Run the tests up to the first that fails, and say which; empty where all hold."""
    first = _First()
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
        code = pytest.main([*QUIET, *CHOICE, *map(str, TESTS)], plugins=[first])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise SystemExit(f"pytest could not run the tests ({code!r})")
    return first.name


@contextmanager
def changed(mutant: Mutant) -> Iterator[None]:
    """Let every module of the collector read the changed text."""

    def text(name: str) -> str:
        return mutant.text if name == mutant.name else sql_text(name)

    with ExitStack() as stack:
        for module in list(sys.modules.values()):
            if module.__name__.startswith("goodput_collector") and hasattr(module, "sql_text"):
                stack.enter_context(patch.object(module, "sql_text", text))
        yield


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", nargs="*", help="only these .sql files, by name")
    parser.add_argument("--sorts", nargs="*", type=Sort, default=list(Sort), help=f"of {', '.join(Sort)}")
    parser.add_argument("--keys", type=Path, help="only the changes whose keys stand in this file, one a line")
    parser.add_argument("--left", type=Path, help="keep the keys of what nobody has noticed here, one a line")
    options = parser.parse_args()
    keys = set(options.keys.read_text(encoding="utf-8").splitlines()) if options.keys else None
    every = [
        m
        for path in sorted(SQL.glob("*.sql"))
        if (path.stem in options.files if options.files else not path.stem.startswith(tuple(OTHER_FIGURES)))
        for m in mutants(path.stem, path.read_text(encoding="utf-8"))
        if m.sort in options.sorts and (keys is None or m.key in keys)
    ]
    pool = [m for m in every if m.key not in EQUIVALENT]
    began = time.monotonic()
    broken = first_failure()
    if broken:
        print(f"does not hold even without a change: {broken}")
        return 1
    left: list[Mutant] = []
    for number, mutant in enumerate(pool, 1):
        with changed(mutant):
            noticed = first_failure()
        print(f"{number} of {len(pool)}: {noticed or 'passed'}: {mutant}", file=sys.stderr, flush=True)
        if not noticed:
            left.append(mutant)
            if options.left is not None:
                options.left.write_text("".join(f"{m.key}\n" for m in left), encoding="utf-8")
    print(f"{len(every) - len(pool)} changes set aside: nothing that landed can differ by them")
    made, passed = Counter(m.name for m in pool), Counter(m.name for m in left)
    for name in made:
        print(f"{name:24} {made[name] - passed[name]:4} of {made[name]:4}")
    for mutant in left:
        print(f"passed  {mutant}   [{mutant.sort}]")
    ratio = 1 - len(left) / max(len(pool), 1)
    took_s = time.monotonic() - began
    print(f"{len(pool) - len(left)} of {len(pool)} changes noticed: {100 * ratio:.1f} %, in {took_s:.0f} s")
    return 0 if ratio >= 0.95 else 1


if __name__ == "__main__":
    sys.exit(main())
