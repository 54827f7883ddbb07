"""NAME.run.json on disk: whole or not at all, and written anew when something is learnt.

It explains a run to people and tools. The journal stays the truth of what a run is made of: a
file that is missing, damaged or of another run is made anew, and nothing else is lost.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gymmesh_client.disk import cannot_write
from gymmesh_client.replacing import write_whole
from gymmesh_client.run_file.document import FORMAT, RunDocument
from gymmesh_responses import CodecError, loads


def write_document(path: Path, document: RunDocument) -> None:
    """Write a run's document. Raises OutputError."""
    try:
        write_whole(path, json.dumps(document.content, indent=2) + "\n")
    except OSError as error:
        raise cannot_write(path, error) from None


def read_run_file(path: Path, run_id: str = "") -> dict[str, Any]:
    """What NAME.run.json says; empty where it is missing, damaged, of another version or, where
    `run_id` is given, of another run.
    """
    try:
        document = loads(path.read_bytes())
    except (OSError, CodecError):
        return {}
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        return {}
    return document if not run_id or document.get("run_id") == run_id else {}
