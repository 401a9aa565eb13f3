"""How often to save: the interval of compute between checkpoints that loses least."""

from __future__ import annotations

import math


def young_s(blocking_s: float, mtbf_s: float) -> float:
    """Young's first-order optimum, sqrt(2 * delta * M), in seconds (J. W. Young, 1974).

    Args:
        blocking_s: time that the loop is blocked per save (delta).
        mtbf_s: mean time between failures (M).
    """
    return math.sqrt(2.0 * blocking_s * mtbf_s)


def daly_s(blocking_s: float, mtbf_s: float) -> float:
    """Daly's higher-order optimum in seconds (J. T. Daly, Future Generation Computer Systems 22, 2006).

    For delta < 2M it is sqrt(2 delta M) * (1 + sqrt(delta / 2M) / 3 + (delta / 2M) / 9) - delta, else M.

    Args:
        blocking_s: time that the loop is blocked per save (delta).
        mtbf_s: mean time between failures (M).
    """
    if blocking_s >= 2.0 * mtbf_s:
        return mtbf_s
    share = blocking_s / (2.0 * mtbf_s)
    return young_s(blocking_s, mtbf_s) * (1.0 + math.sqrt(share) / 3.0 + share / 9.0) - blocking_s
