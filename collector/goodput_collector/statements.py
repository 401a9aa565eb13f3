"""SQL made from the event contract: what differs from kind to kind only in the names of its fields."""

from __future__ import annotations

import json

from goodput_collector.contract import KINDS, SEQ, TS, Field, FieldType, Kind

STEP = KINDS["step"]

# The lines that are read fast: a step's fields and nothing else, each plainly of its type and within its range, so
# that the reader's own types can be trusted (it would read "12", 12.5 and true as integers, and NaN as a number).
_WHOLE = r"(?:0|[1-9][0-9]{0,17}|1[0-9]{18})"
_COUNT = r"(?:0|[1-9][0-9]{0,14})"
_NUMBER = r"-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,25})?(?:[eE][+-]?[0-9]{1,2})?"
_PLAIN_FIELD = (
    '(?:"kind": ?"step"'
    r'|"run": ?"[^"\\\x00-\x1f]+"'
    r'|"source": ?"[^"\\\x00-\x1f]*"'
    f'|"(?:seq|step)": ?{_COUNT}'
    f'|"(?:ts_ns|start_ns|end_ns|data_ns|busy_ns)": ?{_WHOLE}'
    '|"count": ?[1-9][0-9]{0,8}'
    '|"applied": ?(?:true|false)'
    f'|"(?:loss|lr)": ?{_NUMBER})'
)
PLAIN_STEP = rf"\{{{_PLAIN_FIELD}(?:, ?{_PLAIN_FIELD})*\}}\r?\n?"

# What DuckDB's reader lets pass though it is no JSON: NaN, Infinity, a comma before a closing bracket. The pattern
# may also hit a text that looks so; the strict reader then decides.
LENIENT = r"(?i)[:,\[]\s*-?(?:nan|inf)|,\s*[\]}]"

_SQL_TYPES = {
    FieldType.INTEGER: "BIGINT",
    FieldType.NUMBER: "DOUBLE",
    FieldType.FLAG: "BOOLEAN",
}


def _sql_type(field: Field) -> str:
    return _SQL_TYPES.get(field.type, "VARCHAR")


def _quoted(name: str) -> str:
    return f'"{name}"'


def columns(kind: Kind) -> str:
    """The columns of the kind's table, in its order."""
    return ", ".join(["run_id", "source_id", "seq", "ts_ns", *(_quoted(field.column) for field in kind.fields)])


def plain_steps() -> str:
    """Takes the relation `lines` (pos, line), all plain steps, into typed columns; run and source as written."""
    fields = (SEQ, TS, *STEP.fields)
    shape = json.dumps({"run": "VARCHAR", "source": "VARCHAR"} | {field.name: _sql_type(field) for field in fields})
    typed = ", ".join(f"e.{_quoted(field.name)} AS {_quoted(field.column)}" for field in fields)
    return (
        "CREATE OR REPLACE TEMP TABLE plain AS "
        f"SELECT pos, e.run AS run, e.source AS source, {typed} "
        f"FROM (SELECT pos, from_json(line, '{shape}') AS e FROM goodput_plain)"
    )


def plain_step_lacks() -> str:
    """The condition that a plain step lacks a required field."""
    required = [field.column for field in (SEQ, TS, *STEP.fields) if field.required]
    return " OR ".join(f"{_quoted(column)} IS NULL" for column in required)


def odd_fields() -> str:
    """Takes the relation `goodput_odd` (pos, line), JSON objects of any kind, into the texts of all known fields."""
    names = dict.fromkeys(["kind", "run", "source", "seq", "ts_ns"])
    for kind in KINDS.values():
        names.update(dict.fromkeys(field.name for field in kind.fields))
    shape = json.dumps(dict.fromkeys(names, "JSON"))
    texts = ", ".join(f"CAST(e.{_quoted(name)} AS VARCHAR) AS {_quoted(name)}" for name in names)
    return (
        f"CREATE OR REPLACE TEMP TABLE odd AS SELECT pos, {texts} "
        f"FROM (SELECT pos, from_json(line, '{shape}') AS e FROM goodput_odd)"
    )


def odd_events(kind: Kind) -> str:
    """Takes the odd events of one kind into typed columns, with `fault`: why the event is rejected, if it is."""
    fields = (SEQ, TS, *kind.fields)
    typed = ", ".join(f"gp_{field.type}({_quoted(field.name)}) AS {_quoted(field.column)}" for field in fields)
    faults = ", ".join(_fault(field) for field in fields)
    missing = " OR ".join(f"{_quoted(field.name)} IS NULL" for field in fields if field.required)
    no_run = f"WHEN h.run = ''{' OR h.run IS NULL' if kind.needs_run else ''} THEN 'no_run'"
    return (
        f"CREATE OR REPLACE TEMP TABLE odd_{kind.name} AS "
        f"SELECT o.pos AS pos, h.run AS run, h.source AS source, {typed}, coalesce({faults}, "
        f"CASE WHEN {missing} THEN 'missing_field' WHEN h.source IS NULL THEN 'no_source' {no_run} END) AS fault "
        f"FROM (SELECT * EXCLUDE (kind, run, source) FROM odd) o "
        f"JOIN odd_heads h ON h.pos = o.pos WHERE h.kind = '{kind.name}' AND h.fault IS NULL"
    )


def _fault(field: Field) -> str:
    bounds = f", {field.low}, {field.high}" if field.type is FieldType.INTEGER else ""
    return f"gp_{field.type}_fault({_quoted(field.name)}{bounds})"


def staged(kind: Kind, *, plain: bool, odd: bool) -> str:
    """The events of one kind (`plain` ones, `odd` ones) with the keys of their run and source, in `staged_KIND`."""
    rest = ", ".join(f"e.{_quoted(column)}" for column in ["seq", "ts_ns", *(field.column for field in kind.fields)])
    parts = []
    if plain:
        parts.append(
            f"SELECT e.pos, r.run_id, s.source_id, {rest} FROM plain e "
            "JOIN runs r ON r.run = e.run JOIN sources s ON s.source = e.source"
        )
    if odd:
        parts.append(
            f"SELECT e.pos, r.run_id, s.source_id, {rest} FROM odd_{kind.name} e "
            "LEFT JOIN runs r ON r.run = e.run JOIN sources s ON s.source = e.source WHERE e.fault IS NULL"
        )
    return f"CREATE OR REPLACE TEMP TABLE staged_{kind.name} AS {' UNION ALL '.join(parts)}"


def land(kind: Kind) -> str:
    """Moves the staged events of one kind into its table."""
    return f"INSERT INTO {kind.table} ({columns(kind)}) SELECT {columns(kind)} FROM staged_{kind.name}"


def land_steps(*, in_order: bool) -> str:
    """Moves the staged steps into their table, each with the one before it in its source: in the batch, or landed.

    `in_order`: the rows of each source follow one another as they should, so that nothing has to be sorted.
    """
    return f"INSERT INTO {STEP.table} ({columns(STEP)}, before_step, before_end_ns) {_linked_steps(in_order)}"


def batch_blocks(*, in_order: bool) -> str:
    """What `step_blocks` will say of the staged steps alone, in `batch_blocks`."""
    return f"CREATE OR REPLACE TEMP TABLE batch_blocks AS {blocks_of(f'({_linked_steps(in_order)})')}"


def blocks_of(steps: str) -> str:
    """Rows of `step_blocks` for steps with the columns of their table."""
    end_ns = "greatest(start_ns, end_ns)"
    return (
        "SELECT run_id, source_id, step // 1000 AS block, count(*) AS steps, min(seq) AS first_seq, "
        "max(seq) AS last_seq, max(step) AS top_step, min(start_ns) AS first_start_ns, "
        f"min({end_ns}) AS first_end_ns, max({end_ns}) AS last_end_ns, max(ts_ns) AS last_told_ns, "
        "count_if(end_ns < start_ns) AS backwards, coalesce(bool_or(step < before_step), false) AS back, "
        f"coalesce(bool_or(step = before_step), false) AS again FROM {steps} GROUP BY run_id, source_id, step // 1000"
    )


def _linked_steps(in_order: bool) -> str:
    given = ", ".join(f"e.{column}" for column in columns(STEP).split(", "))
    own = "()" if in_order else "(PARTITION BY run_id, source_id ORDER BY seq)"
    return (
        f"SELECT {given}, CASE WHEN e.follows THEN e.last_step ELSE t.step END AS before_step, "
        "CASE WHEN e.follows THEN e.last_end_ns ELSE t.end_ns END AS before_end_ns "
        "FROM (SELECT *, "
        f"coalesce(lag(run_id) OVER {own} = run_id AND lag(source_id) OVER {own} = source_id, false) AS follows, "
        f"lag(step) OVER {own} AS last_step, lag(greatest(start_ns, end_ns)) OVER {own} AS last_end_ns "
        "FROM staged_step) e LEFT JOIN step_tips t ON t.run_id = e.run_id AND t.source_id = e.source_id"
    )


def rendered(kind: Kind) -> str:
    """The event `e` as its canonical line: the contract's fields in its order, no spaces, what is absent left out.

    Two events are the same exactly when these lines are, so which of two is kept depends on nothing but them. Expects
    the joined rows `r` of runs (or NULL) and `s` of sources.
    """
    parts = [
        f'\'{{"kind":"{kind.name}"\'',
        "coalesce(',\"run\":' || CAST(to_json(r.run) AS VARCHAR), '')",
        "',\"source\":' || CAST(to_json(s.source) AS VARCHAR)",
        "',\"seq\":' || e.seq",
        "',\"ts_ns\":' || e.ts_ns",
    ]
    for field in kind.fields:
        column = f"e.{_quoted(field.column)}"
        if field.type in (FieldType.TEXT, FieldType.IDENTIFIER):
            column = f"CAST(to_json({column}) AS VARCHAR)"
        parts.append(f"coalesce(',\"{field.name}\":' || {column}, '')")
    return " || ".join([*parts, "'}'"])


def copies(kind: Kind, table: str, keys: str, position: str) -> str:
    """Inserts into `copies` the rows of `table` whose key is in `keys`, each as its canonical line."""
    return (
        f"INSERT INTO copies SELECT e.source_id, e.seq, e.run_id, '{kind.name}', {position}, {rendered(kind)} "
        f"FROM {table} e SEMI JOIN {keys} k ON k.source_id = e.source_id AND k.seq = e.seq "
        "LEFT JOIN runs r ON r.run_id = e.run_id JOIN sources s ON s.source_id = e.source_id"
    )


def landed_kinds() -> str:
    """The names of the kinds of which anything has landed."""
    return " UNION ALL ".join(
        f"SELECT '{kind.name}' WHERE EXISTS (SELECT 1 FROM {kind.table})" for kind in KINDS.values()
    )
