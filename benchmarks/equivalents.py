"""Changes of the SQL that cannot change any report, each with the reason. `Mutant.key` says how they are named."""

from __future__ import annotations

EQUIVALENT: dict[str, str] = {}
