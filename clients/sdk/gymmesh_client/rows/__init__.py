"""Rollouts as rows of JSON lines. Pure.

row       a row: what it holds, and its bytes
request   what it holds of its task, read once for the repeats
response  what it holds of its calls: one Responses object
actors    what it holds of actors beside the root agent
"""

from gymmesh_client.rows.actors import actors_of
from gymmesh_client.rows.row import (
    OWN_KEYS,
    FailedAttempt,
    completed_line,
    completed_row,
    failure_row,
    row_to_json,
    status_dict,
    verification_row,
)

__all__ = [
    "OWN_KEYS",
    "FailedAttempt",
    "actors_of",
    "completed_line",
    "completed_row",
    "failure_row",
    "row_to_json",
    "status_dict",
    "verification_row",
]
