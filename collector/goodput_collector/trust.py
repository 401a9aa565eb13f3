"""Whether a spool directory is its owner's alone, and reading it with no more rights than the owner's."""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path

from goodput.directory import prepare_directory
from goodput_collector.errors import SpoolError


def check_spool(path: Path) -> int:
    """The user id of the directory's owner; it is made where it is missing.

    Nobody but the owner (and root) may be able to put anything into it, or another directory in its place: what is
    found there is read, removed, and told as the owner's. Raises SpoolError, with what to do.
    """
    try:
        found = path.lstat()
    except FileNotFoundError:
        try:
            prepare_directory(path)
            found = path.lstat()
        except OSError as error:
            raise SpoolError(f"The spool {path} cannot be made ({error.strerror or error}); name another.") from error
    except OSError as error:
        raise SpoolError(f"The spool {path} cannot be read ({error.strerror}); check its name.") from error
    if stat.S_ISLNK(found.st_mode):
        raise SpoolError(
            f"The spool {path} is a link, which another user could turn elsewhere; name the folder itself."
        )
    if not stat.S_ISDIR(found.st_mode):
        raise SpoolError(f"The spool {path} is not a folder; name the folder that the recorder writes to.")
    uid = os.geteuid()
    if found.st_uid != uid and uid != 0:
        raise SpoolError(f"The spool {path} belongs to another user (uid {found.st_uid}); run this as that user.")
    if stat.S_IMODE(found.st_mode) & 0o022:
        if found.st_mode & stat.S_ISVTX:  # such as /tmp: never ours to close
            raise SpoolError(f"The spool {path} is a folder that all users share; name one of your own inside it.")
        raise SpoolError(f"Other users can write to the spool {path}; close it to them: chmod go-w {path}")
    for parent in path.resolve().parents:
        above = parent.stat()
        others = stat.S_IMODE(above.st_mode) & 0o022 and not above.st_mode & stat.S_ISVTX
        if others or above.st_uid not in (0, found.st_uid):
            raise SpoolError(
                f"Another user could put a folder of theirs in the place of the spool {path}: see {parent}"
            )
    return found.st_uid


def drop_rights(uid: int) -> None:
    """From root to the user `uid`, for good; nothing for anybody else. Raises SpoolError."""
    if os.geteuid() != 0 or uid == 0:
        return
    try:
        entry = pwd.getpwuid(uid)
        gid, groups = entry.pw_gid, os.getgrouplist(entry.pw_name, entry.pw_gid)
    except KeyError:
        gid, groups = uid, []
    try:
        os.setgroups(groups)
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    except OSError as error:
        raise SpoolError(
            f"The rights of root could not be given up ({error.strerror}); run this as uid {uid}."
        ) from error
