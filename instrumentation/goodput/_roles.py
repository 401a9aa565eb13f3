"""Which work a rank does by design, from its place in a `DeviceMesh`: it is held against its like."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

STAGES = ("pp", "pipe", "pipeline", "stage")
"""Names of mesh dimensions along which ranks do different work. Along all others (data, tensor, context, expert) they
do the same, and one that is slower is slow."""


def role(mesh: Any, *dims: str) -> str | None:
    """This rank's role, such as `pp=1`; None where the mesh has no such dimension, or this rank is not in it.

    Args:
        mesh: a `torch.distributed.DeviceMesh` whose dimensions have names, or a slice of one.
        dims: along which of them ranks do different work (default: a pipeline's stages, by the usual names).
    """
    told = {}
    for one in (mesh, _root(mesh)):
        names, place = (one.mesh_dim_names, one.get_coordinate()) if one is not None else (None, None)
        for dim, name in enumerate(names or ()):
            if place is not None and name in (dims or STAGES) and one.size(dim) > 1:
                told[name] = place[dim]
    return ",".join(f"{name}={told[name]}" for name in sorted(told)) or None


def role_of_parameters(parameters: Iterable[Any]) -> str | None:
    """The same from the mesh on which sharded parameters lie."""
    for parameter in parameters:
        mesh = getattr(parameter, "device_mesh", None)
        if mesh is not None:
            return role(mesh)
    return None


def _root(mesh: Any) -> Any:
    """The mesh that this one is a slice of. Not public, and another call from release to release; None without it."""
    try:
        if hasattr(mesh, "_get_root_mesh"):
            return mesh._get_root_mesh()
        from torch.distributed import device_mesh

        resources: Any = vars(device_mesh).get("_mesh_resources")
        return None if resources is None else resources.get_root_mesh(mesh)
    except Exception:
        return None
