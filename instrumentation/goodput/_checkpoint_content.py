"""What is in a checkpoint: whether a saved object is one, and which step a loaded one holds.

Tensors, modules and optimizers are known here by what they can do, so that nothing has to be imported.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

STEP_NAMES = ("global_step", "step", "steps", "iteration", "iter", "optimizer_step")
"""Under which a loop keeps its step number in a checkpoint, in the order in which they are looked for."""

_DEPTH_MAX = 4
_WIDTH_MAX = 64
_WRAPPERS = ("module.", "_orig_mod.")


def optimizer_steps(optimizer: Any) -> int | None:
    """How many updates an optimizer's state counts, None where it does not (SGD) or where nothing is in it.

    Reads one element per tensor in host memory, else a single one from the device.
    """
    found = None
    for state in list(optimizer.state.values()):
        step = state.get("step") if isinstance(state, Mapping) else None
        if step is None:
            continue
        number = float(step)
        if math.isfinite(number):
            found = max(found or 0, int(number))
        if getattr(getattr(step, "device", None), "type", "cpu") != "cpu":
            break
    return found


def has_state(optimizer: Any) -> bool:
    """An optimizer has made updates, or was given the state of one that has."""
    return any(bool(state) for state in list(optimizer.state.values()))


def named_step(loaded: object) -> int | None:
    """The step number that a loaded checkpoint tells by name, None where it does not."""
    if not isinstance(loaded, Mapping):
        return None
    for name in STEP_NAMES:
        step = loaded.get(name)
        if type(step) is int and step >= 0:
            return step
    return None


class Weights:
    """Recognizes a checkpoint of certain parameters, by their names, their memory, or the optimizer's state."""

    def __init__(self, model: Any, optimizers: Iterable[Any]) -> None:
        self._model = model
        self._optimizers = list(optimizers)

    def in_(self, saved: object) -> bool:
        """What is saved holds the model's weights or the optimizer's state."""
        names = set() if self._model is None else {_bare(name) for name, _ in self._model.named_parameters()}
        owned = {id(self._model), *map(id, self._optimizers)} - {id(None)}
        return _search(saved, names, self._addresses(), owned, 0)

    def _addresses(self) -> set[int]:
        parameters = [p for optimizer in self._optimizers for group in optimizer.param_groups for p in group["params"]]
        if self._model is not None:
            parameters += list(self._model.parameters())
        return {address for address in map(_address, parameters) if address}


def _search(value: object, names: set[str], addresses: set[int], owned: set[int], depth: int) -> bool:
    if id(value) in owned or _address(value) in addresses:
        return True
    if depth > _DEPTH_MAX:
        return False
    if isinstance(value, Mapping):
        if "param_groups" in value and "state" in value:
            return True
        for name, part in islice(value.items(), _WIDTH_MAX):
            if isinstance(name, str) and hasattr(part, "untyped_storage") and _bare(name) in names:
                return True
            if _search(part, names, addresses, owned, depth + 1):
                return True
    elif isinstance(value, list | tuple):
        return any(_search(part, names, addresses, owned, depth + 1) for part in islice(value, _WIDTH_MAX))
    return False


def _address(value: object) -> int:
    """Where a tensor's data lies; 0 for none, and for tensors that have no memory of their own."""
    if not hasattr(value, "untyped_storage"):
        return 0
    try:
        return int(value.data_ptr())  # type: ignore[attr-defined]
    except Exception:
        return 0


def _bare(name: str) -> str:
    """A parameter's name without those of the wrappers around its model."""
    for wrapper in _WRAPPERS:
        name = name.replace(wrapper, "")
    return name
