"""Where the files of a workspace come from: a row itself, or a folder beside the task file."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Final

from gymmesh_resource import TaskInvalid
from gymmesh_resource.environments.workspace.row import FileSet, InlineFile
from gymmesh_sandbox_access import SandboxFiles

_MOST_BYTES: Final = 1 << 30


class TaskFolder:
    """The folder that rows name files in. Invariant: no row reads outside of it.

    path: the option `folder`; None: there is none.
    """

    def __init__(self, path: Path | None) -> None:
        self._root = None if path is None else path.resolve()

    def find(self, key: str, name: str) -> Path:
        """What a row names. Raises TaskInvalid."""
        if self._root is None:
            raise TaskInvalid(key, "names a file, but the environment's option 'folder' is not set")
        found = (self._root / name).resolve()
        if not found.is_relative_to(self._root):
            raise TaskInvalid(key, f"{name!r} leads out of the environment's folder")
        if not found.exists():
            raise TaskInvalid(key, f"{name!r} is not in the environment's folder")
        return found

    def check(self, key: str, files: FileSet) -> None:
        """Raises TaskInvalid for a folder or an archive that is not there."""
        if files.folder and not self.find(f"{key}folder", files.folder).is_dir():
            raise TaskInvalid(f"{key}folder", f"{files.folder!r} is not a folder")
        if files.archive:
            archive = self.find(f"{key}archive", files.archive)
            if not archive.is_file():
                raise TaskInvalid(f"{key}archive", f"{files.archive!r} is not a file")
            if archive.stat().st_size > _MOST_BYTES:
                raise TaskInvalid(f"{key}archive", f"{files.archive!r} is larger than 1 GiB")

    def size(self, files: FileSet) -> int:
        """About how many bytes the files have; an archive counts as it is. Raises TaskInvalid."""
        paths = [self.find("archive", files.archive)] if files.archive else []
        if files.folder:
            paths += [one for one in self.find("folder", files.folder).rglob("*") if one.is_file()]
        return sum(one.stat().st_size for one in paths) + len(packed_inline(files))

    async def put(
        self, key: str, files: FileSet, target: SandboxFiles, path: str, user: str
    ) -> None:
        """Writes the files into a folder of a sandbox, the inline ones last.

        Raises TaskInvalid, and MeshError of the sandbox.
        """
        self.check(key, files)
        if files.archive:
            archive = self.find(f"{key}archive", files.archive)
            await target.unpack(archive.read_bytes(), path, user=user)
        if files.folder:
            await target.upload(self.find(f"{key}folder", files.folder), path, user=user)
        if files.files:
            await target.unpack(packed_inline(files), path, user=user)


def packed_inline(files: FileSet) -> bytes:
    """The inline files as a tar archive, with their modes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, given in files.files.items():
            one = given if isinstance(given, InlineFile) else InlineFile(content=given)
            data = one.data()
            member = tarfile.TarInfo(path)
            member.size, member.mode = len(data), int(one.mode, 8)
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()
