"""Files that a report writes beside what it prints."""

from __future__ import annotations

from pathlib import Path


def write_page(path: Path, text: str) -> None:
    """Write a file whole, with the folders that are missing. Raises UserError."""
    from gymmesh_client.problems import unwritable
    from gymmesh_client.safe_writes import make_folder, write_whole

    try:
        make_folder(path.parent)
        write_whole(path, text)
    except OSError as error:
        raise unwritable(path, error) from None
