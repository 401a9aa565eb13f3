"""Builds the ledger of one run: the relations in order, and the two decisions between them that need a walk.

Rows of ranks are reduced to steps first (`windows`, `lateness`); what follows looks at steps only. The two walks are
over few things: processes (`attempts`) and lives (`line`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import duckdb

from goodput_analytics.attempts import PartFacts, align, group_attempts, split_launches
from goodput_analytics.early import Early, any_early, find_early, find_measures
from goodput_analytics.errors import LedgerError, UnknownRun
from goodput_analytics.line import NOTHING, Fate, Life, base_step, fates, last_durable
from goodput_analytics.merged import gather
from goodput_analytics.relations import rows, run_sql, sql
from goodput_analytics.settings import Settings

FOREVER_NS = 1 << 62
OPEN_SEQ = (1 << 63) - 1
SECOND_LAUNCH = "~"
FIRST_NS = -(1 << 63) + 1
"""Before all that can be told."""
MEMBER_COLUMNS = {
    "source_id": "INTEGER",
    "part": "BIGINT",
    "source": "VARCHAR",
    "from_seq": "BIGINT",
    "to_seq": "BIGINT",
    "rank": "BIGINT",
    "world_size": "BIGINT",
    "node": "VARCHAR",
    "devices": "BIGINT",
    "grp": "VARCHAR",
    "job": "VARCHAR",
    "process_ns": "BIGINT",
    "told_ns": "BIGINT",
}
"""The fields of a process that the relations read, and their types."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """A run whose relations now stand in the connection (temporary tables `gp_…`, view `ledger_intervals`).

    Attributes:
        run: its name; launches beside the first are NAME~2, NAME~3 …
        launches: how many launches ran side by side under the name.
        as_of_ns: the moment that "now" stands for.
        clocked: whether that moment was handed in (a collector's clock) or is the run's last event.
        durable_step: the step that the run would go on from if it died now; -1 for none.
        reported: whether it ever reported a checkpoint, saved or loaded.
        kept_unreported: whether an aborted run's steps were kept only because it never reported a checkpoint.
        bases: the resume step of every life, by (attempt, life).
    """

    run: str
    run_id: int
    launches: int
    as_of_ns: int
    clocked: bool
    durable_step: int
    reported: bool
    kept_unreported: bool
    bases: dict[tuple[int, int], int | None]


def find_run(con: duckdb.DuckDBPyConnection, run: str) -> tuple[int, int]:
    """The landed run that a name stands for now, and which of its launches.

    Raises:
        UnknownRun: no such run; the error names those that exist.
    """
    known: dict[str, int] = dict(
        con.execute("SELECT run, run_id FROM shown_runs WHERE run_id = root_id AND NOT hidden").fetchall()
    )
    if run in known:
        return known[run], 0
    name, mark, number = run.rpartition(SECOND_LAUNCH)
    if mark and name in known and number.isdecimal() and int(number) >= 2:
        return known[name], int(number) - 1
    raise UnknownRun(run, sorted(known))


def launch_name(run: str, number: int) -> str:
    """What a run's launches beside one another are called; the first one, number 1, has the run's own name."""
    return run if number == 1 else f"{run}{SECOND_LAUNCH}{number}"


def names_of(run: str) -> list[str]:
    """The names of runs that a name may be of: its own, or else that of the run of which it names a second launch."""
    name, mark, number = run.rpartition(SECOND_LAUNCH)
    return [run, name] if mark and number.isdecimal() else [run]


def run_names(con: duckdb.DuckDBPyConnection) -> list[str]:
    """The names of all runs that there are to see, in order; launches beside the first are not among them."""
    found = con.execute("SELECT run FROM shown_runs WHERE run_id = root_id AND NOT hidden ORDER BY run").fetchall()
    return [run for (run,) in found]


def build(
    con: duckdb.DuckDBPyConnection,
    run: str,
    *,
    now_ns: int | None = None,
    settings: Settings | None = None,
    whole: bool = False,
    early: Early = Early.READ,
) -> Ledger:
    """Build every relation of one run in `con`.

    Args:
        con: a connection to a database with landed events; it may be read-only.
        run: the run's name.
        now_ns: the collector's wall clock for a run that it hears from; None takes the run's last event.
        settings: the thresholds.
        whole: the windows as they were before they had parts stay in the connection too.
        early: what is done with steps that are kept reduced although their rows of ranks are there.

    Raises:
        UnknownRun: no such run.
        LedgerError: the ledger does not balance, which is a defect of ours.
    """
    settings = settings or Settings()
    run_id, launch = find_run(con, run)
    values: dict[str, object] = {f.name: getattr(settings, f.name) for f in fields(settings)}
    values["run_id"] = run_id
    gather(con, run_id)
    _set_run(con, run, run_id)
    for name in ("middle_ns", "late_key", "words", "rank_steps", "parts", "step_blocks", "part_facts"):
        run_sql(con, name, values)
    groups = group_attempts(PartFacts(**row) for row in rows(con, "SELECT * FROM gp_part_facts"))
    _set_members(con, groups)
    _align(con, values, early=early is not Early.NONE)
    launches = split_launches(_in_order(con, groups), settings.overlap_ns)
    if launch >= max(len(launches), 1):
        raise UnknownRun(run, [])
    _number(con, groups, launches[launch] if launches else [])
    _set_jobs(con, launches, launch)
    values["launch"] = launch
    _reduce(con, values)
    as_of_ns = _now(con, run_id, now_ns)
    values["now_ns"] = as_of_ns
    for name in ("allocations", "attempts"):
        run_sql(con, name, values)
    _leave_out_zombies(con, values)
    for name in ("spans", "window_times", "covers", "window_covers", "touched_windows", "apart"):
        run_sql(con, name, values)
    _measure(con, values)
    for name in ("window_parts", "tails", "end_causes", "life_moments", "saves", "lives", "last_lives"):
        run_sql(con, name, values)
    line = _draw_line(con)
    granted = con.execute("SELECT 1 FROM gp_allocations LIMIT 1").fetchall()
    if early is Early.FIND:
        find_early(con, values)
    if not whole:
        run_sql(con, "forget", values)
    for name in (
        "portions",
        "named_ranks",
        "window_entries",
        "free_time",
        "span_entries",
        "startup_entries",
        "tail_entries",
        "entries",
        "granted_entries" if granted else "no_granted_entries",
        "ledger",
        "ledger_intervals",
        "held",
        "ends",
        "incidents",
    ):
        run_sql(con, name, values)
    _measure_named(con, values)
    if early is Early.FIND:
        find_measures(con, values)
    _check_balance(con)
    return Ledger(
        run=run,
        run_id=run_id,
        launches=len(launches),
        as_of_ns=as_of_ns,
        clocked=now_ns is not None,
        durable_step=line.durable_step,
        reported=line.reported,
        kept_unreported=line.kept_unreported,
        bases=line.bases,
    )


def _set_run(con: duckdb.DuckDBPyConnection, run: str, run_id: int) -> None:
    con.execute(
        "CREATE OR REPLACE TEMP TABLE gp_run AS SELECT $run::VARCHAR AS run, $run_id::INTEGER AS run_id",
        {"run": run, "run_id": run_id},
    )
    con.execute("SET VARIABLE gp_run_id = $run_id", {"run_id": run_id})


def _set_members(con: duckdb.DuckDBPyConnection, attempts: Sequence[Sequence[PartFacts]]) -> None:
    """Write which process belongs to which attempt."""
    numbered = [(number, part) for number, members in enumerate(attempts) for part in members]
    columns: dict[str, tuple[str, list[Any]]] = {"attempt": ("BIGINT", [number for number, _ in numbered])}
    for name, kind in MEMBER_COLUMNS.items():
        columns[name] = (kind, [getattr(part, name) for _, part in numbered])
    _land(con, "gp_members", columns)


def _set_jobs(con: duckdb.DuckDBPyConnection, launches: Sequence[Sequence[Sequence[PartFacts]]], launch: int) -> None:
    """Write which jobs this launch ran under, and which others belong to the launches beside it."""
    jobs: dict[str, bool] = {}
    for number, attempts in enumerate(launches):
        for part in (part for members in attempts for part in members):
            if part.job is not None:
                jobs[part.job] = jobs.get(part.job, False) or number == launch
    _land(con, "gp_job_names", {"job": ("VARCHAR", list(jobs)), "own": ("BOOLEAN", list(jobs.values()))})


def _land(con: duckdb.DuckDBPyConnection, name: str, columns: Mapping[str, tuple[str, list[Any]]]) -> None:
    """Write a small table, given its columns as (type, values). (Lists are bound as parameters: nothing else needs to
    be imported for that.)"""
    wanted = ", ".join(f"unnest(${column}::{kind}[]) AS {column}" for column, (kind, _) in columns.items())
    bound = {column: values for column, (_, values) in columns.items()}
    con.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT {wanted}", bound)


def _align(con: duckdb.DuckDBPyConnection, values: dict[str, object], *, early: bool) -> None:
    """Cut the ranks' steps into lives, and find how far each clock is off."""
    run_sql(con, "boundaries", values)
    _agree_on_lives(con)
    for name in ("marks", "early" if early and any_early(con, values) else "no_early", "segments", "open_steps"):
        run_sql(con, name, values)
    _spare_closed(con, early=early)
    if con.execute("SELECT 1 FROM gp_step_blocks WHERE again LIMIT 1").fetchall():
        for name in ("merge_repeats", "merged_steps"):
            run_sql(con, name, values)
        con.execute("CREATE OR REPLACE TEMP VIEW gp_rank_steps AS SELECT * FROM gp_whole_steps")
    for name in ("lived_steps", "first_seqs", "shared_steps", "clocks", "clock_marks"):
        run_sql(con, name, values)


def _in_order(con: duckdb.DuckDBPyConnection, groups: Sequence[list[PartFacts]]) -> list[list[PartFacts]]:
    """The attempts on aligned clocks, in order of start."""
    marks: dict[int, list[tuple[int, int]]] = {}
    query = "SELECT source_id, from_ns, offset_ns FROM gp_clock_marks ORDER BY source_id, from_ns"
    for source_id, from_ns, offset_ns in con.execute(query).fetchall():
        marks.setdefault(source_id, []).append((from_ns, offset_ns))
    if all(offset_ns == 0 for told in marks.values() for _, offset_ns in told):
        return list(groups)
    aligned = [[align(part, marks[part.source_id]) for part in members] for members in groups]
    return sorted(aligned, key=lambda members: min(part.process_ns for part in members))


def _number(
    con: duckdb.DuckDBPyConnection, groups: Sequence[list[PartFacts]], attempts: Sequence[list[PartFacts]]
) -> None:
    """Number the attempts of one launch in order of start, and leave the others out."""
    found = {(members[0].source_id, members[0].part): number for number, members in enumerate(groups)}
    order = [found[members[0].source_id, members[0].part] for members in attempts]
    _land(con, "gp_numbers", {"found": ("BIGINT", order), "attempt": ("BIGINT", list(range(len(order))))})
    if order == list(range(len(groups))):
        return
    for relation in ("gp_members", "gp_segments"):
        con.execute(
            f"CREATE OR REPLACE TEMP TABLE {relation} AS SELECT r.* REPLACE (n.attempt AS attempt) "
            f"FROM {relation} r JOIN gp_numbers n ON n.found = r.attempt"
        )
    con.execute("DELETE FROM gp_clocks WHERE life_id NOT IN (SELECT life_id FROM gp_segments)")


def _reduce(con: duckdb.DuckDBPyConnection, values: dict[str, object]) -> None:
    """From the rows of ranks to the steps of the job, as if no attempt had an end."""
    for name in ("life_names", "clock_marks", "member_times", "beats_from", "events", "gone"):
        run_sql(con, name, values)
    con.execute(
        "CREATE OR REPLACE TEMP TABLE gp_limits AS "
        "SELECT DISTINCT attempt, $until_ns::BIGINT AS until_ns, false AS late FROM gp_members",
        {"until_ns": FOREVER_NS * 2 - 1},
    )
    for name in ("bounded_segments", "windows"):
        run_sql(con, name, values)


def _spare_closed(con: duckdb.DuckDBPyConnection, *, early: bool) -> None:
    """Have `gp_open_steps` begin where steps begin that are not kept reduced early."""
    told = con.execute(sql("open_from")).fetchall() if early else []
    con.execute("SET VARIABLE gp_open_from_ns = $ns::BIGINT", {"ns": told[0][0] if told else FIRST_NS})


def _agree_on_lives(con: duckdb.DuckDBPyConnection) -> None:
    """Where ranks tell different numbers of rollbacks (one said so, another's steps do not show it), all follow the
    rank that tells most: a step belongs to the life in whose time it ended."""
    run_sql(con, "uneven_lives")
    if con.execute("SELECT count(*) FROM gp_uneven_lives").fetchall()[0][0]:
        run_sql(con, "agreed_boundaries")


def _leave_out_zombies(con: duckdb.DuckDBPyConnection, values: dict[str, object]) -> None:
    """What ranks did after their attempt's end is no progress: reduce again without it, where there is any."""
    for name in ("limits", "bounded_segments"):
        run_sql(con, name, values)
    if con.execute("SELECT bool_or(late) FROM gp_limits").fetchall()[0][0]:
        # What is kept early of such an attempt was reduced with them.
        for relation in ("gp_segments", "gp_bounded_segments"):
            con.execute(
                f"UPDATE {relation} SET closed_below = gone_below WHERE closed_below > gone_below "
                "AND attempt IN (SELECT attempt FROM gp_limits WHERE late)"
            )
        _spare_closed(con, early=True)
        # Nor do the heartbeats that tell about their ends lie about those processes' last steps.
        con.execute("TRUNCATE gp_beats_from")
        for name in ("events", "windows"):
            run_sql(con, name, values)


def _measure(con: duckdb.DuckDBPyConnection, values: dict[str, object]) -> None:
    """How late each rank was, in every step."""
    con.execute("CREATE OR REPLACE TEMP VIEW gp_touching AS FROM gp_open_steps")
    values["closed"] = False
    apart = ("touched_steps", "own_spans", "touched_measures")
    for name in (*apart, "gap_attempts", "grouped_attempts", "measures", "lateness"):
        run_sql(con, name, values)
    if con.execute("SELECT count(*) FROM gp_grouped_attempts").fetchall()[0][0]:
        run_sql(con, "lateness_grouped", values)
    else:
        con.execute("CREATE OR REPLACE TEMP TABLE gp_lateness_grouped AS FROM gp_lateness LIMIT 0")


def _measure_named(con: duckdb.DuckDBPyConnection, values: dict[str, object]) -> None:
    """What the ranks that are named as slow did on their own, also in steps that are kept reduced."""
    run_sql(con, "slow_segments", values)
    con.execute(
        "SET VARIABLE gp_gone_below = (SELECT coalesce(max(gone_below), 0) FROM gp_slow_segments WHERE gone_below > 0)"
    )
    closed, missing = con.execute("SELECT max(closed_below), bool_or(NOT measured) FROM gp_slow_segments").fetchall()[0]
    run_sql(con, "all_slow_steps" if missing else "slow_steps", values)
    con.execute("CREATE OR REPLACE TEMP TABLE gp_touched_closed AS FROM gp_touched_measures LIMIT 0")
    if closed:
        con.execute("CREATE OR REPLACE TEMP VIEW gp_touching AS FROM gp_slow_steps")
        con.execute("CREATE OR REPLACE TEMP TABLE gp_touched_open AS FROM gp_touched_measures")
        for name in ("touched_steps", "own_spans", "touched_measures"):
            run_sql(con, name, {**values, "closed": True})
        con.execute("CREATE OR REPLACE TEMP TABLE gp_touched_closed AS FROM gp_touched_measures")
        con.execute("CREATE OR REPLACE TEMP TABLE gp_touched_measures AS FROM gp_touched_open")
        con.execute("DROP TABLE gp_touched_open")
    run_sql(con, "named_measures", values)


def _now(con: duckdb.DuckDBPyConnection, run_id: int, now_ns: int | None) -> int:
    """The moment that "now" stands for: handed in, but never before the run's last event; else that event."""
    run_sql(con, "others", {"run_id": run_id})
    found = con.execute(
        "SELECT greatest((SELECT max(ts_ns) FROM gp_events), (SELECT max(last_told_ns) FROM gp_gone), "
        "(SELECT ts_ns FROM gp_others))"
    ).fetchall()[0][0]
    last_ns = int(found) if found is not None else 0
    return last_ns if now_ns is None else max(now_ns, last_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    durable_step: int
    reported: bool
    kept_unreported: bool
    bases: dict[tuple[int, int], int | None]


def _draw_line(con: duckdb.DuckDBPyConnection) -> _Line:
    """Decide which steps the run's present state descends from, and write it down as `gp_fates`."""
    told = rows(con, "SELECT * FROM gp_lives ORDER BY attempt, life")
    lives = [
        Life(
            attempt=row["attempt"],
            life=row["life"],
            base=base_step(
                resumes=[*row["resumes"], *([None] if row["said"] and not row["resumes"] else [])],
                every_rank=row["every"],
                first_step=row["first_step"],
                count=row["first_c"] or 1,
            ),
            resumed=row["said"] > 0,
            last_step=row["last_step"],
            durable_step=row["durable_step"],
        )
        for row in told
    ]
    last = lives[-1].attempt if lives else None
    outcome = con.execute("SELECT outcome FROM gp_attempts WHERE attempt = $a", {"a": last}).fetchall() if lives else []
    aborted = bool(outcome) and outcome[0][0] == "aborted"
    saved = con.execute("SELECT count(*) FROM gp_saves").fetchall()[0][0] > 0
    reported = saved or any(row["resumes"] for row in told)
    decided = fates(lives, aborted=aborted, reported=reported)
    _land(con, "gp_fates", _fates_table(decided))
    _land(con, "gp_bases", _bases_table(lives))
    return _Line(
        durable_step=last_durable(lives),
        reported=reported,
        kept_unreported=aborted and not reported,
        bases={
            (life.attempt, life.life): None if life.base == NOTHING or _from_nothing(row) else life.base
            for life, row in zip(lives, told, strict=True)
        },
    )


def _from_nothing(row: dict[str, Any]) -> bool:
    """Whether every rank of a life said that it loaded nothing, and its first step bears that out."""
    first = row["first_step"]
    return bool(row["every"] and not row["resumes"] and (first is None or first - row["first_c"] <= 0))


def _fates_table(decided: Sequence[Fate]) -> dict[str, tuple[str, list[Any]]]:
    kinds = {f.name: "BOOLEAN" if f.name in ("kept", "lowest") else "BIGINT" for f in fields(Fate)}
    return {name: (kind, [getattr(fate, name) for fate in decided]) for name, kind in kinds.items()}


def _bases_table(lives: Sequence[Life]) -> dict[str, tuple[str, list[Any]]]:
    """From which step each life went on, of those that did."""
    begun = [life for life in lives if life.went_on]
    return {name: ("BIGINT", [getattr(life, name) for life in begun]) for name in ("attempt", "life", "base")}


def _check_balance(con: duckdb.DuckDBPyConnection) -> None:
    """Hold the ledger against what was held, counted apart."""
    entered = con.execute("SELECT coalesce(sum((end_ns - start_ns)::HUGEINT * gpus), 0) FROM gp_ledger").fetchall()[0][
        0
    ]
    held = con.execute("SELECT held_gpu_ns FROM gp_held").fetchall()[0][0]
    negative = con.execute("SELECT count(*) FROM gp_ledger WHERE end_ns < start_ns").fetchall()[0][0]
    if entered != held or negative:
        raise LedgerError(
            f"The ledger does not balance: {entered} GPU-nanoseconds are entered, {held} were held, "
            f"{negative} entries are negative. Please report this with the run's events."
        )
