"""A folder that gets its name once it is complete. An interrupted one is resumed file by file:
finished files are kept.

The folder is written as NAME.part. Its `export.json` has the inputs of the files, and the finished
files with their results. Only a folder with this file is ever removed.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Final

from gymmesh_client import UserError
from gymmesh_client.safe_writes import make_folder, write_whole
from gymmesh_data.exports.summary import ExportSummary
from gymmesh_data.exports.writing import CHANGED, DAMAGED, INTERRUPTED, NOTHING_BEGUN

NOTE: Final = "export.json"
"""The file of the folder that lists the finished files; deleted when the folder is complete."""


class FolderDraft:
    """The draft of a folder that is renamed to `output` at the end. `made_of`: the inputs of its
    files, as JSON values. To resume, they must be equal.
    """

    def __init__(self, output: Path, made_of: Any) -> None:
        self.output = output
        self.path = output.with_name(f"{output.name}.part")
        self._note = self.path / NOTE
        self._made_of = made_of
        self._finished: dict[str, dict[str, Any]] = {}
        self._begun = False

    def begin(self, *, overwrite: bool, resume: bool) -> None:
        """Create the folder, or resume the existing one.

        Raises:
            UserError: a folder exists and must not or can't be resumed.
            OSError: the disk can't be written.
        """
        if resume:
            self._finished = self._kept()
            return
        if self.path.is_dir() and any(self.path.iterdir()):
            if not self._note.exists():
                raise UserError(
                    f"{self.path} already exists and was not created by an export. Move this folder"
                )
            if not overwrite:
                raise UserError(f"{self.path}: {INTERRUPTED}")
            shutil.rmtree(self.path)
        make_folder(self.path)
        self._begun = True
        self._write()

    def finished(self, file: str) -> ExportSummary | None:
        """The result of a finished file; None: the file is not finished. file: the path within the
        folder, with slashes.
        """
        said = self._finished.get(file)
        if said is None:
            return None
        summary = ExportSummary.of_dict(said)
        return summary if not summary.records or (self.path / file).exists() else None

    def finish(self, file: str, summary: ExportSummary) -> None:
        """Record that a file is complete and on disk. Raises OSError."""
        if not summary.records:
            (self.path / file).unlink(missing_ok=True)
        self._finished[file] = summary.to_dict()
        self._write()

    def publish(self) -> None:
        """Give the folder its name, replacing an existing folder. Raises OSError."""
        if self.output.exists():
            shutil.rmtree(self.output)
        self.path.replace(self.output)
        (self.output / NOTE).unlink()  # last, so that a folder without its name still has it

    def drop_if_empty(self) -> None:
        """Remove the folder if it was created now and no file is finished, so there is nothing to
        resume.
        """
        if self._begun and not self._finished:
            shutil.rmtree(self.path, ignore_errors=True)

    def _write(self) -> None:
        said = {"made_of": self._made_of, "finished": self._finished}
        write_whole(self._note, json.dumps(said))

    def _kept(self) -> dict[str, dict[str, Any]]:
        if not self._note.exists():
            raise UserError(f"{self._note}: {NOTHING_BEGUN}")
        try:
            said = json.loads(self._note.read_text())
            made_of, finished = said["made_of"], dict(said["finished"])
        except (ValueError, KeyError, TypeError):
            raise UserError(f"{self._note}: {DAMAGED}") from None
        if made_of != self._made_of:
            raise UserError(f"{self.path}: {CHANGED}")
        return finished
