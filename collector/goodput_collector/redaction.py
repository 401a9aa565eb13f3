"""Secrets taken out of what is kept: command lines, environment, labels and last words may hold some.

What is blotted out becomes asterisks, one for each byte, so that a stream's offsets stay what they are; everything else
of a line stays byte for byte. The fields by which events are told apart and counted are never touched.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence

from goodput_collector.contract import KINDS
from goodput_collector.errors import GoodputCollectorError

WORDS = (
    r"(?:pass(?:word|wd|phrase)|secret|token(?![a-z])|api[-_]?key|access[-_]?key|private[-_]?key|authorization|credentials?"
    r"|cookie|dsn|connection[-_]?string)"
)
"""What names of secrets hold."""
PATTERNS = (
    # KEY=VALUE, --key VALUE, key: VALUE
    rf"(?i)(?:\b|_)[\w.-]*{WORDS}[\w.-]*[\"']?(?:\s*[=:]\s*|\s+(?=\S*[0-9_/+-]))(?:bearer\s+|basic\s+)?[\"']?(?!(?:\d{{1,6}}|true|false|none|null)\b)([^\s\"',;&|)}}\]]{{3,}})",
    r"(?i)\b(?:bearer|basic)\s+([A-Za-z0-9._~+/=-]{8,})",
    r"\b[a-z][a-z0-9+.-]*://[^\s/:@]*:([^\s/@]+)@",  # user:password@host
    r"\b((?:AKIA|ASIA)[A-Z0-9]{16})\b",
    r"\b((?:hf|ghp|gho|ghu|ghs|ghr|glpat|xox[abprs]|sk|rk|pk|npm|pypi|dop_v1|github_pat)[-_][A-Za-z0-9_-]{16,})",
    r"\b(AIza[A-Za-z0-9_-]{30,})",
    r"\b(eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*)",  # a JSON web token
    r"(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----(.+?)(?:-----END|$)",
)
"""What secrets look like; of a pattern with a group the group is blotted out."""

# The kinds of event that hold what people wrote. Only their lines are looked at: there are few, and to search all steps
# would cost more than to take them.
_MARKS = _START, _STOP = (b'"start"', b'"stop"')
# The fields of the contract, but those that hold what people wrote.
_KEPT = frozenset({"kind", "run", "source", "seq", "ts_ns"}).union(
    *({field.name for field in kind.fields} for kind in KINDS.values())
) - {"meta", "labels", "detail"}
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|"(?:[^"\\]|\\.)*\\?$')
_NAME = re.compile(rf"(?i){WORDS}")
_OPTION = re.compile(rf"(?i)--?[\w.-]*{WORDS}[\w.-]*")


class Redaction:
    """Blots out what looks like a secret."""

    def __init__(self, patterns: Iterable[str] = (), *, usual: bool = True) -> None:
        """`patterns`: further regular expressions; `usual`: those of this module and names that speak of secrets.

        Raises GoodputCollectorError for a pattern that is none.
        """
        self._usual = usual
        self._patterns: list[re.Pattern[str]] = []
        for pattern in [*(PATTERNS if usual else ()), *patterns]:
            try:
                self._patterns.append(re.compile(pattern))
            except re.error as error:
                raise GoodputCollectorError(
                    f"The pattern {pattern!r} is no regular expression ({error}); mend it or leave it out."
                ) from error

    def lines(self, data: bytes) -> bytes:
        """Whole lines, as long as they were; of those that tell of a start or a stop."""
        if not self._patterns or (_START not in data and _STOP not in data):
            return data
        parts: list[bytes] = []
        done = 0
        for start, end in _marked(data):
            line = data[start:end]
            told = self.line(line)
            if told is not line:
                parts += [data[done:start], told]
                done = end
        return b"".join([*parts, data[done:]]) if parts else data

    def text(self, text: str) -> str:
        """A text with asterisks for what looks like a secret."""
        for pattern in self._patterns:
            text = pattern.sub(_blotted, text)
        return text

    def line(self, line: bytes) -> bytes:
        """One line, or the beginning of one, whatever it tells.

        Looked at are the strings in it that are no keys, where they stand in no field of the contract that is kept.
        """
        out: list[bytes] = []
        done = 0
        depth: list[bool] = []  # whether each open bracket is an object's
        key: str | None = None
        top: str | None = None
        before: str | None = None  # the string before in a list
        expecting_key = False
        for match in _TOKEN.finditer(line):
            token = match.group()
            sign = token[:1]
            if sign in (b"{", b"["):
                depth.append(sign == b"{")
                expecting_key, before = sign == b"{", None
            elif sign in (b"}", b"]"):
                if depth:
                    depth.pop()
                expecting_key, before = False, None
            elif sign == b",":
                expecting_key = bool(depth) and depth[-1]
            elif sign == b":":
                expecting_key = False
            else:
                text = _text(token)
                if expecting_key:
                    key, before = text, None
                    if len(depth) == 1:
                        top = text
                    continue
                if len(depth) >= 1 and top in _KEPT:
                    continue
                named = self._usual and (
                    (bool(depth) and depth[-1] and key is not None and _NAME.search(key) is not None)
                    or (before is not None and _OPTION.fullmatch(before) is not None)
                )
                hidden = "*" * len(text) if named else self.text(text)
                before = text
                if hidden != text:
                    out += [line[done : match.start()], _written(hidden, token)]
                    done = match.end()
        return b"".join([*out, line[done:]]) if out else line


NOTHING = Redaction(usual=False)
"""Keeps all as it is."""
USUAL = Redaction()
"""What is done where nobody says otherwise."""


def _blotted(match: re.Match[str]) -> str:
    groups: Sequence[int] = [at for at in range(1, (match.re.groups or 0) + 1) if match.group(at) is not None] or [0]
    text = match.group()
    for group in groups:
        start, end = (at - match.start() for at in match.span(group))
        text = f"{text[:start]}{'*' * (end - start)}{text[end:]}"
    return text


def _text(token: bytes) -> str:
    """What a string in JSON says; of one that is cut short, what stands there."""
    try:
        told = json.loads(token)
    except ValueError:
        return token[1:].decode("utf-8", "replace")
    return told if isinstance(told, str) else ""


def _written(text: str, token: bytes) -> bytes:
    """A string in JSON in the place of another, no longer than that, with blanks up to its length."""
    written = json.dumps(text, ensure_ascii=False).encode("utf-8", "replace")
    if len(written) > len(token) or not token.endswith(b'"') or len(token) < 2:
        return token[:1] + b"*" * (len(token) - 2) + (token[-1:] if token.endswith(b'"') else b"*")
    return written.ljust(len(token))


def _marked(data: bytes) -> list[tuple[int, int]]:
    """The lines in which one of the marks stands, in order."""
    found: dict[int, int] = {}
    for mark in _MARKS:
        at = data.find(mark)
        while at >= 0:
            start = data.rfind(b"\n", 0, at) + 1
            end = data.find(b"\n", at)
            found[start] = end = len(data) if end < 0 else end
            at = data.find(mark, end)
    return sorted(found.items())
