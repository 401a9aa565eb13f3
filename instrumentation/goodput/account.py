"""What `goodput run` says when its command has ended: how the attempt went, who died, and what could not be seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from goodput import launchfolder
from goodput.endings import Ending
from goodput.launchfolder import RankFile
from goodput.tally import Summary, ledger_line, summary_lines
from goodput.tallyfile import summary_of_source

_MOST_DEATHS = 3
_MOST_RANKS = 8
_MOST_NOTES = 4


def account(folder: Path, spool: Path, endings: Sequence[Ending], left: Sequence[RankFile]) -> list[str]:
    """The lines, the summary first. `left`: ranks that live on after the command."""
    ranks = launchfolder.read_ranks(folder)
    closed = {source: end.as_summary() for source, end in launchfolder.read_ends(folder).items()}
    lines: list[str] = []
    first = next((rank for rank in reversed(ranks) if rank.rank == 0), None)
    if first is not None:
        summary = closed.get(first.source) or summary_of_source(spool, first.source)
        lines += [] if summary is None else summary_lines(summary)
    bad = sorted((ending for ending in endings if ending.known and not ending.clean), key=lambda end: end.seen_ns)
    # In order of death: after the first few, the launcher clears away.
    lines += [f"rank {end.rank.rank} (process {end.rank.pid}) {end.words()}" for end in bad[:_MOST_DEATHS]]
    if len(bad) > _MOST_DEATHS:
        lines.append(f"{len(bad) - _MOST_DEATHS} more ranks did not end well")
    lines += [f"not seen: {line}" for line in unseen(ranks, closed, launchfolder.read_words(folder))]
    silent = [end.rank for end in endings if not (end.known or end.replaced or end.rank.source in closed)]
    if silent:
        lines.append(f"not seen: how {_named(silent)} ended")
    lines += [f"note: {note}" for note in launchfolder.read_notes(folder)[:_MOST_NOTES]]
    if left:
        lines.append(f"still running: {_named(left)}")
    if ranks:
        lines.append(ledger_line(ranks[-1].run, spool))
    return lines


def unseen(ranks: Sequence[RankFile], closed: Mapping[str, Summary], words: Sequence[str]) -> list[str]:
    """What could not be seen from outside the program. `words`: why nothing could be recorded in some processes."""
    lines = [_word_line(word) for word in words]
    if not ranks and not words:
        lines.append(
            "any training: no Python process imported torch and built an optimizer or a process group (one that was "
            "started with -I, -E or -S, or in another container, is out of reach)"
        )
    expected = max((rank.local_world_size or 0 for rank in ranks), default=0)
    missing = expected - len({rank.local_rank for rank in ranks})
    if missing > 0:
        lines.append(f"{missing} of the {expected} ranks of this node")
    without = [rank for rank in ranks if rank.source in closed and not closed[rank.source].steps]
    if without:
        lines.append(f"any step of {_named(without)}: only torch's own optimizers show theirs")
    elif closed and not any(summary.saves for summary in closed.values()):
        lines.append("any save, by torch.save or torch.distributed.checkpoint: what a failure loses stays unknown")
    return lines


def _word_line(word: str) -> str:
    kind, _, what = word.partition("-")
    if kind == "python":
        return f"a process of Python {what}: recording needs 3.11 or newer"
    return f"a process in which recording could not be begun ({what})"


def _named(ranks: Sequence[RankFile]) -> str:
    numbers = sorted({rank.rank for rank in ranks})
    more = f" and {len(numbers) - _MOST_RANKS} more" if len(numbers) > _MOST_RANKS else ""
    return f"rank {', '.join(map(str, numbers[:_MOST_RANKS]))}{more}"
