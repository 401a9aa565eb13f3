"""The fixed lives on which product and reference are compared figure by figure.

Chosen from some thousands so that between them they notice every change of a rule that any of them would
(`benchmarks/mutation.py --choose`): a change of the generator wants a new choice.
"""

from __future__ import annotations

# Seeds of `reference.wild.make_wild`.
# In DISPUTED lives two readings of the rules differ, in corners that the rules leave open (which rank fell silent first
# where attempts overlap, whose startup a second abort ends, ranks that tell different rollbacks): there the ledger must
# still balance, and nothing more is asked.
DISPUTED = frozenset({2, 5, 24, 27, 1002, 1003, 1008})
WILD_SEEDS = tuple(seed for seed in range(40) if seed not in DISPUTED)
# The same, of which only a beginning had been told when somebody looked: (seed, seconds after the last event).
LOOK_SEEDS = tuple((seed, (0, 3, 20, 700)[seed % 4]) for seed in range(1000, 1012) if seed not in DISPUTED)
# Seeds of `long_lives.long_life`.
LONG_SEEDS = tuple(range(16))
