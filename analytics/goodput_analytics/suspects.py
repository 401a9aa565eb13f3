"""Which ranks an interruption began with, as far as anything tells. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

DEFAULT_BEAT_NS = 5_000_000_000
WAITING = "waiting"
"""The phase of a rank that waits for the others."""
LAUNCHER_SIGNALS = frozenset({"signal 15", "signal 2"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """A rank's last sign of life before its attempt's end, as the relation `signs` tells it. Times in ns."""

    attempt: int
    rank: int
    last_sign_ns: int
    stop_ns: int | None
    stop_reason: str | None
    exit_ns: int | None
    exit_word: str | None
    phase: str | None
    step: int | None
    beat_ns: int | None
    abort_ns: int
    elsewhere_ns: int


def suspect_ranks(cause: str, signs: Sequence[Sign]) -> tuple[int, ...]:
    """The ranks that an attempt's end began with; empty when nothing tells.

    In a hang: those that fell silent before the others by more than two heartbeats; where all spoke, those that are not
    in the phase that the majority had reached. Otherwise: a rank that was killed, or else the one that raised first
    (the lowest among equals).

    Args:
        cause: why the attempt ended.
        signs: its ranks' last signs of life.
    """
    if cause == "hang":
        return _silent(signs) or _elsewhere(signs)
    if cause == "preempted":
        return ()
    return _killed(signs) or _raised_first(signs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """Who is not where the others wait, now.

    Attributes:
        ranks: who; none when nothing tells.
        phases: what they are doing; empty for those that fell silent.
        since_ns: when the last of those that wait had come there.
    """

    ranks: tuple[int, ...]
    phases: tuple[str, ...]
    since_ns: int


def missing_ranks(signs: Sequence[Sign]) -> Missing:
    """The same of an attempt that is still live, with what they do instead."""
    ranks = _silent(signs)
    told = () if ranks else _elsewhere(signs)
    waiting = [s.elsewhere_ns for s in signs if s.phase == WAITING and s.rank not in (ranks or told)]
    return Missing(
        ranks=ranks or told,
        phases=tuple(sorted({s.phase for s in signs if s.rank in told and s.phase is not None})),
        since_ns=max(waiting, default=0),
    )


def _silent(signs: Sequence[Sign]) -> tuple[int, ...]:
    beats = [s.beat_ns for s in signs if s.beat_ns is not None]
    patience_ns = 2 * (beats[0] if beats else DEFAULT_BEAT_NS)
    heard = sorted(signs, key=lambda s: s.last_sign_ns)
    for i in range(1, len(heard)):
        if heard[i].last_sign_ns - heard[i - 1].last_sign_ns > patience_ns:
            return _ranks(heard[:i])
    return ()


def _elsewhere(signs: Sequence[Sign]) -> tuple[int, ...]:
    spoke = [s for s in signs if s.phase is not None]
    return _minority(spoke, [s.phase for s in spoke]) or _minority(spoke, [s.step for s in spoke])


def _minority(signs: Sequence[Sign], places: Sequence[object]) -> tuple[int, ...]:
    """The ranks that are not where more than half are; none if there is no such place."""
    if not places:
        return ()
    place, votes = Counter(places).most_common(1)[0]
    if 2 * votes <= len(places):
        return ()
    return _ranks(s for s, where in zip(signs, places, strict=True) if where != place)


def _killed(signs: Sequence[Sign]) -> tuple[int, ...]:
    raised = [s.stop_ns for s in signs if s.stop_ns is not None]
    patience_ns = 2 * next((s.beat_ns for s in signs if s.beat_ns is not None), DEFAULT_BEAT_NS)
    latest_ns = min(raised) + patience_ns if raised else None
    return _ranks(
        s
        for s in signs
        if s.stop_ns is None
        and s.exit_ns is not None
        and s.exit_word is not None
        and s.exit_word not in LAUNCHER_SIGNALS
        and s.exit_word != "exit code 0"
        and (latest_ns is None or s.exit_ns <= latest_ns)
    )


def _raised_first(signs: Sequence[Sign]) -> tuple[int, ...]:
    raised = [(s.stop_ns, s.rank) for s in signs if s.stop_reason == "exception" and s.stop_ns is not None]
    return (min(raised)[1],) if raised else ()


def _ranks(signs: Iterable[Sign]) -> tuple[int, ...]:
    return tuple(sorted({s.rank for s in signs}))
