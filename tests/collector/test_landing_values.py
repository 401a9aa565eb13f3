"""What a JSON value is taken for: the macros of the careful reader, each by itself."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest

from goodput_collector.database import open_database
from goodput_collector.intake import Intake

CASES: dict[str, dict[str | None, Any]] = {
    "gp_integer({})": {
        None: None, "12": 12, "-3": -3, "0": 0, "9": 9, "12.0": 12, "1.2e1": 12, "12.5": None, '"12"': None,
        "true": None,
        "9007199254740993": 9007199254740993, "9223372036854775808": None, "[1]": None,
    },
    "gp_integer_fault({}, 0, 10)": {
        None: None, "0": None, "9": None, "10": "out_of_range", "-1": "out_of_range", "9.0": None, "9.5": "wrong_type",
        '"5"': "wrong_type", "true": "wrong_type", "99999999999999999999": "out_of_range", "-0.5": "wrong_type",
    },
    "gp_number({})": {None: None, "1.5": 1.5, "-2": -2.0, '"1.5"': None},
    "gp_number_fault({})": {None: None, "1.5": None, '"x"': "wrong_type", "1e999": "out_of_range"},
    "gp_text({})": {None: None, '"a"': "a", "1": None, "null": None},
    "gp_text_fault({})": {None: None, '"a"': None, "1": "wrong_type"},
    "gp_flag({})": {None: None, "true": True, "false": False, "1": None, '"true"': None},
    "gp_flag_fault({})": {None: None, "true": None, "false": None, "1": "wrong_type"},
    "gp_identifier({})": {'"a"': "a", "12": "12", "12.0": "12", "12.5": "12.5", "true": None},
    "gp_identifier_fault({})": {None: None, '"a"': None, "12": None, "true": "wrong_type"},
    "gp_object({})": {None: None, '{"a":1}': '{"a":1}', "[1]": None},
    "gp_object_fault({})": {None: None, '{"a":1}': None, "[1]": "wrong_type"},
}  # fmt: skip


@pytest.fixture(scope="module")
def con() -> Any:
    with open_database(":memory:") as opened:
        Intake(opened)
        yield opened


@pytest.mark.parametrize("call", CASES)
def test_a_value_is_taken_for_what_it_is(con: duckdb.DuckDBPyConnection, call: str) -> None:
    found = {
        value: con.execute(f"SELECT {call.format('$value')}", {"value": value}).fetchall()[0][0]
        for value in CASES[call]
    }
    assert found == CASES[call]
