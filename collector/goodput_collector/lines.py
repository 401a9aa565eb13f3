"""Bad lines: what DuckDB's reader would not take, cut into the JSON objects it holds and what is left over."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from goodput_collector.contract import Reason

HEAD_BYTES = 256
MAX_LINE_BYTES = 16 * 2**20

_NULS = re.compile(rb"\x00+")
_OBJECT_START = re.compile(r'\{[ \t\r\n]*"')


@dataclass(frozen=True, slots=True)
class Piece:
    """A whole JSON object, at bytes `start` to `end` of its line."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Fragment:
    """Bytes `start` to `end` of a line that are no event. `open`: more bytes could still make them one."""

    start: int
    end: int
    reason: Reason
    open: bool = False

    @property
    def unreadable(self) -> bool:
        """Whether it hides what it said, so that nothing may carry over it. NULs say nothing."""
        return self.reason is not Reason.NUL


class _Judge:
    """A strict JSON reader that finds where a value ends, and whether it holds NaN or Infinity."""

    def __init__(self) -> None:
        self._not_finite = False
        # Numbers are only looked over here: a number of a million digits must cost nothing.
        self._decoder = json.JSONDecoder(
            parse_constant=self._constant, parse_int=lambda _: 0, parse_float=lambda _: 0.0, strict=True
        )

    def _constant(self, _: str) -> None:
        self._not_finite = True

    def read(self, text: str, start: int) -> tuple[object, int, bool]:
        """The value at `start`, where it ends, and whether it is finite; raises ValueError where there is none."""
        self._not_finite = False
        try:
            value, end = self._decoder.raw_decode(text, start)
        except RecursionError as error:
            raise ValueError("nested too deeply") from error
        return value, end, not self._not_finite


def split_line(line: bytes, unfinished: bool = False) -> list[Piece | Fragment]:
    """The objects and the rest in one line, in order; nothing for a blank line.

    `unfinished`: the line has no end yet. What more bytes could still make an object is then one open fragment, up
    to the end, and everything before it will be cut the same way however the line goes on.

    A run of NULs separates like the end of a line: what stood there is lost, so the text before it and after it
    must never be read as one.
    """
    found: list[Piece | Fragment] = []
    at = 0
    for nuls in _NULS.finditer(line):
        found += _split_text(line, at, nuls.start(), unfinished=False)
        found.append(Fragment(nuls.start(), nuls.end(), Reason.NUL))
        at = nuls.end()
    return found + _split_text(line, at, len(line), unfinished=unfinished)


def _split_text(line: bytes, start: int, end: int, *, unfinished: bool) -> list[Piece | Fragment]:
    if end - start > MAX_LINE_BYTES:
        return [Fragment(start, end, Reason.TOO_LONG, unfinished)]
    # As Latin-1 one character is one byte, and JSON's own signs are all ASCII.
    text = line[start:end].decode("latin-1")
    judge = _Judge()
    found: list[Piece | Fragment] = []
    at = _skip_space(text, 0)
    while at < len(text):
        try:
            value, stop, finite = judge.read(text, at)
        except ValueError as error:
            stop = len(text) if unfinished and _may_go_on(error, text) else _next_object(judge, text, at, unfinished)
            reason = Reason.TORN if text[at] == "{" else Reason.NOT_JSON
            is_open = unfinished and stop == len(text)
            found.append(_fragment(line, start + at, start + stop, reason, is_open=is_open))
        else:
            if not isinstance(value, dict):
                # A bare word or number may be the middle of anything: the text up to the next object goes with it.
                rest = _next_object(judge, text, at, unfinished)
                whole = not text[stop:rest].strip()
                reason = Reason.NOT_OBJECT if whole else Reason.NOT_JSON
                stop = rest
                found.append(
                    _fragment(line, start + at, start + stop, reason, is_open=unfinished and stop == len(text))
                )
            elif not finite:
                found.append(Fragment(start + at, start + stop, Reason.NOT_FINITE))
            elif not _is_utf8(line[start + at : start + stop]):
                found.append(Fragment(start + at, start + stop, Reason.NOT_UTF8))
            else:
                found.append(Piece(start + at, start + stop))
        at = _skip_space(text, stop)
    return found


def _may_go_on(error: ValueError, text: str) -> bool:
    """Whether the text was good as far as it went; a word or an escape cut in two is noticed at its beginning."""
    if not isinstance(error, json.JSONDecodeError):
        return False
    return error.msg.startswith("Unterminated string") or error.pos >= len(text.rstrip()) - len("-Infinity")


def _skip_space(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _next_object(judge: _Judge, text: str, at: int, unfinished: bool) -> int:
    """Where after `at` the next event seems to begin: an object with a `kind`, which no object inside one has.

    The end, if there is none, or none that is certain while the line is `unfinished`.
    """
    budget = 4 * len(text) + 1_000_000  # a hostile line must not take time in the square of its length
    for match in _OBJECT_START.finditer(text, at + 1):
        try:
            value, stop, _ = judge.read(text, match.start())
        except json.JSONDecodeError as error:
            if unfinished and _may_go_on(error, text):
                break
            budget -= error.pos - match.start() + error.pos // 32 + 1  # an error counts the lines before it
        except ValueError:
            budget -= len(text)
        else:
            if isinstance(value, dict) and "kind" in value:
                return match.start()
            budget -= stop - match.start()
        if budget < 0:
            break
    return len(text)


def _fragment(line: bytes, start: int, end: int, reason: Reason, *, is_open: bool) -> Fragment:
    if not _is_utf8(line[start:end]):
        reason = Reason.NOT_UTF8
    return Fragment(start, end, reason, is_open)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
