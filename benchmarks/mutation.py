"""Would the tests notice a wrong rule? Changes the analytics' SQL in one place at a time, and says which changes pass.

The battery is what tests/scenarios and tests/analytics hold the report against: figures worked out by hand, the plain
reference on fixed lives, and the unit tests as they stand. A change counts as noticed when a figure differs, the report
fails, or a test does.

To be quick, a change is first tried on its own relation only: where that comes out the same, so does the report.

The relations of the advice, the metrics and the dashboard's views are left out (`OTHER_FIGURES`) unless --files names
them. What the collector does with lines before they are rows, the SQL of the landing, is tried by landing_mutation.py.

usage: mutation.py [--files NAME ...] [--sorts SORT ...] [--most N] [--jobs N] [--choose N] [--keys FILE] [--cases TEXT]
                   [--left FILE]
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).parents[1]
for folder in ("benchmarks", "tests", "tests/analytics", "tests/scenarios"):
    sys.path.insert(0, str(ROOT / folder))

import re  # noqa: E402

import duckdb  # noqa: E402
from battery import LONG_SEEDS, LOOK_SEEDS, STRICT_SEEDS, WILD_SEEDS  # noqa: E402
from cases import Case, long_case, strict_case, wild_case  # noqa: E402
from catalogue import SCENARIOS  # noqa: E402
from comparing import product_report  # noqa: E402
from equivalents import EQUIVALENT  # noqa: E402
from judging import faults  # noqa: E402
from mutants import Mutant, Sort, mutants  # noqa: E402
from scenario import Scenario  # noqa: E402
from tested import Databases, UnitTest, unit_tests  # noqa: E402

from goodput_analytics import relations  # noqa: E402

# What is built beside the ledger and the report, by the beginning of its name, and why it is not of this figure.
OTHER_FIGURES = {
    "advice_": "what to change: asks a ledger that stands, and has figures of its own to be held against",
    "resume_losses": "whether a resumed training went on as it was: compares losses, and has no GPU-second",
    "metric_": "what /metrics exposes: sums of a ledger that stands",
    "view_": "what the dashboard draws: sums and excerpts of a ledger that stands",
}
UNIT_TESTS = ROOT / "tests" / "analytics"
# Its lives are the battery's own.
NOT_AGAIN = "test_against_reference.py"
SQL = ROOT / "analytics" / "goodput_analytics" / "sql"
CREATES = re.compile(r"CREATE OR REPLACE TEMP (?:TABLE|VIEW) (\w+)")
SINGLE_FROM = "spans"
# Drops what is not asked any more; a trial builds later relations anew and asks it again.
FORGETS = "forget"
# A changed join can run away; so long a report would fail its test.
PATIENCE_S = 5.0
# How many rows a relation has, which, and in what order.
FINGERPRINT = (
    "SELECT count(*), sum(hashed), sum(hashed % 1000000007 * place) "
    "FROM (SELECT hash(x)::HUGEINT AS hashed, row_number() OVER () AS place FROM {} x)"
)


@dataclass(frozen=True, kw_only=True)
class Trying:
    """Something that fails where a report on one of the databases lent to it is wrong."""

    name: str
    fails: Callable[[Databases], bool]


@dataclass(kw_only=True)
class Standing:
    """What stands in one database as it was built without a change, so that it need not be built again.

    Only from SINGLE_FROM on every relation is written once; `good` counts how many of those are as they should be,
    the first ones. It is -1 where something before them is not, and where a database is reported on more than once.
    """

    order: list[str] = field(default_factory=list)
    good: int = -1

    @property
    def late(self) -> list[str]:
        return self.order[self.order.index(SINGLE_FROM) :] if self.order.count(SINGLE_FROM) == 1 else []

    def has(self, name: str, changed: str) -> bool:
        late = self.late
        if changed not in late:
            self.good = -1
        if self.good < 0:
            return False
        if name not in late:
            return name in self.order
        return late.index(name) < min(self.good, late.index(changed))

    def built(self, name: str, *, right: bool) -> None:
        late = self.late
        if name in late and late.index(name) == max(self.good, 0):
            self.good = late.index(name) + right
        elif name in late and not right:
            self.good = min(self.good, late.index(name))


@dataclass(kw_only=True)
class Trial:
    """The changes that nobody has noticed yet, and how the relations of one case are built with them."""

    alive: dict[str, list[Mutant]]
    differing: list[Mutant] = field(default_factory=list)
    crashed: list[Mutant] = field(default_factory=list)
    changed: Mutant | None = None
    standing: dict[int, Standing] = field(default_factory=dict)

    def seen(self) -> set[str]:
        return {name for one in self.standing.values() for name in one.order}

    def begin(self) -> None:
        """All that was built so far was built without a change."""
        for one in self.standing.values():
            one.good = len(one.late) or -1

    def text(self, name: str) -> str:
        if self.changed is not None and self.changed.name == name:
            return self.changed.text
        return _original(name)

    def run_sql(self, con: duckdb.DuckDBPyConnection, name: str, values: Mapping[str, Any] | None = None) -> None:
        """In place of the analytics' own: builds a relation, and while nothing is changed tries its changes on it."""
        bound = {key: value for key, value in (values or {}).items() if key in _parameters(name)}
        standing = self.standing.setdefault(id(con), Standing())
        if name == FORGETS:
            return
        if self.changed is not None:
            if not standing.has(name, self.changed.name):
                standing.built(name, right=name != self.changed.name)
                con.execute(self.text(name), bound or None)
            return
        standing.order.append(name)
        if not self.alive.get(name):
            con.execute(self.text(name), bound or None)
            return
        tried: list[tuple[Mutant, Any]] = []
        for mutant in self.alive[name]:
            if mutant not in self.differing and mutant not in self.crashed:
                tried.append((mutant, self._try(con, mutant.text, bound)))
        right = self._try(con, _original(name), bound)
        for mutant, came_out in tried:
            if came_out == "crashed":
                self.crashed.append(mutant)
            elif came_out is None or came_out[:2] != right[:2] or (by_order(mutant) and came_out != right):
                self.differing.append(mutant)
        con.execute(_original(name), bound or None)

    def _try(self, con: duckdb.DuckDBPyConnection, text: str, bound: Mapping[str, Any]) -> Any:
        """What the relation comes out as, and then as if it had not been built; None where that cannot be told."""
        con.execute("BEGIN")
        try:
            with in_time(con.interrupt):
                con.execute(text, bound or None)
                made = CREATES.findall(text)
                if not made:
                    return None
                return con.execute(FINGERPRINT.format(made[-1])).fetchall()[0]
        except duckdb.Error:
            return "crashed"
        finally:
            con.execute("ROLLBACK")


def by_order(mutant: Mutant) -> bool:
    """Whether a change may be of nothing but the order of rows."""
    return mutant.sort == Sort.PRECEDENCE


def unchanged(name: str) -> Mutant:
    return Mutant(name=name, sort=Sort.LOGIC, line=0, was="", now="", text=_original(name))


def _original(name: str) -> str:
    return _TEXTS[name]


_TEXTS = {path.stem: path.read_text(encoding="utf-8") for path in sorted(SQL.glob("*.sql"))}
_parameters = relations.parameters


def hand_in(trial: Trial) -> None:
    """Let every module of the analytics build its relations through the trial."""
    for name, module in list(sys.modules.items()):
        if name.startswith("goodput_analytics") and hasattr(module, "run_sql"):
            module.run_sql = trial.run_sql  # type: ignore[attr-defined]


@contextmanager
def in_time(interrupt: Callable[[], None]) -> Iterator[None]:
    """Interrupt a statement that runs away."""
    timer = threading.Timer(PATIENCE_S, interrupt)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def try_all(
    pool: Sequence[Mutant], cases: Iterator[Trying], left_file: Path | None
) -> tuple[list[Mutant], dict[str, int], set[str], list[str]]:
    """Try the changes on one case after the other.

    Returns:
        Those that passed every case; how many changes each case was the first to notice; the relations that were
        built; the cases that do not hold without any change.
    """
    alive: dict[str, list[Mutant]] = {}
    for mutant in pool:
        alive.setdefault(mutant.name, []).append(mutant)
    first: Counter[str] = Counter()
    seen: set[str] = set()
    broken: list[str] = []
    for case in cases:
        trial = Trial(alive=alive)
        hand_in(trial)
        with Databases() as databases:
            if case.fails(databases):
                broken.append(case.name)
                continue
            trial.begin()
            if not seen:
                # Building on what stands must be the same as building all of it.
                trial.changed = unchanged(SINGLE_FROM)
                assert not case.fails(databases), f"{SINGLE_FROM} is not the first of those that are written once"
            seen |= trial.seen()
            gone = set(trial.crashed)
            for mutant in reversed(trial.differing):
                trial.changed = mutant
                with in_time(databases.interrupt):
                    if case.fails(databases):
                        gone.add(mutant)
            trial.changed = None
        if not gone:
            continue
        first[case.name] += len(gone)
        alive = {name: [m for m in left if m not in gone] for name, left in alive.items()}
        print(f"{case.name}: {len(gone)} noticed, {sum(map(len, alive.values()))} left", file=sys.stderr, flush=True)
        if left_file is not None:
            left_file.write_text("".join(f"{m.key}\n" for left in alive.values() for m in left), encoding="utf-8")
        if not any(alive.values()):
            break
    return [m for left in alive.values() for m in left], dict(first), seen, broken


def share(
    pool: list[Mutant], choose: int, only: Sequence[str], left_file: Path | None
) -> tuple[list[Mutant], dict[str, int], set[str], list[str]]:
    """One process's part."""
    cases = (case for case in all_cases(choose) if not only or any(text in case.name for text in only))
    return try_all(pool, cases, left_file)


def all_cases(choose: int) -> Iterator[Trying]:
    """The battery, those in which most happens first; to choose another, the scenarios and then many made-up lives."""
    if choose:
        yield from map(scenario_case, SCENARIOS)
        for seed in range(choose):
            later_s = Random(seed).choice((0, 3, 20, 700))
            made = (wild_case(seed, None), wild_case(seed, later_s), strict_case(seed), long_case(seed))
            yield from map(life, made)
        return
    for seed in WILD_SEEDS:
        yield life(wild_case(seed, None))
    for seed in LONG_SEEDS:
        yield life(long_case(seed))
    for seed, later_s in LOOK_SEEDS:
        yield life(wild_case(seed, later_s))
    for seed in STRICT_SEEDS:
        yield life(strict_case(seed))
    yield from map(scenario_case, SCENARIOS)
    for test in unit_tests(path for path in sorted(UNIT_TESTS.glob("test_*.py")) if path.name != NOT_AGAIN):
        yield unit_case(test)


def unit_case(test: UnitTest) -> Trying:
    return Trying(name=test.name, fails=lambda databases: not test.passes(databases.lend))


def life(case: Case) -> Trying:
    def fails(databases: Databases) -> bool:
        with databases.lend(case.events) as con:
            try:
                return bool(case.faults(con))
            except Exception:  # a report that fails is noticed, whatever the failure
                return True

    return Trying(name=case.name, fails=fails)


def scenario_case(scenario: Scenario) -> Trying:
    def wrong(con: duckdb.DuckDBPyConnection) -> list[str]:
        return faults(product_report(con, scenario.run), scenario.right)

    return life(Case(name=scenario.name, events=scenario.events(), faults=wrong))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", nargs="*", help="only these .sql files, by name")
    parser.add_argument("--sorts", nargs="*", type=Sort, default=list(Sort), help=f"of {', '.join(Sort)}")
    parser.add_argument("--most", type=int, default=0, help="at most this many changes of each file, spread over it")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--keys", type=Path, help="only the changes whose keys stand in this file, one a line")
    parser.add_argument("--cases", nargs="*", default=[], help="only the cases in whose names one of these stands")
    parser.add_argument("--left", type=Path, help="keep the keys of what nobody has noticed yet here, one a line")
    parser.add_argument("--choose", type=int, default=0, help="instead of the battery's, try this many made-up lives")
    options = parser.parse_args()
    began = time.monotonic()
    keys = set(options.keys.read_text(encoding="utf-8").splitlines()) if options.keys else None
    pool: list[Mutant] = []
    aside = 0
    for name, text in _TEXTS.items():
        if name not in options.files if options.files else name.startswith(tuple(OTHER_FIGURES)):
            continue
        every = [m for m in mutants(name, text) if m.sort in options.sorts and (keys is None or m.key in keys)]
        own = [m for m in every if m.key not in EQUIVALENT]
        aside += len(every) - len(own)
        step = max(1, -(-len(own) // options.most)) if options.most else 1
        pool += own[::step]
    parts = [pool[i :: options.jobs] for i in range(options.jobs)]
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as workers:
        lefts = [options.left.with_suffix(f".{i}") if options.left else None for i in range(options.jobs)]
        tasks = [
            workers.submit(share, part, options.choose, options.cases, left)
            for part, left in zip(parts, lefts, strict=True)
        ]
        results = [task.result() for task in tasks]
    survivors = [m for left, *_ in results for m in left]
    first: Counter[str] = Counter()
    for _, by_case, _, _ in results:
        first.update(by_case)
    broken = sorted({name for *_, names in results for name in names})
    seen = {name for _, _, names, _ in results for name in names}
    print(f"{aside} changes set aside: no report can differ by them")
    return tell(pool, survivors, first, seen, broken, time.monotonic() - began)


def tell(
    pool: list[Mutant],
    survivors: list[Mutant],
    first: Mapping[str, int],
    seen: set[str],
    broken: Sequence[str],
    took_s: float,
) -> int:
    made, left = Counter(m.name for m in pool), Counter(m.name for m in survivors)
    for name in made:
        remark = "" if name in seen or left[name] == 0 else "  (never built in any case)"
        print(f"{name:24} {made[name] - left[name]:4} of {made[name]:4}{remark}")
    for mutant in sorted(survivors, key=lambda m: (m.name, m.line)):
        print(f"passed  {mutant}   [{mutant.sort}]")
    for sort in Sort:
        of_sort, passed = [m for m in pool if m.sort == sort], [m for m in survivors if m.sort == sort]
        if of_sort:
            print(f"{sort:24} {len(of_sort) - len(passed):4} of {len(of_sort):4}")
    for name in broken:
        print(f"does not hold even without a change, and was left out: {name}")
    print("cases that noticed something first:", " ".join(name for name, n in first.items() if n))
    ratio = 1 - len(survivors) / max(len(pool), 1)
    print(f"{len(pool) - len(survivors)} of {len(pool)} changes noticed: {100 * ratio:.1f} %, in {took_s:.0f} s")
    return 0 if ratio >= 0.95 and not broken else 1


if __name__ == "__main__":
    sys.exit(main())
