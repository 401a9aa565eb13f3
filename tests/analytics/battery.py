"""The fixed lives on which product and reference are compared figure by figure.

The first of each kind, and those in which the two had once read the rules differently: each of these holds a decision.
(`benchmarks/mutation.py --choose` chooses, from some thousands, lives that between them notice every change of a rule.)
"""

from __future__ import annotations

# Seeds of `reference.wild.make_wild`.
ONCE_DISPUTED = (
    *(
        44,
        50,
        64,
        83,
        94,
        102,
        108,
        112,
        117,
        119,
        122,
        129,
        132,
        133,
        135,
        143,
        147,
        154,
        163,
        173,
        195,
        211,
        214,
        218,
    ),
    *(222, 223, 226, 234, 247, 320, 369, 398, 418, 496, 1001, 1006, 1009),
)
WILD_SEEDS = (*range(40), *ONCE_DISPUTED)
# The same, of which only a beginning had been told when somebody looked: (seed, seconds after the last event).
ONCE_DISPUTED_LOOKS = (1013, 1018, 1033, 1046, 1048, 1105, 1131, 1212, 1223, 1252, 1311, 1352)
LOOK_SEEDS = tuple((seed, (0, 3, 20, 700)[seed % 4]) for seed in (*range(1000, 1012), *ONCE_DISPUTED_LOOKS))
# Seeds of lives with what the rules leave open (`make_wild(..., disputed=True)`): ranks that count differently, grants
# smaller than what runs on them. There the ledger must balance, and nothing more is asked.
OPEN_SEEDS = tuple(range(20))
# Seeds of `cases.strict_case`.
STRICT_SEEDS = tuple(range(10))
# Seeds of `long_lives.long_life`.
LONG_SEEDS = tuple(range(16))
