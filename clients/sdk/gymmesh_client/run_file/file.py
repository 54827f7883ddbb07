"""NAME.run.json on disk: complete or absent, and rewritten when there is news.

It explains a run to people and tools. The journal is the source of truth. If the file is missing,
damaged or belongs to a different run, it is recreated, and no other data is lost.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gymmesh_client.disk import cannot_write
from gymmesh_client.run_file.document import FORMAT, RunDocument
from gymmesh_client.safe_writes import write_whole
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
