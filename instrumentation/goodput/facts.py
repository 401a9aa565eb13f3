"""What later advice needs to know of a process: the free `meta` of its record.

Nothing is imported or initialized for it: what is not loaded yet is left out, and asking CUDA for a name would
initialize it, after which a process cannot fork its DataLoader workers safely.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

_VALUE_MAX_CHARS = 300
_NVIDIA_DEVICES = Path("/proc/driver/nvidia/gpus")
_SETTINGS = ("TORCH_NCCL_", "NCCL_", "TORCH_DISTRIBUTED_", "TORCH_CPP_LOG_LEVEL", "GLOO_")
_DEVICE_CHOICE = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")


def process_facts(variables: Mapping[str, str]) -> dict[str, str]:
    """All that can be told of this process now: versions, devices, process group, settings of its collectives."""
    return {**versions(), **device_facts(variables), **group_facts(), **settings(variables)}


def versions() -> dict[str, str]:
    """Versions of what runs, of packages that are already imported only; `cuda`, `hip` and `nccl` as torch has them."""
    found = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in ("torch", "lightning", "transformers", "accelerate", "deepspeed"):
        version = getattr(sys.modules.get(name), "__version__", None)
        if version is not None:
            found[name] = str(version)
    built = getattr(sys.modules.get("torch"), "version", None)
    for name in ("cuda", "hip"):
        version = getattr(built, name, None)
        if version:
            found[name] = str(version)
    nccl = _nccl_version()
    if nccl is not None:
        found["nccl"] = nccl
    return found


def device_facts(variables: Mapping[str, str]) -> dict[str, str]:
    """`device_names`: the node's GPUs with their number, as the driver lists them, and the variables that choose among
    them. Empty where there are none."""
    found = {name: variables[name] for name in _DEVICE_CHOICE if name in variables}
    names = device_names()
    if names:
        counted = dict.fromkeys(names, 0)
        for name in names:
            counted[name] += 1
        found["device_names"] = ", ".join(f"{count} x {name}" for name, count in counted.items())
    return _short(found)


def device_names() -> list[str]:
    """Models of the node's NVIDIA GPUs, from the driver's own files; empty where it has none."""
    names = []
    try:
        for path in sorted(_NVIDIA_DEVICES.glob("*/information")):
            for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
                title, _, value = line.partition(":")
                if title.strip() == "Model":
                    names.append(value.strip())
    except OSError:
        pass
    return names


def group_facts() -> dict[str, str]:
    """`backend` and `group_timeout_s` of the default process group; empty before it has formed."""
    distributed: Any = sys.modules.get("torch.distributed")
    found: dict[str, str] = {}
    try:
        if distributed is None or not distributed.is_initialized():
            return found
        found["backend"] = str(distributed.get_backend())
        timeout = _group_timeout(distributed)
        if timeout is not None:
            found["group_timeout_s"] = f"{timeout.total_seconds():g}"
    except Exception:
        # torch names these differently from release to release; what it does not tell stays unknown.
        pass
    return found


def settings(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables that steer collectives and their watchdogs, such as `TORCH_NCCL_*`."""
    return _short({name: value for name, value in sorted(variables.items()) if name.startswith(_SETTINGS)})


def current_facts() -> dict[str, str]:
    """`process_facts` of the environment as it is now."""
    return process_facts(os.environ)


def _nccl_version() -> str | None:
    nccl = sys.modules.get("torch.cuda.nccl")
    torch_c = sys.modules.get("torch._C")
    if nccl is None or not hasattr(torch_c, "_nccl_version"):
        return None
    try:
        version = nccl.version()
    except Exception:
        return None
    return ".".join(map(str, version)) if isinstance(version, tuple) else str(version)


def _group_timeout(distributed: Any) -> timedelta | None:
    """The timeout of the default group's first backend that tells it. Not public, and therefore only looked for."""
    group = distributed.group.WORLD
    for kind in ("cuda", "cpu"):
        try:
            device = sys.modules["torch"].device(kind)
            timeout = group._get_backend(device).options._timeout
        except Exception:
            continue
        if isinstance(timeout, timedelta):
            return timeout
    return None


def _short(values: Mapping[str, str]) -> dict[str, str]:
    return {name: value[:_VALUE_MAX_CHARS] for name, value in values.items()}
