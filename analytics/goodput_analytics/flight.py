"""Who did not reach the collective that the others wait in, by the dumps of torch's flight recorder.

Each rank keeps the last collectives that it entered, and dumps them when one of them times out
(`TORCH_FR_BUFFER_SIZE`, `TORCH_NCCL_DUMP_ON_TIMEOUT`, `TORCH_NCCL_DEBUG_INFO_TEMP_FILE`; the file's name ends in the
rank). Collectives of a group are numbered: a rank whose last number is below the highest has not come to where the
others are.
Format: PyTorch's documentation of the flight recorder, version 2.x of the dump.
"""

from __future__ import annotations

import io
import json
import pickle
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MOST_BYTES = 256 * 2**20
"""A dump is a few MiB; what is larger is none."""


class FlightError(Exception):
    """A file that is no dump, or none that can be read; the message says which and why."""


class _PlainOnly(pickle.Unpickler):
    """A pickle can run any code when it is read. Dumps hold plain values: whatever asks for a class is refused."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no dump needs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dump:
    """What one rank dumped.

    Attributes:
        rank: its global rank, from the file's name.
        reached: per group of ranks (its name) the number of the last collective that it entered, and which one it was.
        members: the ranks of each group, where the dump says it.
    """

    rank: int
    reached: dict[str, tuple[int, str]]
    members: dict[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A group in which some wait.

    Attributes:
        group: its name.
        number, operation: the collective that they wait in.
        waiting: the ranks that entered it.
        missing: ranks that did not, with the last one that they entered (0: none that is known).
        unknown: ranks of the group that left no dump.
    """

    group: str
    number: int
    operation: str
    waiting: tuple[int, ...]
    missing: tuple[tuple[int, int], ...]
    unknown: tuple[int, ...]


def read_dump(path: Path) -> Dump:
    """The dump in a file. Raises FlightError."""
    digits = re.search(r"(\d+)(?:\.(?:json|pickle|pkl))?$", path.name)
    if digits is None:
        raise FlightError(f"{path.name}: a dump's name ends in its rank")
    try:
        if path.stat().st_size > MOST_BYTES:
            raise FlightError(f"{path.name} is too large for a dump")
        data = path.read_bytes()
        told = json.loads(data) if data[:1] in b"{[" else _PlainOnly(io.BytesIO(data)).load()
    except FlightError:
        raise
    except Exception as error:  # whatever a broken pickle raises
        raise FlightError(f"{path.name} is no dump of the flight recorder: {error}") from error
    if not isinstance(told, Mapping) or not isinstance(told.get("entries", []), list):
        raise FlightError(f"{path.name} is no dump of the flight recorder: it has no entries")
    reached: dict[str, tuple[int, str]] = {}
    for entry in told.get("entries", []):
        number = entry.get("collective_seq_id") if isinstance(entry, Mapping) else None
        if not isinstance(number, int) or entry.get("is_p2p"):
            continue
        name = _group(entry.get("process_group"))
        if number >= reached.get(name, (0, ""))[0]:
            reached[name] = (number, str(entry.get("profiling_name", "a collective")))
    return Dump(rank=int(digits.group(1)), reached=reached, members=_members(told.get("pg_config")))


def _group(told: object) -> str:
    """A group's name: the dump gives (name, description)."""
    return str(told[0]) if isinstance(told, list | tuple) and told else str(told)


def _members(told: object) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for key, config in told.items() if isinstance(told, Mapping) else ():
        ranks = config.get("ranks") if isinstance(config, Mapping) else None
        found[str(key)] = tuple(sorted(int(number) for number in re.findall(r"\d{1,9}", str(ranks or ""))))
    return found


def waiting(dumps: Iterable[Dump]) -> list[Waiting]:
    """The groups in which somebody is missing, or left no dump; the one with the fewest that came first.

    A group in which all entered the same collective is not told: what they wait for lies elsewhere.
    """
    told = sorted(dumps, key=lambda dump: dump.rank)
    known = {dump.rank for dump in told}
    found: list[Waiting] = []
    for group in sorted({name for dump in told for name in dump.reached}):
        # The default group is named "0" among the entries and "" in the configuration.
        names = (group, "") if group == "0" else (group,)
        members = {rank for dump in told for name in names for rank in dump.members.get(name, ())}
        here = members or {dump.rank for dump in told if group in dump.reached}
        last = {dump.rank: dump.reached.get(group, (0, "")) for dump in told if dump.rank in here}
        number, operation = max(last.values())
        missing = tuple((rank, last[rank][0]) for rank in sorted(last) if last[rank][0] < number)
        unknown = tuple(sorted(here - known))
        if missing or unknown:
            came = tuple(rank for rank in sorted(last) if last[rank][0] == number)
            found.append(
                Waiting(group=group, number=number, operation=operation, waiting=came, missing=missing, unknown=unknown)
            )
    return sorted(found, key=lambda one: (not one.missing, len(one.missing) + len(one.unknown), one.group))
