"""The rights with which a thread uses the files of sandboxes.

Linux has separate ids for files (setfsuid(2), setfsgid(2)), groups and capabilities for each
thread. glibc's setgroups would change the groups of all threads, so this module makes the system
call itself. The ids are this machine's; the ids that sandboxes have own nothing but sandboxes'
files.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import threading
from dataclasses import dataclass
from typing import Final

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_CAPABILITY_VERSION_3: Final = 0x20080522
_SETGROUPS: Final = {"x86_64": 116, "aarch64": 159}  # the numbers of the system call
_ASK: Final = -1  # an id that setfsuid and setfsgid refuse: they return the one in force


@dataclass(frozen=True, slots=True)
class FileRights:
    """A user's rights, in this machine's numbers. all: whether all files may be used, whatever
    their modes are.
    """

    uid: int
    gid: int
    gids: tuple[int, ...]
    all: bool = False


class _InForce(threading.local):
    rights: FileRights | None = None


_in_force: Final = _InForce()


def act_with(rights: FileRights) -> None:
    """Gives this thread these rights, until it gets others. The process must be root.

    Raises OSError if the kernel refuses.
    """
    if _in_force.rights == rights:
        return
    _in_force.rights = None
    _set_capabilities(effective=True)  # to change ids
    _set_groups(rights.gids)
    _LIBC.setfsgid(rights.gid)
    _LIBC.setfsuid(rights.uid)
    if _LIBC.setfsuid(_ASK) != rights.uid or _LIBC.setfsgid(_ASK) != rights.gid:
        raise PermissionError("this process is not permitted to act as the users of sandboxes")
    # The kernel takes some away with the id, and would leave others.
    _set_capabilities(effective=rights.all)
    _in_force.rights = rights


def _set_groups(gids: tuple[int, ...]) -> None:
    groups = (ctypes.c_uint32 * len(gids))(*gids)
    if _LIBC.syscall(_SETGROUPS[platform.machine()], len(gids), groups) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _set_capabilities(*, effective: bool) -> None:
    """Gives this thread all capabilities that it may have, or none."""
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    data = ctypes.create_string_buffer(24)
    if _LIBC.capget(header, data) == 0:
        words = struct.unpack("=6I", data.raw)
        low, high = (words[1], words[4]) if effective else (0, 0)
        changed = struct.pack("=6I", low, words[1], words[2], high, words[4], words[5])
        if _LIBC.capset(header, changed) == 0:
            return
    number = ctypes.get_errno()
    raise OSError(number, os.strerror(number))
