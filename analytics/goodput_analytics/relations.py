"""The SQL of the relations, one file each, and how they are run."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

import duckdb


@cache
def sql(name: str) -> str:
    """The text of `sql/NAME.sql`."""
    return resources.files(__package__).joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")


@cache
def statements(name: str) -> tuple[duckdb.Statement, ...]:
    """The statements of `sql/NAME.sql`, read once: reading them is a tenth of the cost of a small run's report."""
    return tuple(duckdb.extract_statements(sql(name)))


def run_sql(con: duckdb.DuckDBPyConnection, name: str, values: Mapping[str, Any] | None = None) -> None:
    """Build the relation NAME; of `values` those that its text names are bound as parameters."""
    for statement in statements(name):
        bound = {key: value for key, value in (values or {}).items() if key in statement.named_parameters}
        con.execute(statement, bound or None)


def rows(con: duckdb.DuckDBPyConnection, query: str, values: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """The rows of a query over relations, as mappings from column to value."""
    cursor = con.execute(query, values or None)
    names = [column[0] for column in cursor.description or ()]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
