"""Rollouts as rows of JSON lines, as gymmesh/row/v1/row.proto has them. Pure.

row       a row as one line
request   what it holds of its task, read once for the repeats
calls     what it holds of its model calls: each with its own part of the conversation
response  what it holds of the final conversation: one Responses object
"""

from gymmesh_client.rows.row import (
    FailedAttempt,
    completed_line,
    completed_row,
    failure_line,
    failure_row,
    status_dict,
    verification_row,
)

__all__ = [
    "FailedAttempt",
    "completed_line",
    "completed_row",
    "failure_line",
    "failure_row",
    "status_dict",
    "verification_row",
]
