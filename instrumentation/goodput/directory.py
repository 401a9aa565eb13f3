"""Where the spool is, and whether that place can be trusted."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def user_directory_name() -> str:
    """One folder per user, so that two users of a node never meet in it."""
    return f"goodput-{os.geteuid()}"


def default_spool_directory() -> Path:
    """`goodput-<uid>` in the temporary directory: node-local, never a home directory on a network file system."""
    # Imported where it is needed: it brings a dozen modules, and every process of a job imports us.
    import tempfile

    return Path(tempfile.gettempdir()) / user_directory_name()


def prepare_directory(path: Path) -> None:
    """Make a private directory, or check the one that is there.

    It must be a directory and no link, and belong to this user (or to root, who could read it anyway); one of ours
    that others can enter is closed to them. Raises PermissionError with a plain sentence, or OSError.
    """
    try:
        found = path.lstat()
    except FileNotFoundError:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.mkdir(mode=0o700)
        except FileExistsError:
            pass
        found = path.lstat()
    if stat.S_ISLNK(found.st_mode):
        raise PermissionError(f"{path} is a link: give the directory itself")
    if not stat.S_ISDIR(found.st_mode):
        raise PermissionError(f"{path} is not a directory")
    if found.st_uid not in (os.geteuid(), 0):
        raise PermissionError(f"{path} belongs to another user (uid {found.st_uid})")
    if found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) & 0o077:
        if path.name != user_directory_name():
            return  # Named by the user, who may want to share it.
        path.chmod(0o700)


def tmpfs_directory(root: str | None) -> Path | None:
    """Our folder on tmpfs, made when missing; None when `root` is none: a mapped disk file could fault on a frozen
    disk, and nothing could end the process then. Raises OSError."""
    if root is None or not is_tmpfs(root):
        return None
    path = Path(root) / user_directory_name()
    prepare_directory(path)
    return path


def is_tmpfs(path: str) -> bool:
    """The file system mounted at this path, or at the nearest mount point above it, is tmpfs."""
    real = os.path.realpath(path)
    best, kind = "", ""
    try:
        with Path("/proc/self/mounts").open(encoding="utf-8", errors="surrogateescape") as mounts:
            for line in mounts:
                fields = line.split(" ")
                # Blanks in mount points are written as octal escapes.
                point = fields[1].encode("latin-1", "replace").decode("unicode_escape", "replace")
                inside = real == point or real.startswith(point.rstrip("/") + "/")
                # The last mount on a point hides those before it.
                if inside and len(point) >= len(best):
                    best, kind = point, fields[2]
    except (OSError, IndexError):
        return False
    return kind in ("tmpfs", "ramfs")
