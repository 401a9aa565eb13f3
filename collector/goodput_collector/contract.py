"""The event contract, version 1, as data: which fields each kind has, what they may hold, where they land."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

TIME_LIMIT_NS = 2**62
COUNT_LIMIT = 2**53
# Beyond these a number is a mistake, and its products with times would no longer fit.
MOST_STEPS_PER_EVENT = 10**9
MOST_RANKS = 10**7
MOST_DEVICES_PER_RANK = 10**6
MOST_GPUS = 10**9


class FieldType(StrEnum):
    """What a field holds in JSON."""

    INTEGER = "integer"
    NUMBER = "number"
    TEXT = "text"
    FLAG = "flag"
    IDENTIFIER = "identifier"
    OBJECT = "object"
    ANY = "any"


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of one kind; `low` (inclusive) and `high` (exclusive) bound integers, `column` is where it lands."""

    name: str
    column: str
    type: FieldType
    required: bool = False
    low: int = 0
    high: int = COUNT_LIMIT


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of event; `fields` are those beyond kind, run, source, seq and ts_ns, in the contract's order."""

    name: str
    fields: tuple[Field, ...]
    needs_run: bool = True

    @property
    def table(self) -> str:
        """The table in which events of this kind land."""
        return f"ev_{self.name}"


def _integer(name: str, *, required: bool = False, low: int = 0, high: int = COUNT_LIMIT) -> Field:
    return Field(name=name, column=name, type=FieldType.INTEGER, required=required, low=low, high=high)


def _time(name: str, *, required: bool = False) -> Field:
    return _integer(name, required=required, high=TIME_LIMIT_NS)


def _text(name: str, *, required: bool = False, column: str | None = None) -> Field:
    return Field(name=name, column=column or name, type=FieldType.TEXT, required=required)


def _other(name: str, type_: FieldType) -> Field:
    return Field(name=name, column=name, type=type_)


SEQ = _integer("seq", required=True)
TS = _time("ts_ns", required=True)

_KINDS = (
    Kind(
        name="start",
        fields=(
            _integer("v", high=2**31),
            _text("job"),
            _integer("restart_count"),
            _integer("rank", required=True),
            _integer("local_rank"),
            _integer("world_size", required=True, low=1, high=MOST_RANKS + 1),
            _text("node"),
            _integer("pid"),
            _integer("devices", low=1, high=MOST_DEVICES_PER_RANK + 1),
            _text("device_kind"),
            _time("process_start_ns"),
            _text("group", column="grp"),
            _other("labels", FieldType.OBJECT),
            _other("meta", FieldType.ANY),
            _text("attempt_token"),
        ),
    ),
    Kind(
        name="joined",
        fields=(
            _text("attempt_token", required=True),
            _integer("rank"),
            _integer("world_size", low=1, high=MOST_RANKS + 1),
        ),
    ),
    Kind(name="resume", fields=(_integer("step"),)),
    Kind(
        name="step",
        fields=(
            _integer("step", required=True),
            _time("start_ns", required=True),
            _time("end_ns", required=True),
            _time("data_ns"),
            _time("busy_ns"),
            _integer("count", low=1, high=MOST_STEPS_PER_EVENT + 1),
            _other("applied", FieldType.FLAG),
            _other("loss", FieldType.NUMBER),
            _other("lr", FieldType.NUMBER),
        ),
    ),
    Kind(
        name="begin",
        fields=(
            _text("span", required=True),
            _other("id", FieldType.IDENTIFIER),
            _integer("step"),
            _text("category"),
            _other("async", FieldType.FLAG),
        ),
    ),
    Kind(
        name="end",
        fields=(
            _text("span", required=True),
            _other("id", FieldType.IDENTIFIER),
            _integer("step"),
            _other("ok", FieldType.FLAG),
        ),
    ),
    Kind(name="durable", fields=(_integer("step", required=True), _other("ok", FieldType.FLAG))),
    Kind(name="progress", fields=()),
    Kind(
        name="heartbeat",
        fields=(_text("of", column="of_source"), _integer("step"), _text("phase"), _time("phase_since_ns")),
    ),
    Kind(name="stop", fields=(_text("reason", required=True), _text("detail"))),
    Kind(
        name="exit_observed",
        fields=(
            _text("of", required=True, column="of_source"),
            _integer("exit_code", low=1 - COUNT_LIMIT),
            _integer("signal"),
            _other("oom", FieldType.FLAG),
        ),
    ),
    Kind(
        name="allocation",
        needs_run=False,
        fields=(
            _text("job", required=True),
            _integer("gpus", required=True, high=MOST_GPUS + 1),
            _time("submit_ns"),
            _time("start_ns", required=True),
            _time("end_ns"),
            _text("end_reason"),
        ),
    ),
    Kind(name="dropped", fields=(_text("reason"), _integer("count"))),
)

KINDS: dict[str, Kind] = {kind.name: kind for kind in _KINDS}


class Reason(StrEnum):
    """Why a line, or a piece of one, was not taken."""

    TORN = "torn"
    NOT_JSON = "not_json"
    NOT_OBJECT = "not_object"
    NOT_UTF8 = "not_utf8"
    NOT_FINITE = "not_finite"
    NUL = "nul"
    TOO_LONG = "too_long"
    UNKNOWN_KIND = "unknown_kind"
    MISSING_FIELD = "missing_field"
    WRONG_TYPE = "wrong_type"
    OUT_OF_RANGE = "out_of_range"
    NO_SOURCE = "no_source"
    NO_RUN = "no_run"
    LATE = "late"
