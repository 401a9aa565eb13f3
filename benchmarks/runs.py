"""Made-up training runs of any size, written straight into the landing tables in SQL.

A run is a row of *lives*: each resumes at a step, makes some, and ends, because the job restarts (a new attempt), or
because it rolls back (the same attempt goes on). The sizes are the caller's; the shape is that of a training run:
clocks that disagree by some milliseconds, waits for input, own work that differs by rank and step, one slow rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from goodput_collector.database import open_database
from goodput_collector.statements import blocks_of

RUN = "bench"
MS_NS = 1_000_000
S_NS = 1_000_000_000
T0_NS = 1_700_000_000 * S_NS
STEP_NS = 1 * S_NS
SPAN_NS = 3 * S_NS
RESTART_NS = 120 * S_NS
ROLLBACK_NS = 5 * S_NS
HEARTBEAT_NS = 5 * S_NS
LOST_STEPS = 3
"""Steps that a new life makes again, in a run without saves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How large a run is.

    Attributes:
        ranks: GPUs, one process each.
        steps: step events of each rank, over all lives; what a restart makes again counts again.
        restarts, rollbacks: evenly spread over the run: each ends a life, what is not a restart is a rollback.
        span, span_every: every so many steps all ranks declare a span of that name; 0 for never.
        heartbeats: whether each rank also says every 5 s that it lives.
        by_rank: rows lie rank after rank, as a loaded file per rank leaves them, not in order of time.
    """

    ranks: int
    steps: int
    restarts: int = 0
    rollbacks: int = 0
    span: str = "checkpoint"
    span_every: int = 0
    heartbeats: bool = False
    by_rank: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """What the run did between two ends: `length` steps from `resume` + 1, the first of them begun at `begin_ns`.

    `first_seq` numbers its first event; after the last event of an attempt comes its stop.
    """

    life: int
    attempt: int
    resume: int
    length: int
    begin_ns: int
    end_ns: int
    first_seq: int
    stop_seq: int
    opens: bool
    closes: bool


def spans_between(shape: Shape, after: int, to: int) -> int:
    """How many spans follow the steps after + 1 … to."""
    return to // shape.span_every - after // shape.span_every if shape.span_every else 0


def lives(shape: Shape) -> list[Life]:
    """The lives of a run, in order."""
    number = 1 + shape.restarts + shape.rollbacks
    restarts = {(i + 1) * number // (shape.restarts + 1) for i in range(shape.restarts)}
    made: list[Life] = []
    attempt, last, begin_ns, seq = 0, 0, T0_NS, 2
    for i in range(number):
        length = (i + 1) * shape.steps // number - i * shape.steps // number
        opens = i == 0 or i in restarts
        if i:
            lost = last % shape.span_every if shape.span_every and shape.span == "checkpoint" else LOST_STEPS
            last -= min(lost, last)
            begin_ns = made[-1].end_ns + (RESTART_NS if opens else ROLLBACK_NS)
        if i and opens:
            attempt, seq = attempt + 1, 2
        spans = spans_between(shape, last, last + length)
        after = seq + 1 + length + 2 * spans
        made.append(
            Life(
                life=i,
                attempt=attempt,
                resume=last,
                length=length,
                begin_ns=begin_ns,
                end_ns=begin_ns + length * STEP_NS + spans * SPAN_NS,
                first_seq=seq,
                stop_seq=after,
                opens=opens,
                closes=i + 1 == number or i + 1 in restarts,
            )
        )
        last, seq = last + length, after
    return made


STEPS = """
CREATE TEMP VIEW placed AS
SELECT
    l.*, s.step, r.rank, l.attempt * $ranks + r.rank AS source_id,
    s.spans,
    l.first_seq + s.step - l.resume + 2 * s.spans AS seq,
    l.begin_ns + (s.step - l.resume) * $step_ns + s.spans * $span_ns AS done_ns,
    -- Each rank's clock is off by up to 10 ms, for good.
    (r.rank * 7919 % 20011 - 10005) * 1000 AS skew_ns
FROM lives l,
    LATERAL (
        SELECT t.step, CASE WHEN $every > 0 THEN (t.step - 1) // greatest($every, 1) - l.resume // greatest($every, 1)
            ELSE 0 END AS spans
        FROM (SELECT l.resume + 1 + unnest(range(l.length)) AS step) t
    ) s,
    (SELECT range AS rank FROM range($ranks)) r
"""

FILL = """
INSERT INTO runs VALUES (1, $run);
INSERT INTO sources SELECT a * $ranks + r, 'bench-' || a || '-' || r FROM range($attempts) t(a), range($ranks) u(r);
INSERT INTO sources VALUES ($attempts * $ranks, 'bench-agent');
INSERT INTO ev_start
SELECT 1, attempt * $ranks + r, 0, begin_ns - 20 * $s_ns, 1, 'slurm:77.' || attempt, attempt, r, r % 8, $ranks,
    'node' || (r // 8), 1000 + r, 1, 'H100', begin_ns - 30 * $s_ns + r, NULL, NULL, NULL, 'token-' || attempt
FROM lives, range($ranks) u(r) WHERE opens;
INSERT INTO ev_joined
SELECT 1, attempt * $ranks + r, 1, begin_ns - 10 * $s_ns, 'token-' || attempt, r, $ranks
FROM lives, range($ranks) u(r) WHERE opens;
INSERT INTO ev_resume
SELECT 1, attempt * $ranks + r, first_seq, begin_ns - $s_ns, CASE WHEN resume > 0 THEN resume END
FROM lives, range($ranks) u(r);
INSERT INTO ev_stop
SELECT 1, attempt * $ranks + r, stop_seq, end_ns + 2 * $s_ns,
    CASE WHEN attempt = $attempts - 1 THEN 'finished' WHEN r = 0 THEN 'exception' ELSE 'signal' END, NULL
FROM lives, range($ranks) u(r) WHERE closes AND (attempt % 2 = 0 OR attempt = $attempts - 1);
INSERT INTO ev_exit_observed
SELECT 1, $attempts * $ranks, row_number() OVER () - 1, end_ns + 2 * $s_ns,
    'bench-' || attempt || '-' || r, NULL, 9, false
FROM lives, range($ranks) u(r) WHERE closes AND attempt % 2 = 1 AND attempt < $attempts - 1;
INSERT INTO ev_step
WITH told AS (
SELECT 1 AS run_id, source_id, seq, done_ns + skew_ns + late_ns AS ts_ns, step,
    done_ns - $step_ns + skew_ns + 1100000 + (step * 13 + rank * 29) % 499 * 1000 AS start_ns,
    done_ns + skew_ns + late_ns AS end_ns,
    (hash(rank, step, 1) % 10000000)::BIGINT AS data_ns,
    750000000 + (hash(rank, step, 2) % 50000000)::BIGINT
        + CASE WHEN rank = 17 AND step % 2000 < 500 THEN 150000000 ELSE 0 END AS busy_ns,
    life, rank
FROM (SELECT *, (step * 31 + rank * 17) % 1009 * 1000 AS late_ns FROM placed)
)
SELECT run_id, source_id, seq, ts_ns, step, start_ns, end_ns, data_ns, busy_ns, NULL, NULL, NULL, NULL,
    lag(step) OVER own, lag(end_ns) OVER own
FROM told WINDOW own AS (PARTITION BY source_id ORDER BY seq)
ORDER BY {order};
INSERT INTO ev_begin
SELECT 1, source_id, seq + 1, done_ns + skew_ns + 2000000, $span, 's' || step, step, NULL, NULL
FROM placed WHERE $every > 0 AND step % greatest($every, 1) = 0 ORDER BY life, step, rank;
INSERT INTO ev_end
SELECT 1, source_id, seq + 2, done_ns + skew_ns + $span_ns - 100000000 + rank * 10000, $span, 's' || step, step, true
FROM placed WHERE $every > 0 AND step % greatest($every, 1) = 0 ORDER BY life, step, rank;
"""

HEARTBEATS = """
INSERT INTO sources
SELECT $attempts * $ranks + 1 + a * $ranks + r, 'beat-' || a || '-' || r FROM range($attempts) t(a), range($ranks) u(r);
INSERT INTO ev_heartbeat
SELECT 1, $attempts * $ranks + 1 + attempt * $ranks + r, n, begin_ns + n * $beat_ns + r * 1000,
    'bench-' || attempt || '-' || r, resume + n * 5, 'step', begin_ns + n * $beat_ns
FROM (
    SELECT attempt, min(begin_ns) AS begin_ns, min(resume) AS resume, max(end_ns) AS end_ns FROM lives GROUP BY attempt
), LATERAL (SELECT unnest(range((end_ns - begin_ns) // $beat_ns)) AS n) b, range($ranks) u(r)
ORDER BY attempt, n, r;
"""


def write(path: Path, shape: Shape) -> None:
    """Write a run of that shape, named RUN, into a new database file."""
    told = lives(shape)
    values = {
        "run": RUN,
        "ranks": shape.ranks,
        "attempts": told[-1].attempt + 1,
        "every": shape.span_every,
        "span": shape.span,
        "s_ns": S_NS,
        "step_ns": STEP_NS,
        "span_ns": SPAN_NS,
        "beat_ns": HEARTBEAT_NS,
    }
    columns = list(Life.__dataclass_fields__)
    con = open_database(path)
    con.register("told", pa.table({name: [getattr(life, name) for life in told] for name in columns}))
    con.execute("CREATE TEMP TABLE lives AS SELECT * FROM told")
    order = "source_id, seq" if shape.by_rank else "life, step, rank"
    for statement in (STEPS + ";" + FILL.format(order=order) + (HEARTBEATS if shape.heartbeats else "")).split(";\n"):
        if statement.strip():
            con.execute(*_bound(statement, values))
    con.execute(f"INSERT INTO step_blocks {blocks_of('ev_step')}")
    con.close()


def _bound(statement: str, values: dict[str, object]) -> tuple[str, dict[str, object]]:
    """A view cannot hold parameters, and a statement must not be given more than it names: numbers are written in."""
    for name, value in sorted(values.items(), key=lambda item: -len(item[0])):
        if isinstance(value, int):
            statement = statement.replace(f"${name}", f"{value}::BIGINT")
    return statement, {name: value for name, value in values.items() if f"${name}" in statement}
