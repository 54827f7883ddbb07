"""The log of a run, the truth about it: which outcomes are current, and where their rows are.

frames    commits as bytes (pure)
state     what the records amount to; moves: where rows are after a compaction (pure)
reading   the file: its commits, its sessions, the order in which rollouts began
places    where the current rows of a run are, by the log alone

See docs/reference/journal.md. What a commit holds is in `gymmesh_client.log_records`; `journal`
writes it.
"""

from gymmesh_client.log.frames import HEADER, LogFrame, encode_frame
from gymmesh_client.log.moves import Moves
from gymmesh_client.log.places import FilePlaces, RunPlaces
from gymmesh_client.log.reading import (
    first_reserved,
    first_session,
    frames_of,
    latest_session,
    mapped,
    opened,
    unnamed_run,
)
from gymmesh_client.log.state import RunState

__all__ = [
    "HEADER",
    "FilePlaces",
    "LogFrame",
    "Moves",
    "RunPlaces",
    "RunState",
    "encode_frame",
    "first_reserved",
    "first_session",
    "frames_of",
    "latest_session",
    "mapped",
    "opened",
    "unnamed_run",
]
