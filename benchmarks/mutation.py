"""Would the tests notice a wrong rule? Changes the analytics' SQL in one place at a time, and says which changes pass.

The battery is what tests/scenarios and tests/analytics hold the report against: figures worked out by hand, and the
plain reference on fixed lives. A change counts as noticed when a figure differs or the report fails.

To be quick, a change is first tried on its own relation only: where that comes out the same, so does the report.

usage: mutation.py [--files NAME ...] [--most N] [--jobs N] [--choose N]
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
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
from battery import LONG_SEEDS, LOOK_SEEDS, WILD_SEEDS  # noqa: E402
from cases import Case, long_case, wild_case  # noqa: E402
from catalogue import SCENARIOS  # noqa: E402
from comparing import product_report  # noqa: E402
from equivalents import EQUIVALENT  # noqa: E402
from judging import faults  # noqa: E402
from loading import loaded  # noqa: E402
from mutants import Mutant, mutants  # noqa: E402
from scenario import Scenario  # noqa: E402

from goodput_analytics import relations  # noqa: E402

SQL = ROOT / "analytics" / "goodput_analytics" / "sql"
CREATES = re.compile(r"CREATE OR REPLACE TEMP (?:TABLE|VIEW) (\w+)")
SINGLE_FROM = "spans"
# Drops what is not asked any more; a trial builds later relations anew and asks it again.
FORGETS = "forget"
# A changed join can run away; so long a report would fail its test.
PATIENCE_S = 5.0


@dataclass(kw_only=True)
class Trial:
    """The changes that nobody has noticed yet, and how the relations of one case are built with them."""

    alive: dict[str, list[Mutant]]
    differing: list[Mutant] = field(default_factory=list)
    crashed: list[Mutant] = field(default_factory=list)
    changed: Mutant | None = None
    order: list[str] = field(default_factory=list)
    reached: bool = False

    def change(self, mutant: Mutant | None) -> None:
        self.changed, self.reached = mutant, False

    def stands(self, name: str) -> bool:
        """Whether a relation still stands as it was built without the change: it comes before what is changed.

        Only from SINGLE_FROM on every relation is written once, so that none has been replaced since.
        """
        if self.changed is None or SINGLE_FROM not in self.order:
            return False
        self.reached = self.reached or name == self.changed.name
        late = self.order[self.order.index(SINGLE_FROM) :]
        return not self.reached and self.changed.name in late

    def text(self, name: str) -> str:
        if self.changed is not None and self.changed.name == name:
            return self.changed.text
        return _original(name)

    def run_sql(self, con: duckdb.DuckDBPyConnection, name: str, values: Mapping[str, Any] | None = None) -> None:
        """In place of the analytics' own: builds a relation, and while nothing is changed tries its changes on it."""
        bound = {key: value for key, value in (values or {}).items() if key in _parameters(name)}
        if self.stands(name) or name == FORGETS:
            return
        if self.changed is None:
            self.order.append(name)
        if self.changed is not None or not self.alive.get(name):
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
            elif came_out is None or came_out != right:
                self.differing.append(mutant)
        con.execute(_original(name), bound or None)

    def _try(self, con: duckdb.DuckDBPyConnection, text: str, bound: Mapping[str, Any]) -> Any:
        """What the relation comes out as, and then as if it had not been built; None where that cannot be told."""
        con.execute("BEGIN")
        try:
            with in_time(con):
                con.execute(text, bound or None)
                made = CREATES.findall(text)
                if not made:
                    return None
                query = f"SELECT count(*), sum(hash(x)::HUGEINT) FROM {made[-1]} x"
                return con.execute(query).fetchall()[0]
        except duckdb.Error:
            return "crashed"
        finally:
            con.execute("ROLLBACK")


def _original(name: str) -> str:
    return _TEXTS[name]


_TEXTS = {path.stem: path.read_text(encoding="utf-8") for path in sorted(SQL.glob("*.sql"))}
_parameters = relations.parameters


def hand_in(trial: Trial) -> None:
    """Let every module of the analytics build its relations through the trial."""
    for name, module in list(sys.modules.items()):
        if name.startswith("goodput_analytics") and hasattr(module, "run_sql"):
            module.run_sql = trial.run_sql  # type: ignore[attr-defined]


def noticed(case: Case, con: duckdb.DuckDBPyConnection) -> bool:
    try:
        return bool(case.faults(con))
    except Exception:  # a report that fails is noticed, whatever the failure
        return True


@contextmanager
def in_time(con: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Interrupt a statement that runs away."""
    timer = threading.Timer(PATIENCE_S, con.interrupt)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def try_all(pool: Sequence[Mutant], cases: Iterator[Case]) -> tuple[list[Mutant], dict[str, int], set[str], list[str]]:
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
        with loaded(case.events) as con:
            con.execute("SET enable_progress_bar = false")
            if noticed(case, con):
                broken.append(case.name)
                continue
            if len(seen) == 0 and SINGLE_FROM in trial.order:
                # Building on what stands must be the same as building all of it.
                trial.change(Mutant(name=SINGLE_FROM, line=0, was="", now="", text=_original(SINGLE_FROM)))
                assert not noticed(case, con), f"{SINGLE_FROM} is not the first of those that are written once"
            seen |= set(trial.order)
            gone = set(trial.crashed)
            for mutant in trial.differing:
                trial.change(mutant)
                with in_time(con):
                    if noticed(case, con):
                        gone.add(mutant)
            trial.change(None)
        first[case.name] += len(gone)
        alive = {name: [m for m in left if m not in gone] for name, left in alive.items()}
        print(f"{case.name}: {len(gone)} noticed, {sum(map(len, alive.values()))} left", file=sys.stderr, flush=True)
        if not any(alive.values()):
            break
    return [m for left in alive.values() for m in left], dict(first), seen, broken


def share(pool: list[Mutant], choose: int) -> tuple[list[Mutant], dict[str, int], set[str], list[str]]:
    """One process's part."""
    return try_all(pool, all_cases(choose))


def all_cases(choose: int) -> Iterator[Case]:
    """The battery, those in which most happens first; to choose another, the scenarios and then many made-up lives."""
    if choose:
        yield from map(scenario_case, SCENARIOS)
        for seed in range(choose):
            yield wild_case(seed, None)
            if seed % 2 == 0:
                yield long_case(seed // 2)
            if seed % 3 == 0:
                yield wild_case(seed, Random(seed).choice((0, 3, 20, 700)))
        return
    for seed in WILD_SEEDS:
        yield wild_case(seed, None)
    for seed in LONG_SEEDS:
        yield long_case(seed)
    for seed, later_s in LOOK_SEEDS:
        yield wild_case(seed, later_s)
    yield from map(scenario_case, SCENARIOS)


def scenario_case(scenario: Scenario) -> Case:
    def wrong(con: duckdb.DuckDBPyConnection) -> list[str]:
        return faults(product_report(con, scenario.run), scenario.right)

    return Case(name=scenario.name, events=scenario.events(), faults=wrong)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", nargs="*", help="only these .sql files, by name")
    parser.add_argument("--most", type=int, default=0, help="at most this many changes of each file, spread over it")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--choose", type=int, default=0, help="instead of the battery's, try this many made-up lives")
    options = parser.parse_args()
    began = time.monotonic()
    pool: list[Mutant] = []
    for name, text in _TEXTS.items():
        if options.files and name not in options.files:
            continue
        own = [m for m in mutants(name, text) if m.key not in EQUIVALENT]
        step = max(1, -(-len(own) // options.most)) if options.most else 1
        pool += own[::step]
    parts = [pool[i :: options.jobs] for i in range(options.jobs)]
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as workers:
        results = list(workers.map(share, parts, [options.choose] * options.jobs))
    survivors = [m for left, *_ in results for m in left]
    first: Counter[str] = Counter()
    for _, by_case, _, _ in results:
        first.update(by_case)
    broken = sorted({name for *_, names in results for name in names})
    seen = {name for _, _, names, _ in results for name in names}
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
        print(f"passed  {mutant}")
    for name in broken:
        print(f"does not hold even without a change, and was left out: {name}")
    print("cases that noticed something first:", " ".join(name for name, n in first.items() if n))
    ratio = 1 - len(survivors) / max(len(pool), 1)
    print(f"{len(pool) - len(survivors)} of {len(pool)} changes noticed: {100 * ratio:.1f} %, in {took_s:.0f} s")
    return 0 if ratio >= 0.95 and not broken else 1


if __name__ == "__main__":
    sys.exit(main())
