"""The SQL of the relations, one file each, and how they are run."""

from __future__ import annotations

import re
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
def parameters(name: str) -> frozenset[str]:
    """The parameters that `sql/NAME.sql` binds; comments do not count."""
    code = "\n".join(line.partition("--")[0] for line in sql(name).splitlines())
    return frozenset(re.findall(r"\$(\w+)", code))


def run_sql(con: duckdb.DuckDBPyConnection, name: str, values: Mapping[str, Any] | None = None) -> None:
    """Build the relation NAME; of `values` those that its text names are bound as parameters."""
    bound = {key: value for key, value in (values or {}).items() if key in parameters(name)}
    con.execute(sql(name), bound or None)


def rows(con: duckdb.DuckDBPyConnection, query: str, values: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """The rows of a query over relations, as mappings from column to value."""
    cursor = con.execute(query, values or None)
    names = [column[0] for column in cursor.description or ()]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
