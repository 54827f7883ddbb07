"""Tar archives, read member by member: what is sent into a container and what it returns. Pure."""

from __future__ import annotations

import copy
import posixpath
import tarfile
from collections.abc import Iterator
from typing import IO, Final

from gymmesh.sandbox.v1 import files_pb2
from gymmesh_runtime.errors import field_invalid
from gymmesh_sandbox.errors import path_invalid

_ENCODING: Final = "utf-8"
_ERRORS: Final = "surrogateescape"
#: How tarfile calls the compression of a format.
COMPRESSION: Final = {
    files_pb2.ARCHIVE_FORMAT_UNSPECIFIED: "",
    files_pb2.ARCHIVE_FORMAT_TAR: "",
    files_pb2.ARCHIVE_FORMAT_TAR_GZIP: "gz",
}


def open_archive(file: IO[bytes], mode: str) -> tarfile.TarFile:
    """Opens an archive as a stream; names may have any bytes."""
    return tarfile.open(  # type: ignore[no-any-return,call-overload]
        fileobj=file, mode=mode, format=tarfile.PAX_FORMAT, encoding=_ENCODING, errors=_ERRORS
    )


def as_bytes(name: str) -> bytes:
    """A member's name."""
    return name.encode(_ENCODING, _ERRORS)


def checked(archive: tarfile.TarFile, folder: bytes, max_bytes: int) -> Iterator[tarfile.TarInfo]:
    """The checked members of an archive that will be unpacked in a folder.

    Raises SANDBOX_PATH_INVALID for a member that would be outside the folder, as far as the archive
    alone shows, and for anything but a file, a folder or a link. Raises FIELD_INVALID if the files
    have more than `max_bytes`.
    """
    links: set[str] = set()
    size = 0
    for member in archive:
        name = posixpath.normpath(member.name)
        shown = as_bytes(member.name)
        if name.startswith(("/", "../")) or name == "..":
            raise path_invalid(shown, f"would be outside of {folder.decode('utf-8', 'replace')!r}")
        if any(above in links for above in _above(name)):
            raise path_invalid(shown, "goes through a link in the archive")
        if not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
            raise path_invalid(shown, "is neither a file, a folder nor a link")
        if member.islnk():
            target = posixpath.normpath(member.linkname)
            outside = target.startswith(("/", "../")) or target == ".."
            if outside or any(above in links for above in (*_above(target), target)):
                raise path_invalid(shown, "is a hard link to a file outside of the folder")
        if member.issym():
            links.add(name)
        else:
            links.discard(name)
        size += member.size
        if size > max_bytes:
            raise field_invalid("content", f"unpacks to more than {max_bytes} bytes")
        yield member


def folders_of(archive: tarfile.TarFile, folder: bytes, max_bytes: int) -> list[bytes]:
    """The folders of the members, relative to the folder in which the archive is unpacked."""
    found: set[bytes] = set()
    for member in checked(archive, folder, max_bytes):
        name = posixpath.normpath(member.name)
        found.update(as_bytes(above) for above in _above(name))
        if member.isdir() and name != ".":
            found.add(as_bytes(name))
    return sorted(found)


def owned(source: tarfile.TarFile, target: tarfile.TarFile, uid: int, gid: int) -> None:
    """Copies an archive so that its files belong to a user."""
    for member in source:
        changed = copy.copy(member)
        changed.uid, changed.gid, changed.uname, changed.gname = uid, gid, "", ""
        # Names as they are in the container; a record of pax would take their place.
        changed.pax_headers = {}
        content = source.extractfile(member) if member.isreg() else None
        target.addfile(changed, content)


def folders_of_file(path: str, mode: str, folder: bytes, max_bytes: int) -> list[bytes]:
    """`folders_of` an archive on this machine."""
    with open(path, "rb") as file, open_archive(file, mode) as archive:
        return folders_of(archive, folder, max_bytes)


def owned_file(path: str, mode: str, spool: IO[bytes], uid: int, gid: int) -> None:
    """`owned` for an archive on this machine; the result is a file that is read from its start."""
    with (
        open(path, "rb") as file,
        open_archive(file, mode) as source,
        open_archive(spool, "w") as target,
    ):
        owned(source, target, uid, gid)
    spool.seek(0)


def relative(source: tarfile.TarFile, target: tarfile.TarFile, top: str) -> None:
    """Copies a container's archive: names start below `top`, which is removed from them.

    An empty `top` means a single file. Devices, sockets and pipes are omitted.
    """
    for member in source:
        if not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
            continue
        changed = copy.copy(member)
        changed.pax_headers = {}
        name = posixpath.normpath(member.name)
        if top:
            name = _below(name, top)
            if name in ("", "."):
                continue
            if member.islnk():
                changed.linkname = _below(posixpath.normpath(member.linkname), top)
        changed.name = name
        content = source.extractfile(member) if member.isreg() else None
        target.addfile(changed, content)


def _below(name: str, top: str) -> str:
    if name == top:
        return ""
    return name[len(top) + 1 :] if name.startswith(top + "/") else name


def _above(name: str) -> Iterator[str]:
    while name := posixpath.dirname(name):
        yield name
