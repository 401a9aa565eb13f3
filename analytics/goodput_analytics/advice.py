"""How often to save: the interval of compute between checkpoints that loses least."""

from __future__ import annotations

import math

_NEWTON_STEPS = 60


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


def optimal_s(blocking_s: float, mtbf_s: float) -> float:
    """The exact optimum, in seconds, where failures strike during work, saves and restarts alike.

    It is the T that solves 1 - T/M = exp(-(T + delta)/M), which Daly's series comes near: the minimum of his cost
    function M exp(R/M) (exp((T + delta)/M) - 1) / T, whatever the restart time R.

    Args:
        blocking_s: time that the loop is blocked per save (delta).
        mtbf_s: mean time between failures (M).
    """
    share = blocking_s / mtbf_s
    if share <= 0.0:
        return 0.0
    # With u = T/M: -log(1 - u) - u = delta/M. In w = -log(1 - u) it is w - u = share, which has no cancellation in the
    # slope; Newton's method starts above the root and, the function being convex, comes down to it.
    w = share + min(1.0, math.sqrt(2.0 * share))
    for _ in range(_NEWTON_STEPS):
        step = (_excess(w) - share) / -math.expm1(-w)
        w -= step
        if abs(step) <= 1e-15 * w:
            break
    return -math.expm1(-w) * mtbf_s


def _excess(w: float) -> float:
    """w - (1 - exp(-w)), also where w is so small that the difference would lose its digits."""
    if w > 1e-2:
        return w + math.expm1(-w)
    return w * w * (1 / 2 - w * (1 / 6 - w * (1 / 24 - w * (1 / 120 - w / 720))))
