"""How many examples a property is tried on: few by default, many with GOODPUT_HYPOTHESIS=soak."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

SOAK = os.environ.get("GOODPUT_HYPOTHESIS") == "soak"
SOAK_FACTOR = 50


def examples(number: int) -> settings:
    """The same examples every time, so that a failure is somebody's change; new ones in a soak.

    A failing run is as large as it is: it costs a report a try, and shrinking it would take longer than it saves.
    """
    return settings(
        max_examples=number * SOAK_FACTOR if SOAK else number,
        derandomize=not SOAK,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate],
    )
