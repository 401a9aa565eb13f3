"""All scenarios."""

from __future__ import annotations

import interruptions
import looks
import steps
from scenario import Scenario

SCENARIOS: tuple[Scenario, ...] = (*interruptions.ALL, *looks.ALL, *steps.ALL)
