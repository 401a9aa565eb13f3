"""Text for the demonstration to learn from: made here by a small grammar, so that nobody else's text is shipped."""

from __future__ import annotations

import random

_WHO = ("rank zero", "the slow rank", "a worker", "the launcher", "the collector", "one node", "the night shift")
_DOES = ("waits for", "reads", "restarts", "forgets", "counts", "writes", "looks for", "catches up with")
_WHAT = ("the last save", "its peers", "a lost step", "the next batch", "a gradient", "every second", "the ledger")
_WHEN = ("before dawn", "after the crash", "as always", "without a word", "once more", "in good time")


def make_text(sentences: int = 4000, seed: int = 7) -> str:
    """Lower-case sentences of four parts, the same for the same `seed`."""
    pick = random.Random(seed).choice
    return " ".join(f"{pick(_WHO)} {pick(_DOES)} {pick(_WHAT)} {pick(_WHEN)}." for _ in range(sentences))
