"""Small changes of SQL text: one comparison, one precedence, one choice at a time. Comments and strings stay."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

SWAPS = {
    "<=": "<",
    "<": "<=",
    ">=": ">",
    ">": ">=",
    "=": "<>",
    "<>": "=",
    "+": "-",
    "-": "+",
    "//": "/",
}
ARITHMETIC = ("+", "-", "//")
WORDS = {
    "min": "max",
    "max": "min",
    "least": "greatest",
    "greatest": "least",
    "arg_min": "arg_max",
    "arg_max": "arg_min",
    "bool_or": "bool_and",
    "bool_and": "bool_or",
    "lag": "lead",
    "lead": "lag",
    "first_value": "last_value",
    "last_value": "first_value",
}
OPERATOR = re.compile(r"<=|>=|<>|!=|:=|=>|->>|->|::|//|[<>=+\-]")
WORD = re.compile(r"\b(" + "|".join(WORDS) + r")\s*\(", re.IGNORECASE)
LOGIC = re.compile(r"\b(AND|OR)\b(?! REPLACE)")
NUMBER = re.compile(r"(?<![\w.$\[])(\d+)(?![\w.])")
NULLS = re.compile(r"\bIS (NOT )?(NULL|DISTINCT FROM)\b")
NOT = re.compile(r"\bNOT (?!NULL|DISTINCT|EXISTS|IN\b|MATERIALIZED)")
ORDER = re.compile(r"\bORDER BY\b")
ORDER_ENDS = re.compile(r"\b(ROWS|RANGE|LIMIT|QUALIFY|WINDOW|UNION|GROUP)\b")
ASSIGNS = re.compile(r"\bUPDATE\b[^;]*\bSET\b(?![^;]*\b(FROM|WHERE)\b)[^;]*$")
LARGEST = 1_000_000_000_000


class Sort(StrEnum):
    """What a change touches."""

    COMPARISON = "comparison"
    PRECEDENCE = "precedence"  # which comes first: of rows, of a CASE's branches, of what coalesce is given
    LOGIC = "logic"
    CHOICE = "choice"  # the least for the greatest, the row before for the row after, any for all
    ARITHMETIC = "arithmetic"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One changed text of `sql/NAME.sql`."""

    name: str
    sort: Sort
    line: int
    was: str
    now: str
    text: str

    @property
    def key(self) -> str:
        """What it is, without its line number: that moves."""
        return f"{self.name}: {self.was} -> {self.now}"

    def __str__(self) -> str:
        return f"{self.name}.sql:{self.line}: {self.was}  ->  {self.now}"


def mutants(name: str, text: str) -> list[Mutant]:
    """All changes of one file, in order of place."""
    code = _code_only(text)
    found: dict[str, Mutant] = {}
    for start, end, new, sort in sorted(_edits(code, text)):
        changed = text[:start] + new + text[end:]
        if changed == text or changed in found:
            continue
        low, high = _around(text, start, end)
        found[changed] = Mutant(
            name=name,
            sort=sort,
            line=text.count("\n", 0, start) + 1,
            was=" ".join(text[low:high].split()),
            now=" ".join((text[low:start] + new + text[end:high]).split()),
            text=changed,
        )
    return list(found.values())


def _code_only(text: str) -> str:
    """The text with comments and strings blanked out, each character in its place."""
    return re.sub(r"--[^\n]*|'[^']*'", lambda m: re.sub(r"[^\n]", " ", m.group()), text)


def _around(text: str, start: int, end: int) -> tuple[int, int]:
    """Enough of the line to recognise the place by."""
    low = max(text.rfind("\n", 0, start) + 1, start - 40)
    stop = text.find("\n", end)
    return low, min(len(text) if stop < 0 else stop, end + 40)


def _edits(code: str, text: str) -> Iterator[tuple[int, int, str, Sort]]:
    for m in OPERATOR.finditer(code):
        new = SWAPS.get(m.group())
        if m.group() == "=" and ASSIGNS.search(code[: m.start()]):
            continue  # an assignment compares nothing
        if new is not None and not (m.group() in "+-" and _unary(code, m.start())):
            yield m.start(), m.end(), new, Sort.ARITHMETIC if m.group() in ARITHMETIC else Sort.COMPARISON
    for m in WORD.finditer(code):
        yield m.start(1), m.end(1), WORDS[m.group(1).lower()], Sort.CHOICE
    yield from _logic(code)
    for m in NULLS.finditer(code):
        new = f"IS {m.group(2)}" if m.group(1) else f"IS NOT {m.group(2)}"
        yield m.start(), m.end(), new, Sort.LOGIC
    for m in NOT.finditer(code):
        yield m.start(), m.end(), "", Sort.LOGIC
    for m in NUMBER.finditer(code):
        if 2 <= int(m.group(1)) < LARGEST:
            yield m.start(1), m.end(1), str(int(m.group(1)) - 1), Sort.ARITHMETIC
    for edit in (*_orders(code), *_coalesced(code, text), *_cases(code, text)):
        yield *edit, Sort.PRECEDENCE


def _unary(code: str, at: int) -> bool:
    before = code[:at].rstrip()
    return not before or before[-1] in "(,<>=+-*/[" or bool(re.search(r"\b(THEN|ELSE|AND|OR|SELECT|WHEN)$", before))


def _logic(code: str) -> Iterator[tuple[int, int, str, Sort]]:
    """AND and OR; the AND of a BETWEEN moves an end of it instead."""
    ranges = set()
    for m in re.finditer(r"\bBETWEEN\b", code):
        if re.match(r"\s*(UNBOUNDED|\d+ (PRECEDING|FOLLOWING)|CURRENT)", code[m.end() :]):
            ranges.add(_matching_and(code, m.end()))
            continue
        yield m.end(), m.end(), " 1 +", Sort.COMPARISON
        upper = _matching_and(code, m.end())
        ranges.add(upper)
        yield upper + 3, upper + 3, " -1 +", Sort.COMPARISON
    for m in LOGIC.finditer(code):
        if m.start() not in ranges:
            yield m.start(), m.end(), "OR" if m.group() == "AND" else "AND", Sort.LOGIC


def _matching_and(code: str, at: int) -> int:
    depth = 0
    for i in range(at, len(code)):
        depth += (code[i] == "(") - (code[i] == ")")
        if depth == 0 and re.match(r"\bAND\b", code[i:]) and not code[i - 1].isalnum():
            return i
    return -1


def _orders(code: str) -> Iterator[tuple[int, int, str]]:
    for m in ORDER.finditer(code):
        depth, item = 0, m.end()
        for i in range(m.end(), len(code) + 1):
            ends = i == len(code) or (depth == 0 and (code[i] == ")" or bool(ORDER_ENDS.match(code, i))))
            if ends or (depth == 0 and code[i] == ","):
                part = code[item:i]
                if part.rstrip().endswith(" DESC"):
                    where = item + part.rindex(" DESC")
                    yield where, where + 5, ""
                elif part.strip():
                    where = item + len(part.rstrip())
                    yield where, where, " DESC"
                item = i + 1
            if ends:
                break
            depth += (code[i] == "(") - (code[i] == ")")


def _coalesced(code: str, text: str) -> Iterator[tuple[int, int, str]]:
    """coalesce with its first two arguments changed about."""
    for m in re.finditer(r"\bcoalesce\(", code):
        cuts, depth = [m.end()], 0
        for i in range(m.end(), len(code)):
            if depth == 0 and code[i] in ",)":
                cuts.append(i)
                if code[i] == ")":
                    break
            depth += (code[i] == "(") - (code[i] == ")")
        one, two = text[cuts[0] : cuts[1]], text[cuts[1] + 1 : cuts[2]]
        yield cuts[0], cuts[2], f"{two.strip()}, {one.strip()}"


def _cases(code: str, text: str) -> Iterator[tuple[int, int, str]]:
    """Two branches of a CASE changed about: the first that holds counts."""
    words = list(re.finditer(r"\b(CASE|WHEN|ELSE|END)\b", code))
    for i, m in enumerate(words):
        if m.group() != "CASE":
            continue
        depth, marks = 0, []
        for w in words[i + 1 :]:
            if w.group() == "CASE":
                depth += 1
            elif w.group() == "END" and depth:
                depth -= 1
            elif depth == 0:
                marks.append(w)
                if w.group() == "END":
                    break
        whens = [w for w in marks if w.group() == "WHEN"]
        for one, two in pairwise(whens):
            end = marks[marks.index(two) + 1].start()
            first, second = text[one.start() : two.start()], text[two.start() : end]
            yield one.start(), end, f"{second.rstrip()} {first}"
