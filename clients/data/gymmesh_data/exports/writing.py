"""A file that gets its name once it is complete: JSON lines, or a file made from them at the end.
An interrupted one can be resumed.

Lines go to NAME.part; NAME.part.json regularly records how much of NAME.part is on disk. Resuming
makes the same lines again and compares them with the file by its checksum. So a change of the
rollouts or the options in the meantime can't produce a file whose two halves don't belong together.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import time
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO, Final

from gymmesh_client.problems import UserError, unwritable
from gymmesh_client.safe_writes import OWNER_ONLY, make_folder, refuse_used, write_whole

# Why an export cannot go on, or begin; after the path of what is there, or should be.
INTERRUPTED: Final = (
    "the export to this file was interrupted. Resume the export with --resume, or start again "
    "with --overwrite"
)
NOTHING_BEGUN: Final = "does not exist, so there is no export to resume; remove --resume"
DAMAGED: Final = "is damaged. Start again with --overwrite"
CHANGED: Final = "was made from other rollouts or with other options. Start again with --overwrite"
_CHECKPOINT_S: Final = 5.0


class LineFile:
    """The output of an export. path: its final name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.part = path.with_name(f"{path.name}.part")
        self.checkpoint = path.with_name(f"{path.name}.part.json")
        self.spool = path.with_name(f"{path.name}.part.db")
        self.packed = path.with_name(f"{path.name}.part.packed")

    def refuse(self, *, overwrite: bool, resume: bool) -> None:
        """Refuse to overwrite existing files. Raises UserError."""
        refuse_used(self.path, overwrite=overwrite)
        # Without a checkpoint there is nothing to go on with, nor to lose.
        if self.checkpoint.exists() and self.part.exists() and not (overwrite or resume):
            raise UserError(f"{self.part}: {INTERRUPTED}")
        if resume and not self.checkpoint.exists():
            raise UserError(f"{self.checkpoint}: {NOTHING_BEGUN}")

    def write(
        self,
        lines: Iterable[bytes],
        *,
        resume: bool,
        pack: Callable[[Path, Path], None] | None = None,
    ) -> int:
        """Write the lines, then rename the file. Returns the bytes that already existed.

        `pack`: converts the lines to the final file, for formats other than JSON lines. Raises
        UserError if the disk is full, or if the existing file was made from different input.
        """
        try:
            make_folder(self.path.parent)
            kept, crc = self._kept() if resume else (0, 0)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            with os.fdopen(os.open(self.part, flags, OWNER_ONLY), "r+b") as file:
                self._lock(file)
                if os.fstat(file.fileno()).st_size < kept:
                    raise UserError(f"{self.part}: {CHANGED}")
                file.truncate(kept)
                file.seek(kept)
                if not kept:
                    self._note(file, 0, 0)
                try:
                    self._write(file, lines, kept, crc)
                except BaseException:
                    # Leave nothing to be overwritten where there is nothing to go on with.
                    if self._kept() == (0, 0):
                        self.part.unlink()
                        self.checkpoint.unlink()
                    raise
                file.flush()
                os.fsync(file.fileno())
                if pack is None:
                    self.part.replace(self.path)
                else:
                    self._pack(pack)
                self.checkpoint.unlink(missing_ok=True)
        except (OSError, sqlite3.Error) as error:
            raise unwritable(self.path, error) from None
        return kept

    def _lock(self, file: BinaryIO) -> None:
        """Refuse to write where another export does: both would end well, with a file of two."""
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            ours = os.path.samestat(os.fstat(file.fileno()), os.stat(self.part))
        except (BlockingIOError, FileNotFoundError):
            ours = False
        if not ours:
            raise UserError(
                f"another export writes {self.part}. Wait until it ends, or choose another --output"
            )

    def _pack(self, pack: Callable[[Path, Path], None]) -> None:
        try:
            self.packed.unlink(missing_ok=True)
            self.packed.touch(OWNER_ONLY)
            pack(self.part, self.packed)
            with self.packed.open("rb") as file:
                os.fsync(file.fileno())
            self.packed.replace(self.path)
        finally:
            self.packed.unlink(missing_ok=True)
        self.part.unlink()

    def _write(self, file: BinaryIO, lines: Iterable[bytes], kept: int, kept_crc: int) -> None:
        size = crc = 0
        due = time.monotonic() + _CHECKPOINT_S
        for line in lines:
            size, crc = size + len(line), zlib.crc32(line, crc)
            if size > kept:
                file.write(line)
            elif size == kept and crc != kept_crc:
                raise UserError(f"{self.part}: {CHANGED}")
            if size - len(line) < kept < size:
                raise UserError(f"{self.part}: {CHANGED}")
            if size > kept and time.monotonic() >= due:
                self._note(file, size, crc)
                due = time.monotonic() + _CHECKPOINT_S
        if size < kept:
            raise UserError(f"{self.part}: {CHANGED}")

    def _note(self, file: BinaryIO, size: int, crc: int) -> None:
        """Say how much is on disk; whole lines only."""
        file.flush()
        os.fsync(file.fileno())
        write_whole(self.checkpoint, json.dumps({"bytes": size, "crc32": crc}))

    def _kept(self) -> tuple[int, int]:
        try:
            said = json.loads(self.checkpoint.read_text())
            return int(said["bytes"]), int(said["crc32"])
        except (ValueError, KeyError, TypeError):
            raise UserError(f"{self.checkpoint}: {DAMAGED}") from None
