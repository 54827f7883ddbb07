"""Layers of container images, unpacked once as layers of overlayfs.

Formats: layer.md of the OCI image specification. In overlayfs, a removed file is a character device
0:0, and a folder that hides everything below it has an attribute (overlayfs.rst of the kernel). A
layer is not trusted: its paths are followed only within its own folder, by openat2. Devices and
extended attributes are omitted.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tarfile
from pathlib import Path
from typing import IO, cast

from gymmesh_runtime.errors import MeshError
from gymmesh_sandbox.backends.bubblewrap.oci import HashedFile, ImageError
from gymmesh_sandbox.backends.bubblewrap.tree import IdMap, Owner, SandboxTree, write_all

_REMOVED, _OPAQUE = b".wh.", b".wh..wh..opq"
_CONTENT = 256 << 10
_ROOT = Owner(0, 0)


def unpack_layer(archive: IO[bytes], diff_id: str, folder: Path, ids: IdMap) -> None:
    """Unpacks a layer into a new folder.

    Args:
        archive: the uncompressed archive.
        diff_id: the digest that the archive must have.
        ids: the sandboxes' user ids on this machine.

    Raises ImageError and OSError.
    """
    folder.mkdir(parents=True)
    tree = SandboxTree(
        os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC), ids, owns=os.geteuid() == 0
    )
    hashed = HashedFile(archive)
    try:
        if os.geteuid() == 0:
            os.chown(folder, ids.first, ids.first)
        with tarfile.open(fileobj=hashed, mode="r|", errors="surrogateescape") as tar:
            unpacker = _LayerUnpacker(tree, ids)
            for member in tar:
                unpacker.unpack(tar, member)
        if hashed.digest() != diff_id:
            raise ImageError("the content of a layer does not match its digest")
    except (tarfile.TarError, EOFError, MeshError, ValueError) as error:
        if isinstance(error, ImageError):
            raise
        raise ImageError(f"a layer is broken ({error})") from None
    finally:
        tree.close()


class _LayerUnpacker:
    def __init__(self, tree: SandboxTree, ids: IdMap) -> None:
        self._tree = tree
        self._ids = ids

    def unpack(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        parts = [part for part in os.fsencode(member.name).split(b"/") if part not in (b"", b".")]
        if b".." in parts:
            raise ImageError(f"a layer has the file {member.name!r}, which is outside the image")
        if not parts:
            return
        name = parts[-1]
        with self._tree.folder(b"/" + b"/".join(parts[:-1]), _ROOT) as parent:
            if name == _OPAQUE:
                scope = "trusted" if os.geteuid() == 0 else "user"
                os.setxattr(parent, f"{scope}.overlay.opaque", b"y")
            elif name.startswith(_REMOVED):
                self._remove(parent, name.removeprefix(_REMOVED))
            elif member.isdir():
                self._make_folder(parent, name, member)
            else:
                self._make_file(tar, parent, name, member)

    def _remove(self, parent: int, name: bytes) -> None:
        if name in (b"", b".", b".."):
            raise ImageError("a layer removes a file without a name")
        with contextlib.suppress(FileExistsError):  # it is there again in the same layer
            os.mknod(name, stat.S_IFCHR, 0, dir_fd=parent)

    def _make_folder(self, parent: int, name: bytes, member: tarfile.TarInfo) -> None:
        try:
            os.mkdir(name, 0o755, dir_fd=parent)
        except FileExistsError:
            if not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                os.unlink(name, dir_fd=parent)
                os.mkdir(name, 0o755, dir_fd=parent)
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        made = os.open(name, flags, dir_fd=parent)
        try:
            self._tree.give(made, self._owner(member), member.mode & 0o7777)
            os.utime(made, (member.mtime, member.mtime))
        finally:
            os.close(made)

    def _make_file(
        self, tar: tarfile.TarFile, parent: int, name: bytes, member: tarfile.TarInfo
    ) -> None:
        with contextlib.suppress(FileNotFoundError, IsADirectoryError):
            os.unlink(name, dir_fd=parent)
        if member.issym():
            os.symlink(os.fsencode(member.linkname), name, dir_fd=parent)
            self._tree.give_link(parent, name, self._owner(member))
        elif member.islnk():
            source = b"/" + os.fsencode(member.linkname)
            folder, _, source_name = source.rpartition(b"/")
            with self._tree.folder(folder or b"/", _ROOT) as at:
                os.link(source_name, name, src_dir_fd=at, dst_dir_fd=parent, follow_symlinks=False)
        elif member.isreg():
            self._write(tar, parent, name, member)

    def _write(
        self, tar: tarfile.TarFile, parent: int, name: bytes, member: tarfile.TarInfo
    ) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(name, flags, 0o600, dir_fd=parent)
        try:
            content = cast(IO[bytes], tar.extractfile(member))
            while piece := content.read(_CONTENT):
                write_all(file, piece)
            self._tree.give(file, self._owner(member), member.mode & 0o7777)
            os.utime(file, (member.mtime, member.mtime))
        finally:
            os.close(file)

    def _owner(self, member: tarfile.TarInfo) -> Owner:
        most = self._ids.count
        return Owner(member.uid if member.uid < most else 0, member.gid if member.gid < most else 0)
