"""Opens an index, for the thread that writes it and for those that read it."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from urllib.parse import quote

from gymmesh_client import UserError


def connect(path: Path, *, write: bool) -> sqlite3.Connection:
    """Open an index. Raises UserError if SQLite can't open it."""
    mode = "rwc" if write else "ro"
    try:
        database = sqlite3.connect(
            f"file:{quote(str(path))}?mode={mode}",
            uri=True,
            check_same_thread=False,
            timeout=30,
            isolation_level=None,
        )
        database.execute("PRAGMA trusted_schema = OFF")
        database.execute("PRAGMA cache_size = -65536")
        database.execute("PRAGMA temp_store = MEMORY")
        if write:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = NORMAL")
    except sqlite3.Error as error:
        raise UserError(
            f"{path} cannot be opened: {error}. Delete this file and try again; the index is "
            "rebuilt from the rows"
        ) from None
    return database
