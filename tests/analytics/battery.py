"""The fixed lives on which product and reference are compared figure by figure.

Chosen from some thousands so that between them they notice every change of a rule that any of them would
(`benchmarks/mutation.py --choose`): a change of the generator wants a new choice.
"""

from __future__ import annotations

# Seeds of `reference.wild.make_wild`.
WILD_SEEDS = tuple(range(40))
# The same, of which only a beginning had been told when somebody looked: (seed, seconds after the last event).
LOOK_SEEDS = tuple((seed, (0, 3, 20, 700)[seed % 4]) for seed in range(1000, 1012))
