"""NAME.run.json on disk: whole or not at all, and written anew when something is learnt.

It explains a run to people and tools. The journal stays the truth of what a run is made of: a
file that is missing, damaged or of another run is made anew, and nothing else is lost.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymmesh_client.journal.disk import cannot_write
from gymmesh_client.replacing import write_whole
from gymmesh_client.run_file.document import FORMAT, RunDocument
from gymmesh_responses import CodecError, loads

if TYPE_CHECKING:
    from gymmesh_client.journal.format.layout import OutputFiles
    from gymmesh_client.run_file.identity import RunIdentity


class RunFile:
    """The file of a run that is being collected. Every method raises OutputError."""

    def __init__(
        self, files: OutputFiles, session: Mapping[str, Any], identity: RunIdentity
    ) -> None:
        self._path = files.run
        run_id = str(session["run_id"])
        earlier = read_run_file(self._path, run_id) if int(session["session"]) > 1 else {}
        self._document = RunDocument.begun(run_id, session, earlier)
        made_of = identity.made_of
        if made_of is not None:
            content = self._document.content
            content["identity"]["configuration"] = made_of.configuration
            content["configuration"] = made_of.configuration  # unless more of it is said
            content["tasks"] = {"path": str(made_of.path), "sha256": identity.tasks}
            try:
                made_of.lines.write(files.task_lines)
            except OSError as error:
                raise cannot_write(files.task_lines, error) from None
        self._write()

    def say(self, **parts: Any) -> None:
        """Put more into it; see `RunDocument.say`."""
        self._document.say(**parts)
        self._write()

    def end(self, ended: Mapping[str, Any], seen: Mapping[str, Any]) -> None:
        """The collector leaves the run, and says more of it."""
        self._document.say(**seen)
        self._document.end(ended)
        self._write()

    def _write(self) -> None:
        write_document(self._path, self._document)


def write_document(path: Path, document: RunDocument) -> None:
    """Write a run's document. Raises OutputError."""
    try:
        write_whole(path, json.dumps(document.content, indent=2) + "\n")
    except OSError as error:
        raise cannot_write(path, error) from None


def read_run_file(path: Path, run_id: str = "") -> dict[str, Any]:
    """What NAME.run.json says; empty where it is missing, damaged or of another version or run.

    Args:
        run_id: of the run that it must be of; empty: any.
    """
    try:
        document = loads(path.read_bytes())
    except (OSError, CodecError):
        return {}
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        return {}
    return document if not run_id or document.get("run_id") == run_id else {}
